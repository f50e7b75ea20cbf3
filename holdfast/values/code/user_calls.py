"""Which code of the user's an activity is calling now, to say so when it does not come back."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.errors import message_of


class RaisedBy(str):
    """A note on an exception that names the user's function which raised it."""

    __slots__ = ()


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


@contextmanager
def naming(what: str, function: Any) -> Generator[None]:
    """Note that the block calls a function of the user's; what it raises tells so in a note.

    Args:
        what: What the function is, for a person.
        function: It, with its name, file and line in the note; anything else is not told of.
    """
    with calling(what):
        try:
            yield
        except Exception as error:
            place = f": {place_of(function, error)}" if callable(function) else ""
            error.add_note(RaisedBy(f"Raised by {what}{place}"))
            raise


def message_with_place(error: BaseException) -> str:
    """Return what happened, with the function that raised the error where that is known."""
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, RaisedBy)]
    return "\n".join([message_of(error), *notes])


def name_of(function: Callable[..., Any]) -> str:
    """Name a function as its module and definition do, without calling anything of its own."""
    function = _plain(function)
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def place_of(function: Callable[..., Any], error: BaseException) -> str:
    """Name a function that raised, with the last line in its file that the error came through.

    A function that could not be called as it was has no line of its own there: it is where its
    definition is.
    """
    name, function = name_of(function), _plain(function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return name
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f"{name}, {code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function
