"""Streams of events: answers while they are being made, and what happened in order."""
