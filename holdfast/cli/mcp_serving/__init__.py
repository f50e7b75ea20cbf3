"""Agents as tools of MCP clients: each call is a durable task."""
