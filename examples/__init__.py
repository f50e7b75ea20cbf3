"""Examples: each runs offline."""
