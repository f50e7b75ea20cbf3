"""Which code of the user's an activity is calling now, to say so when it does not come back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Calls:
    """The user's code that one activity is calling.

    Attributes:
        names: What is called, in the order in which the calls began.
    """

    def __init__(self) -> None:
        """Call nothing yet."""
        self.names: list[str] = []

    def __str__(self) -> str:
        """Name what is called: its role first, then the function."""
        if not self.names:
            return ""
        first, last = self.names[0], self.names[-1]
        return first if first == last else f"{first} ({last})"


current: ContextVar[Calls | None] = ContextVar("holdfast_calls", default=None)
"""The calls of the activity that runs in this context."""


@contextmanager
def calling(name: str) -> Generator[None]:
    """Note that the block calls code of the user's."""
    calls = current.get()
    if calls is None:
        yield
        return
    calls.names.append(name)
    try:
        yield
    finally:
        calls.names.remove(name)


def name_of(function: Callable[..., Any]) -> str:
    """Name a function as its module and definition do, without calling anything of its own."""
    while isinstance(function, functools.partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
