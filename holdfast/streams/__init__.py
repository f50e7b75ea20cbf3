"""Answers while they are being made: from the model's process to whoever wants to see them."""
