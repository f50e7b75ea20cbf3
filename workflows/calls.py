"""The activities as the task calls them, and what their failures mean to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutType,
)
from temporalio.exceptions import (
    TimeoutError as TemporalTimeout,
)
from temporalio.workflow import ActivityCancellationType

from holdfast.guard_rules import GuardFound
from holdfast.guarding import Due
from holdfast.ledger import Ledger
from holdfast.records import Failure, ForkOf, SegmentRef
from holdfast.state import COMMIT, CommitRef, Described
from holdfast.steps import TaskStep
from holdfast.wire import Advanced, Closed, CloseInput, GuardInput

T = TypeVar("T")

VERDICTS = frozenset(
    {
        "MaxTurnsExceeded",
        "ModelBehaviorError",
        "ModelRefusalError",
        "UserError",
        "ToolTimeoutError",
        "InputGuardrailTripwireTriggered",
        "OutputGuardrailTripwireTriggered",
        "ToolInputGuardrailTripwireTriggered",
        "ToolOutputGuardrailTripwireTriggered",
    }
)
"""Failures that end a task; all others leave its step first in the queue."""


def is_verdict(failure: Failure | None) -> bool:
    """Whether a failure ends a task, or would if no other task had to hear of it first."""
    return failure is not None and failure.type in VERDICTS and not failure.parks


NO_STEPS = Failure(type="NoUpcomingStepsError", message="The task has no upcoming steps to run.")
NONE_FOLLOWED = Failure(
    type="NoUpcomingStepsError",
    message="The task has no upcoming steps to run: the last step that ran was not the last one of"
    " the task, and queued none. Undo it with undo_step, mend its AgentWorker, and run it again.",
)
NOT_LAST = Failure(
    type="InvalidArgumentError",
    message="finalize_response can only be called on the last step output",
)
NOT_FAILED = Failure(
    type="InvalidArgumentError",
    message='restart="step" is for a step that has failed and waits for nobody.',
)
BEGUN = Failure(
    type="InvalidArgumentError",
    message="The failed step has begun: the model has seen its input. Run it again as it is, or"
    ' with restart="step" to give it another input.',
)
WAITS = Failure(
    type="InvalidArgumentError",
    message="The task waits for a person, and its step has its input already. Decide first;"
    " feedback reaches the next model call.",
)
NO_PROGRESS = Failure(
    type="StalledTaskError", message="The step neither called anything nor ended. Run it again."
)
UNDONE = Failure(
    type="CommandRefusedError",
    message="The step was undone while it was being waited for. Ask again to run it anew.",
)
UNDO_RUNS = Failure(type="CommandRefusedError", message="Another undo is in progress.")
UNDOING = Failure(
    type="CommandRefusedError",
    message="An undo of the task is in progress. Ask again once it is done, or was refused.",
)
NOTHING_DONE = Failure(type="InvalidArgumentError", message="The task has no step to undo.")
NOTHING_AFTER = Failure(
    type="InvalidArgumentError", message="There is no step after the one to be kept."
)
DRAINING = Failure(type="Draining", message="The task continues as new; ask again.")
BUSY = Failure(type="Draining", message="The task has commands to read first; ask again.")
CROWDED = Failure(type="Draining", message="Many requests wait for the task; ask again.")
CLOSED = Failure(type="TaskClosedError", message="The task is closed or closing.")

QUICK = timedelta(minutes=2)
LONGEST_TOOL = timedelta(days=30)
MOST_STARTS = 8
"""How often a call is scheduled again that is known not to have started."""
PATIENT = RetryPolicy(maximum_interval=timedelta(seconds=30))
LOSSES = ("TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose")
"""What the server calls attempts that are lost; those it is not to repeat the task counts."""

COUNTED = RetryPolicy(maximum_interval=timedelta(seconds=30), non_retryable_error_types=LOSSES)
MOST_LOST = 5
"""Attempts of one activity that may be lost: one that ends its worker would do so for ever."""


async def quick(
    ledger: Ledger, name: str, given: Any, kind: type[T] | None, *, longest: timedelta = QUICK
) -> T:
    """Run an activity that changes nothing in the world, a short one as a rule.

    What time can heal is tried again for as long as it takes. An attempt that is lost may have been
    lost by the user's code that it runs: the last of some is raised.

    Raises:
        ActivityError: It failed, or was lost too often.
    """
    for lost in itertools.count(1):
        try:
            result: T = await workflow.execute_activity(
                name,
                given,
                result_type=kind,
                start_to_close_timeout=longest,
                heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
                retry_policy=COUNTED,
            )
        except ActivityError as error:
            if not is_lost(error) or lost >= MOST_LOST:
                raise
        else:
            return result
    raise RuntimeError  # unreachable: the loop returns or raises


def is_lost(error: ActivityError) -> bool:
    """Whether an attempt began, and its worker has not said how it ended."""
    match error.cause:
        case TemporalTimeout(type=TimeoutType.HEARTBEAT | TimeoutType.START_TO_CLOSE):
            return True
        case _:
            return False


async def describe(ledger: Ledger) -> Described:
    """Ask the worker process for the agent's snapshot."""
    return await quick(ledger, "describe", ledger.given.head, Described)


