"""How often tests repeat what they do: a little in `make test`, exhaustively in `make soak`."""

from __future__ import annotations

import os

EXHAUSTIVE = os.environ.get("HOLDFAST_EXHAUSTIVE") == "1"


def times(usual: int, exhaustive: int) -> int:
    """Return how often to repeat something.

    Args:
        usual: How often in `make test`.
        exhaustive: How often in `make soak`.
    """
    return exhaustive if EXHAUSTIVE else usual


def is_repetition(test: str) -> bool:
    """Whether a test repeats with another AgentWorker what a kill of a worker process shows of one.

    Args:
        test: Id of the test.
    """
    return "/test_conformance.py::" in test and "killed" in test and "FunctionCalling" not in test
