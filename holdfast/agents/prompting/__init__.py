"""What a model is told before a conversation: instructions, and prompts kept at the provider."""
