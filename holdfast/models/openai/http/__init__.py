"""Requests to OpenAI's APIs and compatible ones: bodies, connections, streams and failures."""
