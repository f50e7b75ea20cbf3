"""What the provider of the Responses API runs or keeps itself: its tools, its stored prompts."""
