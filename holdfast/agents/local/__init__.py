"""Tools that the provider knows and that run here: a shell, patches, and tools that take text."""
