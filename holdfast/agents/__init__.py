"""Declarations of users: agents, tools, handoffs, guardrails, hooks."""
