"""Tool calls that have run for so long that their task may continue as new meanwhile."""

from __future__ import annotations

from holdfast.values import Value

LONG_CALL = "long_call"
"""Signal by which an activity tells its task that its tool runs for long."""

SECRET = "long_call_secret"  # noqa: S105  the name of a query
"""Query that gives the secret which that signal must carry."""

AWAITED = "long_calls"
"""Query that lists the ids of the long calls whose outcome the task awaits."""


class LongCall(Value):
    """One call of a tool, made in this run of the task or in an earlier one.

    Attributes:
        id: Made up by the worker process that runs the tool. In a later run of the task, the
            activity that stands for the call has this id.
        branch: The task's branch.
        n: Number of the step.
        i: Position of the call.
        tried: Attempts that were lost before this one.
        started: When this attempt began, seconds since the epoch.
        secret: Shows that an activity of the task has sent this; the task does not keep it.
    """

    id: str
    branch: int
    n: int
    i: int
    tried: int = 0
    started: float = 0.0
    secret: str = ""
