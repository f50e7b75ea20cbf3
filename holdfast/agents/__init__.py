"""What users declare: agents, tools, handoffs, guardrails, hooks."""
