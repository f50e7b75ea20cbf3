"""`holdfast demo`: a run whose worker process is killed in the middle."""
