"""The audit: what happened in a task, line by line, and how far that is proven."""
