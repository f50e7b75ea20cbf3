"""How often tests repeat what they do: a little in `make test`, exhaustively in `make test-all`."""

import os
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

EXHAUSTIVE = os.environ.get("HOLDFAST_EXHAUSTIVE") == "1"


def times(usual: T, exhaustive: T) -> T:
    """Return how often to repeat something, or what to repeat.

    Args:
        usual: In `make test`.
        exhaustive: In `make test-all`.
    """
    return exhaustive if EXHAUSTIVE else usual


def all_of(*cases: Any) -> Any:
    """Leave a row of a test to `make test-all`: it shows again what another row shows."""
    return pytest.param(*cases, marks=pytest.mark.exhaustive)
