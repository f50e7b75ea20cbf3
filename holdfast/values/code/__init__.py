"""Calling code of the user: threads, context variables, names in errors; optional packages."""
