"""StepContext: a step's access to model, tools and state, and the journal of its calls."""
