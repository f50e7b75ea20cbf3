"""Results of runs, made of the records of tasks."""
