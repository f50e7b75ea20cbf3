"""What a run takes and what it gives back: configuration, items, results, state."""
