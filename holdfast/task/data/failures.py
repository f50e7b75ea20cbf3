"""Failures: why a step or a task stopped, and how the activity of a tool call fails.

A call of a tool that is not repeatable may have happened whenever its activity fails, whatever the
reason: a lost worker, a timeout, an outcome that cannot be encoded or stored. Only the failures
that say otherwise are certain to hide no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple, cast

from pydantic import Field

from holdfast.errors import with_remedy
from holdfast.values.base import Json, Value
from holdfast.values.messages import NOTHING, as_written

KIND = "kind"
"""Fact of a verdict: the kind of error handlers of the run that may answer in its place."""

INVALID_OUTPUT = "invalid_final_output"
"""Such a kind: the final output does not fit its type, or is missing."""

CLOSING = "closing"
"""Fact of a failure to close the task: no step has failed."""

TURN_FOLLOWS = "again"
"""Fact of a verdict: another turn follows when no handler answers."""

REFUSAL = "refusal"
"""Fact of a ModelRefusalError: what the model said."""

NOT_STARTED = "NotStarted"
"""Type of the failure of a call that was certainly not made, and may be scheduled again."""

ACTIVITY_TIMEOUT = "ActivityTimeout"
"""Type of the failure of an activity whose attempts were lost, or took too long."""

TOOL_MISSING = "ToolMissingError"
"""Type of the failure of a call whose tool the agent of the worker process has lost."""

HANDOFF_MISSING = "HandoffMissingError"
"""The same of a handoff."""

TOOL_CHANGED = "ToolChangedError"
"""Type of the failure of a call whose tool has become one that would do something else."""

AGENT_MISSING = "AgentNotFoundError"
"""Type of the failure of a step or call whose agent the worker process lacks."""

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


LOST = "lost"
"""Fact in the details of the error of a step's activity: how many attempts before the one that has
failed were lost, and the most that they can have cost in US dollars, as text."""


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


class Losses(NamedTuple):
    """Attempts before this one whose workers were lost, so that they may have made a model call.

    Attributes:
        attempts: How many there are.
        dollars: The most that they can have cost, as far as an attempt since then has said it.
    """

    attempts: int = 0
    dollars: Decimal = NOTHING


def lost_fact(losses: Losses) -> dict[str, Any]:
    """Return a fact that `losses_in` reads."""
    return {LOST: [losses.attempts, as_written(losses.dollars)]}


def losses_in(details: Iterable[object]) -> Losses | None:
    """Return what the details of a step's error say of lost attempts; None for nothing."""
    known = fact_of(details, LOST)
    if not isinstance(known, list):
        return None
    attempts, dollars = cast("list[object]", known)
    return Losses(int(str(attempts)), Decimal(str(dollars)))


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


def lost_failure(activity: str) -> Failure:
    """Return the failure of an activity that no attempt has ended in time."""
    text = f"No worker finished the activity {activity!r} in time; the last one may have been lost."
    remedy = "The log of the worker processes may say what hangs, or ends them."
    return Failure(type=ACTIVITY_TIMEOUT, message=text, remedy=remedy)


def failure_with(kind: str | None, message: str, details: Iterable[object]) -> Failure:
    """Return the failure that the error of an activity carries.

    Args:
        kind: The error's type.
        message: Its message.
        details: Its details, with facts as of `facts`.
    """
    return Failure(
        type=kind or "ApplicationError",
        message=message,
        remedy=str(fact_of(details, REMEDY) or ""),
        parks=bool(fact_of(details, PARKS)),
    )
