"""Data that imports nothing of Holdfast but its errors: messages, steps, settings, images."""
