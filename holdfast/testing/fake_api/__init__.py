"""A fake of OpenAI's HTTP API that tests control."""
