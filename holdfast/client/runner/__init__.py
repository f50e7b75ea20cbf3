"""`Runner`: the Runner of the OpenAI Agents SDK on durable tasks."""
