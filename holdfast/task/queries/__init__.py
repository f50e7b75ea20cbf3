"""What a task shows of itself: pages for programs, and texts for people who read Temporal's UI."""
