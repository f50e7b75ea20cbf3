"""Following a task at a terminal: its events, its history, its waits."""
