"""Step logic of a user's own: how it is run, and how its state is recorded."""
