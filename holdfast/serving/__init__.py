"""Worker processes: which agents they serve, how they start and stop."""
