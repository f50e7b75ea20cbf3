"""Function calling: the loop of the OpenAI Agents SDK, handoffs included."""
