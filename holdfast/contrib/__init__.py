"""Ways in and out by other libraries and protocols; each module needs an extra of its own."""
