"""Sessions of the caller: objects that keep a conversation where the calling process wants it."""
