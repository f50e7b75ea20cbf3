"""Of a run: its usage, the decisions on its calls and their rules, retries, and the context."""
