"""From what Temporal reports to the errors of this package."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from temporalio.client import RPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import errors
from holdfast.agents.runs.guardrail_results import tripped_result
from holdfast.errors import (
    ConnectError,
    GuardrailTripwireTriggered,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    StepFailedError,
    TaskClosedError,
    UserError,
)
from holdfast.task.data.failures import CLOSING, REMEDY, Failure
from holdfast.task.data.state import PARKED
from holdfast.task.refusals import verdict_of
from holdfast.values.base import Json
from holdfast.values.code import raised

REFUSALS = frozenset(
    {
        "NoUpcomingStepsError",
        "InvalidArgumentError",
        "TaskClosedError",
        "StepNotFoundError",
        "StalledTaskError",
        "UnfitAnswerError",
        "CommandRefusedError",
        "UndoRefusedError",
        "UndoFailedError",
    }
)


@contextmanager
def server_errors(*passing: RPCStatusCode) -> Generator[None]:
    """Turn what a call to the Temporal server raises into our errors.

    Args:
        passing: Statuses whose RPCError is passed on: what is not found, the caller knows best.

    Raises:
        InvalidArgumentError: The server refused a value, such as an id that is too long.
        ConnectError: The server could not be reached, or did not do it.
    """
    try:
        yield
    except RPCError as error:
        if error.status in passing:
            raise
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise InvalidArgumentError(
                f"The Temporal server refused the request: {error.message}"
            ) from error
        raise ConnectError(
            f"The Temporal server did not do as asked: {error.status.name}: {error.message}.",
            remedy="Check that it runs and can be reached, and that you have the rights; then ask"
            " again.",
        ) from error
    except RPCTimeoutOrCancelledError as error:
        raise ConnectError(
            f"The Temporal server did not answer in time: {error}.", remedy="Ask again."
        ) from error
    except AssertionError as error:  # so Temporal's SDK says it
        if "across forks" not in str(error):
            raise
        raise ConnectError(
            "This connection to the Temporal server was made before the process was forked, and"
            " works in the parent process alone.",
            remedy="Make the AgentRunner in each process, after the fork: in gunicorn's post_fork,"
            " in Celery's worker_process_init, in the function that multiprocessing runs.",
        ) from error


def failure_in(error: BaseException | None) -> Failure | None:
    """Return the failure that a Temporal error carries, or None."""
    while error is not None:
        if isinstance(error, ApplicationError):
            parked = PARKED in error.details
            step = str(error.details[1]) if parked and len(error.details) > 1 else ""
            data = dict(_facts(error))
            return Failure(
                type=error.type or "ApplicationError",
                message=error.message,
                remedy=str(data.pop(REMEDY, "")),
                step=step,
                data=data,
            )
        error = error.__cause__
    return None


def _facts(error: ApplicationError) -> dict[str, Json]:
    """Return the facts that an error carries, or none."""
    facts = [cast("dict[str, Json]", each) for each in error.details if isinstance(each, dict)]
    return facts[0] if facts else {}


def is_parked(error: BaseException | None) -> bool:
    """Whether a Temporal error says that the task waits with this failure."""
    while error is not None:
        if isinstance(error, ApplicationError):
            return PARKED in error.details
        error = error.__cause__
    return False


def to_error(
    failure: Failure, *, task_id: str, step_id: str = "", parked: bool = False
) -> HoldfastError:
    """Make the error that a client raises for a failure of a task.

    Args:
        failure: What the task said.
        task_id: The task.
        step_id: The step, when it is known.
        parked: Whether the task waits with this failure, rather than that it has ended with it or
            that the request was wrong.
    """
    kind = getattr(errors, failure.type, None)
    if parked and failure.type not in {"StalledTaskError", "UnfitAnswerError"}:
        return _step_failed(failure, task_id=task_id, step_id=step_id or failure.step)
    verdict = verdict_of(failure)
    if verdict is not None:
        if isinstance(verdict, GuardrailTripwireTriggered):
            verdict.guardrail_result = tripped_result(failure)
        return verdict
    if failure.type == TaskClosedError.__name__:
        text = f"Task {task_id!r} is closed: it can be read, not changed."
        return TaskClosedError(text)
    if failure.type in REFUSALS and isinstance(kind, type):
        refused: HoldfastError = kind(failure.message, remedy=failure.remedy)
        return refused
    return _step_failed(failure, task_id=task_id, step_id=step_id)


def _step_failed(failure: Failure, *, task_id: str, step_id: str) -> StepFailedError:
    if failure.type == errors.StepCodeChangedError.__name__:
        return errors.StepCodeChangedError(
            failure.message,
            task_id=task_id,
            step_id=step_id,
            cause_type=failure.type,
            remedy=failure.remedy,
        )
    if CLOSING in failure.data:
        text = f"Task {task_id!r} could not be closed: {failure.type}: {failure.message}"
        return StepFailedError(
            text, task_id=task_id, step_id="", cause_type=failure.type, remedy=failure.remedy
        )
    text = (
        f"{f'Step {step_id!r}' if step_id else 'A step'} of task {task_id!r} failed:"
        f" {failure.type}: {failure.message}\n"
        "The step stays first in the queue and nothing it had done is lost."
    )
    again = f"run_step(task), or Runner.run(agent, RunState.of({task_id!r}))."
    remedy = f"Fix the cause, then run the step again: {again}"
    if failure.remedy:  # it knows the cause; only how to run the step is not known there
        remedy = f"{failure.remedy} To run the step: {again}"
    error = StepFailedError(
        text, task_id=task_id, step_id=step_id, cause_type=failure.type, remedy=remedy
    )
    cause = raised.take(task_id, failure.type, text)
    if cause is None or isinstance(cause, ApplicationError | NotFoundError | UserError):
        return error
    return raised.also_of(error, cause)
