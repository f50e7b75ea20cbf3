"""The context of a run: its usage, its decisions on calls, and the wrapper that has them."""
