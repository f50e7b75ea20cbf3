"""Models behind OpenAI's two APIs, over the `openai` client."""
