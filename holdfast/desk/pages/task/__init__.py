"""The page of one task."""
