"""From what Temporal reports to the errors of this package."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from holdfast import errors
from holdfast.errors import AgentsException, HoldfastError, StepFailedError, TaskClosedError
from holdfast.wire import Failure

REFUSALS = frozenset(
    {
        "NoUpcomingStepsError",
        "InvalidArgumentError",
        "TaskClosedError",
        "StepNotFoundError",
        "StalledTaskError",
    }
)


def failure_in(error: BaseException | None) -> Failure | None:
    """Return the failure that a Temporal error carries, or None."""
    while error is not None:
        if isinstance(error, ApplicationError):
            return Failure(type=error.type or "ApplicationError", message=error.message)
        error = error.__cause__
    return None


def to_error(failure: Failure, *, task_id: str, step_id: str = "") -> HoldfastError:
    """Make the error that a client raises for a failure of a task."""
    kind = getattr(errors, failure.type, None)
    if isinstance(kind, type) and issubclass(kind, AgentsException):
        return kind(failure.message)
    if failure.type == TaskClosedError.__name__:
        text = f"Task {task_id!r} is closed: it can be read, not changed."
        return TaskClosedError(text)
    if failure.type in REFUSALS and isinstance(kind, type):
        refused: HoldfastError = kind(failure.message)
        return refused
    if failure.type == errors.StepCodeChangedError.__name__:
        return errors.StepCodeChangedError(
            failure.message, task_id=task_id, step_id=step_id, cause_type=failure.type
        )
    text = (
        f"A step of task {task_id!r} failed: {failure.type}: {failure.message}\n"
        "The step stays first in the queue and nothing it had done is lost. Heal the cause, then"
        " run the step again."
    )
    return StepFailedError(text, task_id=task_id, step_id=step_id, cause_type=failure.type)
