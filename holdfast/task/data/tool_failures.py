"""How activities fail, as the task reads it; above all that of a tool call.

A call of a tool that is not repeatable may have happened whenever its activity fails, whatever the
reason: a lost worker, a timeout, an outcome that cannot be encoded or stored. Only the failures
that say otherwise are certain to hide no effect.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

from temporalio.exceptions import ApplicationError

from holdfast.values.base import Json

NOT_STARTED = "NotStarted"
"""Type of the failure of a call that was certainly not made, and may be scheduled again."""

INTERRUPTED = "Interrupted"
"""Type of the failure of a call that was started and whose outcome is lost; its text says why."""

TIMED_OUT = "ToolTimeoutError"
"""Type of the failure of a call that ran longer than its tool allows."""

NOT_REPEATABLE = "NotRepeatable"
"""Type of the failure of a call, or undo, that may have been made before and was not repeated.

When the task began it could be; what this process serves under its name must not be.
"""

CERTAIN: dict[str, Any] = {"certain": True}
"""Detail of a failure that hides no effect: the call was not made, or has itself failed in this
way."""

AGAIN: dict[str, Any] = {"again": True}
"""Detail of a failure after which the server would start the activity again, had it been asked to:
the task does so in its place."""


REMEDY, PARKS = "remedy", "parks"
"""Facts in the details of any activity's error, or an update's: what to do about it, and whether
the task waits with it whatever its type."""


def facts(*, remedy: str = "", parks: bool = False) -> tuple[dict[str, Json], ...]:
    """Return the details of an activity's error."""
    found: dict[str, Json] = {}
    if remedy:
        found[REMEDY] = remedy
    if parks:
        found[PARKS] = True
    return (found,) if found else ()


def fact_of(details: Iterable[object], name: str) -> object:
    """Return a fact in the details of an error, or None."""
    known = (cast("dict[str, object]", each) for each in details if isinstance(each, dict))
    return next((each[name] for each in known if name in each), None)


@contextmanager
def certain() -> Generator[None]:
    """Mark failures of the block, which is none that the tool's function runs in, as certain."""
    try:
        yield
    except ApplicationError as error:
        raise marked(error) from None


def marked(error: ApplicationError) -> ApplicationError:
    """Return a failure that says that it hides no effect."""
    return type(error)(
        error.message,
        *error.details,
        CERTAIN,
        type=error.type,
        non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay,
        category=error.category,
    )


def is_certain(error: ApplicationError) -> bool:
    """Whether a failure hides no effect."""
    return error.type == NOT_STARTED or CERTAIN in error.details
