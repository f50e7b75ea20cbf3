"""Query pipelines: a graph of components as a step."""
