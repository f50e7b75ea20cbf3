"""What an operator sees of a process: its logs, whether it is ready, its metrics."""
