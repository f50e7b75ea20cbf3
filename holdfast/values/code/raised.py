"""Exceptions of the user's code, kept for the caller of the run that they stopped.

A failure crosses to the task as text and a class name. Where the run and its caller are one
process, the caller gets a StepFailedError that is of the exception's own class, too: a program
that catches its own exceptions around a run goes on to do so.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import Any, cast

from holdfast.errors import ModelError, StepFailedError, with_remedy

MOST_KEPT = 100
"""Most tasks of which an exception is kept; that of the oldest task is dropped."""

_lock = threading.Lock()
_kept: OrderedDict[str, Exception] = OrderedDict()


def keep(task_id: str, error: Exception) -> None:
    """Keep the newest exception that stops a task."""
    with _lock:
        _kept.pop(task_id, None)
        _kept[task_id] = error
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)


def take(task_id: str, kind: str) -> Exception | None:
    """Return the exception that was kept for a task, once; None if its class has another name."""
    with _lock:
        found = _kept.pop(task_id, None)
    return found if found is not None and type(found).__name__ == kind else None


def also_of(error: StepFailedError, cause: Exception) -> StepFailedError:
    """Return a step's failure that is of the class of its cause, too, and has its attributes.

    Args:
        error: The failure.
        cause: The exception that stopped the step; one of a model with the exception that it was
            made of as its own cause.

    Returns:
        The failure; the given one if no class can be made of both. Its `__cause__` is the cause.
    """
    origin = cause.__cause__ if isinstance(cause, ModelError) else None
    causes = [each for each in (cause, origin) if isinstance(each, Exception)]
    for kinds in (tuple(map(type, causes)), (type(cause),)):
        made = _made(error, kinds)
        if made is None:
            continue
        for each in causes:
            made.__dict__.update(vars(each))
        made.__dict__.update(vars(error))
        made.__dict__.pop("__notes__", None)  # the text has them
        made.args = error.args
        made.__cause__ = causes[-1]
        return made
    error.__cause__ = causes[-1]
    return error


def _made(error: StepFailedError, kinds: tuple[type[Exception], ...]) -> StepFailedError | None:
    try:
        own: Any = type(error)  # a type is hashable, which mypy does not see
        kind = _class_of(own, kinds)
        return kind.__new__(kind)
    except TypeError:  # a class that is final, needs arguments, or is laid out otherwise in C
        return None


@functools.lru_cache(maxsize=256)
def _class_of(
    kind: type[StepFailedError], kinds: tuple[type[Exception], ...]
) -> type[StepFailedError]:
    bases = [kind, *(each for each in kinds if not issubclass(kind, each))]
    kept = [each for each in bases if not any(o is not each and issubclass(o, each) for o in bases)]
    members = {"__module__": kind.__module__, "__str__": _text, "__doc__": kind.__doc__}
    made: Any = type(kind.__name__, tuple(kept), members)
    return cast("type[StepFailedError]", made)


def _text(error: Any) -> str:
    return with_remedy(str(error.args[0]), error.remedy)
