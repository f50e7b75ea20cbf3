"""The inbox: everything that waits for a person."""
