"""Exceptions of the user's code, kept for the caller of the run that they stopped.

A failure crosses to the task as text and a class name. Where the run and its caller are one
process, the caller gets a StepFailedError that is of the exception's own class as well: a program
that catches its own exceptions around a run goes on to do so.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple, cast

from holdfast.errors import HoldfastError, ModelError, StepFailedError
from holdfast.values.text.logs import log

MOST_KEPT = 100
"""Most tasks whose exceptions are kept; exceptions of the oldest task are dropped."""

MOST_OF_A_TASK = 10
"""Most exceptions that are kept of a task: guardrails that run together may all raise."""

_TEXT = "_holdfast_text"
"""Where an error has the text of the failure: its `args` are those of its cause."""


class Kept(NamedTuple):
    """An exception that may have stopped a task.

    Attributes:
        message: Its message, as the failure of the task has it.
        error: The exception.
    """

    message: str
    error: Exception


_lock = threading.Lock()
_kept: OrderedDict[str, deque[Kept]] = OrderedDict()


def keep(task_id: str, error: Exception, message: str) -> None:
    """Keep an exception that may stop a task, without the frames in which it was raised.

    Frames hold the variables of everything that was being called, files and secrets included.

    Args:
        task_id: The task.
        error: The exception.
        message: Its message, as the failure of the task has it.
    """
    without_frames(error)
    with _lock:
        known = _kept.pop(task_id, None) or deque[Kept](maxlen=MOST_OF_A_TASK)
        known.append(Kept(message, error))
        _kept[task_id] = known
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)


def take(task_id: str, kind: str, text: str) -> Exception | None:
    """Return the exception that stopped a task, and forget all that were kept for it.

    Args:
        task_id: The task.
        kind: Name of the exception's class.
        text: Text of the failure; it has the exception's message in it.

    Returns:
        The newest of this class with the longest such message; None without one.
    """
    with _lock:
        known = _kept.pop(task_id, ())
    fits = [each for each in known if type(each.error).__name__ == kind and each.message in text]
    return max(reversed(fits), key=lambda each: len(each.message)).error if fits else None


def cause_of(task_id: str, text: str) -> Exception | None:
    """Return the exception of the user's code that an error which ended a task tells of.

    Args:
        task_id: The task.
        text: Text of the error, for which the exception was kept.
    """
    with _lock:
        known = tuple(_kept.get(task_id, ()))
    return next((each.error for each in reversed(known) if each.message == text), None)


def drop(task_id: str) -> None:
    """Forget the exceptions of a task that is closed."""
    with _lock:
        _kept.pop(task_id, None)


def without_frames(error: BaseException) -> None:
    """Remove the tracebacks of an exception and of the exceptions that caused it."""
    seen: set[int] = set()
    due: list[BaseException | None] = [error]
    while due:
        each = due.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.with_traceback(None)
        due += [each.__cause__, each.__context__, getattr(each, "client_error", None)]
        if isinstance(each, BaseExceptionGroup):
            due += cast("BaseExceptionGroup[BaseException]", each).exceptions


def also_of(error: StepFailedError, cause: Exception) -> StepFailedError:
    """Return a step's failure that also has the class and the attributes of its cause.

    Args:
        error: The failure.
        cause: The exception that stopped the step; one of a model with the exception that it was
            made of as its own cause.

    Returns:
        The failure; the given one if no class can be made of both. Its `__cause__` is the cause,
        whose `args` and attributes it has, also where these are named like those of a failure.
    """
    origin: object = None
    if isinstance(cause, ModelError):  # an exception may be false
        origin = cause.client_error if cause.__cause__ is None else cause.__cause__
    causes = [each for each in (cause, origin) if isinstance(each, Exception)]
    for kinds in (tuple(map(type, causes)), (type(cause),)):
        made = _made(error, kinds, causes)
        if made is not None:
            return made
    error.__cause__ = causes[-1]
    return error


def _made(
    error: StepFailedError, kinds: tuple[type[Exception], ...], causes: list[Exception]
) -> StepFailedError | None:
    try:
        own: Any = type(error)  # a type is hashable, which mypy does not see
        kind = _class_of(own, kinds)
        made = kind.__new__(kind)
        for each in causes:
            _copy_slots(each, made)
            made.__dict__.update(vars(each))
        known = vars(error)
        if not isinstance(causes[0], HoldfastError):  # what its own handler reads goes first
            known = {name: value for name, value in known.items() if name not in vars(causes[0])}
        made.__dict__.update(known)
        made.__dict__.pop("__notes__", None)  # the text has them
        made.args = causes[-1].args
        made.__dict__[_TEXT] = str(error)
        made.__cause__ = causes[-1]
    except Exception:  # also of code of the class: __init_subclass__, __new__, a property
        log.debug("No class can be made of %s", kinds, exc_info=True)
        return None
    return made


def _copy_slots(cause: Exception, made: Exception) -> None:
    """Copy the attributes that are in no dict, as `errno` and `filename` of an OSError."""
    classes = type(cause).__mro__
    for each in classes[: classes.index(BaseException)]:
        for name, member in vars(each).items():
            if not isinstance(member, MemberDescriptorType | GetSetDescriptorType):
                continue
            if name.startswith("__"):
                continue
            with suppress(AttributeError, TypeError, ValueError):  # it is not set, or read-only
                member.__set__(made, member.__get__(cause))


@functools.lru_cache(maxsize=256)
def _class_of(
    kind: type[StepFailedError], kinds: tuple[type[Exception], ...]
) -> type[StepFailedError]:
    bases = [kind, *(each for each in kinds if not issubclass(kind, each))]
    kept = [each for each in bases if not any(o is not each and issubclass(o, each) for o in bases)]
    members = {"__module__": kind.__module__, "__str__": _text, "__doc__": kind.__doc__}
    return cast("type[StepFailedError]", type(kind.__name__, tuple(kept), members))


def _text(error: Any) -> str:
    text: str = error.__dict__[_TEXT]
    return text
