"""The client: AgentRunner, Runner and sessions."""
