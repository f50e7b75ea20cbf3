"""Messages, prompts and models by LlamaIndex's names."""
