"""LLMCompiler: a plan of calls that run as soon as their inputs are there."""
