"""Input and output of a run: settings, items, results, state, error handlers."""
