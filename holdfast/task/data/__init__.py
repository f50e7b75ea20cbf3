"""The values that client, workflow and activities exchange, and the recorded ones."""
