"""The events and the live view of a task at a terminal."""
