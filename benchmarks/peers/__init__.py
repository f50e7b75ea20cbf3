"""Other frameworks at the work of benchmarks/shared.py, each in an environment of its own."""
