"""Failures: why a step or a task stopped, and how the activity of a tool call fails.

A call of a tool that is not repeatable may have happened whenever its activity fails, whatever the
reason: a lost worker, a timeout, an outcome that cannot be encoded or stored. Only the failures
that say otherwise are certain to hide no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pydantic import Field

from holdfast.errors import with_remedy
from holdfast.values.base import Json, Value

KIND = "kind"
"""Fact of a verdict: the kind of error handlers of the run that may answer in its place."""

CLOSING = "closing"
"""Fact of a failure to close the task: no step has failed."""

TURN_FOLLOWS = "again"
"""Fact of a verdict: another turn follows when no handler answers."""

REFUSAL = "refusal"
"""Fact of a ModelRefusalError: what the model said."""

NOT_STARTED = "NotStarted"
"""Type of the failure of a call that was certainly not made, and may be scheduled again."""

INTERRUPTED = "Interrupted"
"""Type of the failure of a call that was started and whose outcome is lost; its text says why."""

TIMED_OUT = "ToolTimeoutError"
"""Type of the failure of a call that ran longer than its tool allows."""

NOT_REPEATABLE = "NotRepeatable"
"""Type of the failure of a call, or undo, that may have been made before and was not repeated.

When the task began, the tool was repeatable; the tool that this process serves by its name is not.
"""

CERTAIN: dict[str, Any] = {"certain": True}
"""Detail of a failure that hides no effect: the call was not made, or has itself failed in this
way."""

AGAIN: dict[str, Any] = {"again": True}
"""Detail of a failure that is not retryable for the server, because the workflow schedules the
activity again itself, if the tool is repeatable."""


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


class Failure(Value):
    """Why a step or a task stopped.

    Attributes:
        type: Class name of the error.
        message: What happened.
        remedy: What to do about it, or empty; shown once, by what shows the failure last.
        step: Id of the step, if it was one.
        data: Facts for the error that the client raises, for example the result of a guardrail.
        parks: Whether the task waits with it whatever its type, because code of the user has
            failed, not the run.
    """

    type: str
    message: str
    remedy: str = ""
    step: str = ""
    data: dict[str, Json] = Field(default_factory=dict[str, Json])
    parks: bool = False

    @property
    def text(self) -> str:
        """The message with the remedy."""
        return with_remedy(self.message, self.remedy)
