"""The commands: what each of them does after its arguments are read."""
