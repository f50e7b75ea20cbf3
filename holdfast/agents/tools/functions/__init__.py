"""Functions as tools: signatures, docstrings, JSON schemas."""
