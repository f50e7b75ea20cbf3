"""Failures: why a step or a task stopped, and how the activity of a tool call fails.

A call of a tool that is not repeatable may have happened whenever its activity fails, whatever the
reason: a lost worker, a timeout, an outcome that cannot be encoded or stored. Only the failures
that say otherwise are certain to hide no effect.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pydantic import Field
from temporalio.exceptions import ApplicationError

from holdfast.values.base import Json, Value

KIND = "kind"
"""Fact of a verdict: the error handlers of the run that may answer in its place."""

CLOSING = "closing"
"""Fact of a failure: it stands in the way of the end of its task, and of no step."""

TURN_FOLLOWS = "again"
"""Fact of a verdict: another turn follows when no handler answers."""

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


class Failure(Value):
    """Why a step or a task stopped.

    Attributes:
        type: Class name of the error.
        message: Its text.
        step: Id of the step, if it was one.
        data: Facts for the client's error, JSON data: the result of a guardrail, for example.
        parks: Whether the task waits with it whatever its type: code of the user's, not the run,
            has failed.
    """

    type: str
    message: str
    step: str = ""
    data: dict[str, Json] = Field(default_factory=dict[str, Json])
    parks: bool = False


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
