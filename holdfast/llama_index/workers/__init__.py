"""AgentWorkers by LlamaIndex's names: step logic, without any state of a task."""
