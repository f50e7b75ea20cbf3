"""Who sends a request to the desk, and what they may do."""
