"""StepContext: what a step may use, journaled so that a repeated step goes on."""
