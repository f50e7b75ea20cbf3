"""Benchmarks: our side of the figures in docs/benchmarks.md, one JSON line each."""
