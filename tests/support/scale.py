"""How often tests repeat what they do: a little in `make test`, exhaustively in `make test-all`."""

import os

EXHAUSTIVE = os.environ.get("HOLDFAST_EXHAUSTIVE") == "1"


def times(usual: int, exhaustive: int) -> int:
    """Return how often to repeat something.

    Args:
        usual: How often in `make test`.
        exhaustive: How often in `make test-all`.
    """
    return exhaustive if EXHAUSTIVE else usual