async def advance(ledger: Ledger, n: int, *, now: float) -> Advanced:
    """Run an open step up to its next call that needs the task."""
    described = ledger.s.described or Described(snapshot="")
    rules = described.rules(ledger.at(n).open.step.agent)
    advanced: Advanced = await workflow.execute_activity(
        "step",
        ledger.advance_input(n, now=now),
        result_type=Advanced,
        start_to_close_timeout=timedelta(seconds=rules.timeout + 60),
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=RetryPolicy(
            maximum_attempts=rules.attempts, maximum_interval=timedelta(seconds=60)
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
    return advanced


async def guard(ledger: Ledger, n: int, due: Due, *, now: float) -> GuardFound:
    """Run one guardrail on a step's input or output; it may ask a model itself."""
    described = ledger.s.described or Described(snapshot="")
    rules = described.rules(ledger.at(n).open.step.agent)
    sent = GuardInput(step=ledger.advance_input(n, now=now), rule=due.rule, i=due.i)
    found: GuardFound = await workflow.execute_activity(
        "guard",
        sent,
        result_type=GuardFound,
        start_to_close_timeout=timedelta(seconds=rules.timeout + 60),
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=RetryPolicy(
            maximum_attempts=rules.attempts, maximum_interval=timedelta(seconds=60)
        ),
    )
    return found


async def archive(ledger: Ledger) -> SegmentRef:
    """Move the ledger's entries to the archive."""
    segment: SegmentRef = await workflow.execute_activity(
        "archive",
        result_type=SegmentRef,
        start_to_close_timeout=QUICK,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=PATIENT,
    )
    return segment


async def close(ledger: Ledger, sent: CloseInput) -> Closed:
    """Archive the whole task, and what its session is to get."""
    return await quick(ledger, "close", sent, Closed)


async def commit(session_id: str, turn: CommitRef) -> None:
    """Append a turn to a session that there is, once.

    A signal that a workflow sends arrives once, or is known not to have arrived: no worker that is
    lost can leave that open.

    Raises:
        ApplicationError: It did not arrive.
    """
    try:
        await workflow.get_external_workflow_handle(session_id).signal(COMMIT, turn)
    except FailureError as error:
        text = f"Session {session_id!r} did not get the task's turn: {error}."
        raise ApplicationError(text, type="EngineError") from error


def failure_of(error: BaseException) -> Failure:
    """Name what stopped a step, as its activity said it."""
    cause: BaseException = error
    if isinstance(error, ActivityError) and error.cause is not None:
        cause = error.cause
    match cause:
        case ApplicationError():
            kind = cause.type or "ApplicationError"
            parks = {"parks": True} in cause.details
            return Failure(type=kind, message=cause.message, parks=parks)
        case TemporalTimeout():
            name = error.activity_type if isinstance(error, ActivityError) else ""
            text = (
                f"No worker finished the activity {name!r} in time; the last one may have been"
                " lost. The log of the worker processes may say what hangs, or ends them."
            )
            return Failure(type="ActivityTimeout", message=text)
        case _:
            return Failure(type=type(cause).__name__, message=str(cause))


def not_ready(step_id: str, unmet: tuple[str, ...]) -> Failure:
    """Tell that a step waits for others."""
    why = f"it waits for {', '.join(map(repr, unmet))}" if unmet else "no step has made it ready"
    return Failure(type="InvalidArgumentError", message=f"Step {step_id} is not ready: {why}.")


def none_ready(queue: Iterable[TaskStep]) -> Failure:
    """Tell that all queued steps wait, and nothing runs that they could wait for."""
    ids = ", ".join(repr(step.step_id) for step in queue)
    text = (
        f"None of the queued steps ({ids}) is ready, and no step is in progress that could make one"
        " ready. Hand one out again with is_ready=True, drop one with drop_step, or undo the last"
        " step."
    )
    return Failure(type="StalledTaskError", message=text)


def no_such_step(step_id: str) -> Failure:
    """Tell that a step is not in the queue."""
    return Failure(type="StepNotFoundError", message=f"Could not find step_id: {step_id}")


def other_failed(step_id: str) -> Failure:
    """Tell that a failed step stands before all others."""
    text = (
        f"Step {step_id!r} has failed and stays first: run it again, and the others after it."
        " Nothing was run."
    )
    return Failure(type="InvalidArgumentError", message=text)


def stalled(step_id: str) -> Failure:
    """Tell that the task cannot go on by itself."""
    which = f"Step {step_id!r}" if step_id else "The last step that ran"
    text = (
        f"{which} was not the last one and queued no next step, so the task cannot go on. Its"
        " AgentWorker must set is_last or return next_steps: undo the step with undo_step, mend the"
        " worker, and run it again."
    )
    return Failure(type="StalledTaskError", message=text)


def of_another(fork: ForkOf) -> Failure:
    """Tell that a step is the forked task's, whose effects only that task may take back."""
    text = (
        f"Steps 1 to {fork.n} are task {fork.task!r}'s, and only it may undo their effects. Undo"
        " them there, or fork it at an earlier step."
    )
    return Failure(type="InvalidArgumentError", message=text)


def abandoned(why: str) -> Failure:
    """Tell who abandoned the task, and why."""
    return Failure(type="TaskAbandonedError", message=f"The task was abandoned by {why}")


def now() -> float:
    """Time of the current workflow task, in seconds since the epoch."""
    return round(workflow.time(), 3)


def time_left(deadline: float, *, now: float) -> timedelta:
    """Return how long to wait for a deadline, at least a millisecond.

    A wait of no time sets no timer, so the time of the workflow would not go on: at a deadline that
    is a fraction of a millisecond away, the workflow would wait again and again in one task.
    """
    return timedelta(seconds=max(deadline - now, 0.001))
