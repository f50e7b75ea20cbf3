"""`AgentRunner`: the step API of a task, in parts."""
