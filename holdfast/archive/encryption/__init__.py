"""Encryption of what a task says: in Temporal's history, and in the archive."""
