"""The HTTP API of the desk."""
