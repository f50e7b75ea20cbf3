"""Models of other libraries: LlamaIndex's LLMs, and what LiteLLM and any-llm reach."""
