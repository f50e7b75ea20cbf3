"""Tools: their schemas, options, hooks and contexts."""
