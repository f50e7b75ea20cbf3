"""Commands that list tasks and sessions."""
