"""Requests to a task: what is allowed when, what commands change, and who waits for an answer."""
