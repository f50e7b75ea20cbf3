"""Parts of messages that are no text: images, files, sources."""
