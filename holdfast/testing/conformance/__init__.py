"""The conformance suite for AgentWorkers."""
