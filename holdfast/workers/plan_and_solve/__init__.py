"""Plan-and-solve: a plan first, then its steps."""
