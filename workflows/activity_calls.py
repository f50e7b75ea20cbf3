"""The activities as the task calls them, and what their failures and errors mean to it.

An activity's failure is a decision of the task. An error in work next to the main loop fails the
workflow task.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeout
from temporalio.workflow import ActivityCancellationType

from holdfast.task.data import failures
from holdfast.task.data.failures import (
    CERTAIN,
    NOT_STARTED,
    Failure,
    failure_with,
    losses_in,
    lost_failure,
)
from holdfast.task.data.guard_rules import GuardFound
from holdfast.task.data.records import SegmentRef
from holdfast.task.data.state import CLAIM, COMMIT, MOST_LOST, Claim, CommitRef, Described
from holdfast.task.data.wire import (
    Advanced,
    AdvanceInput,
    Closed,
    CloseInput,
    GuardInput,
    ToolInput,
    activity_key,
)
from holdfast.task.guardrails_due import Due
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.queries.pages import call_label, drop_last_page, keep_last_page, step_label
from holdfast.values.base import Value
from holdfast.values.messages import NOTHING

T = TypeVar("T")

IS_DONE: Callable[[asyncio.Task[Any]], bool] = operator.methodcaller("done")
QUICK = timedelta(minutes=2)
AT_ONCE = timedelta(seconds=2)
"""How long a workflow task may take longer for what it does on its own."""
LONGEST_TOOL = timedelta(days=30)
MOST_STARTS = 8
"""How often a call is scheduled again that is known not to have started."""
START_PAUSES = (1.0, 60.0)
"""The first and the longest pause before such a call is scheduled again, in seconds."""
PATIENT = RetryPolicy(maximum_interval=timedelta(seconds=30))
LOSSES = ("TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose")
"""The server's names for lost attempts. It does not repeat them where the task counts them."""

LOST_TOOL = LOSSES[:1]
"""The same of a tool, which is given 30 days. Each call's event has these names."""

LOST_SECONDS = 600.0
"""How long a step is tried again whose workers are lost. One that was suspended may use up any
number of attempts: the server gives it each until its polls have ended, after a minute or two."""

COUNTED = RetryPolicy(maximum_interval=timedelta(seconds=30), non_retryable_error_types=LOSSES)

COUNTING = RetryPolicy(maximum_interval=timedelta(seconds=60))
"""Of a step: the activity itself counts its attempts. The server cannot, since it would also count
attempts that a rate limit ended."""


async def quick(
    ledger: Ledger,
    name: str,
    given: Any,
    kind: type[T] | None,
    *,
    longest: timedelta = QUICK,
    summary: str = "",
) -> T:
    """Run an activity without side effects, a short one as a rule.

    Failures that may pass with time are retried without end. A lost attempt may have been lost
    because of the user's code that it runs: after MOST_LOST of them the last failure is raised.

    Raises:
        ActivityError: It failed, or was lost too often.
    """
    if isinstance(given, ToolInput):
        summary = tool_label(ledger, given)
    for lost in itertools.count(1):
        try:
            result: T = await workflow.execute_activity(
                name,
                given,
                result_type=kind,
                start_to_close_timeout=longest,
                heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
                retry_policy=COUNTED,
                summary=summary,
            )
        except ActivityError as error:
            # A certain failure is final here. A lost attempt says nothing about the code it ran.
            if not is_lost(error) or lost >= MOST_LOST:
                raise
        else:
            return result
    raise RuntimeError  # unreachable: the loop returns or raises


def tool_label(ledger: Ledger, given: ToolInput, *, short: bool = True) -> str:
    """Label an activity of a tool call by the call."""
    return call_label(given.call or ledger.at(given.n).calls[given.i], short=short)


def lost_dollars(error: BaseException, reserved: Decimal | None) -> Decimal:
    """Return the most that lost attempts of a step's model call can have cost, which has failed.

    Args:
        error: How its activity has failed; when all attempts were lost, no one says what they were
            for.
        reserved: Money that was reserved for the call; None without a budget in money.
    """
    if reserved is None or is_lost(error):
        return reserved or NOTHING
    cause = error.cause if isinstance(error, ActivityError) else None
    known = losses_in(cause.details) if isinstance(cause, ApplicationError) else None
    return NOTHING if known is None else min(known.dollars, reserved)


def is_lost(error: BaseException) -> bool:
    """Whether an attempt began, and its worker has not said how it ended."""
    match error.cause if isinstance(error, ActivityError) else None:
        case TemporalTimeout(type=TimeoutType.HEARTBEAT | TimeoutType.START_TO_CLOSE):
            return True
        case ApplicationError(type=failures.ACTIVITY_TIMEOUT):
            return True
        case _:
            return False


async def describe(ledger: Ledger) -> Described:
    """Ask the worker process for the agent's snapshot."""
    head = ledger.head
    return await quick(ledger, "describe", head, Described, summary=head.agent)


async def advance(ledger: Ledger, n: int, sent: AdvanceInput) -> Advanced:
    """Run an open step up to its next call that needs the task.

    The server starts it again until the activity itself gives up: after as many failed model calls
    as the agent allows (`AdvanceInput.attempts`), or when too many workers were lost. Then another
    activity follows, for LOST_SECONDS, and returns what the lost one has kept in the archive.

    Args:
        ledger: The task.
        n: The step.
        sent: The activity's input.
    """
    began = now()
    while True:
        try:
            return await _asking(ledger, n, "step", sent, Advanced, summary=step_label(ledger, n))
        except ActivityError as error:
            if not is_lost(error) or ledger.find(n) is None:
                raise
            # Before anything else: whoever runs the step again must find what is paid for.
            lost = activity_key(workflow.info().run_id, error.activity_id)
            ledger.tried_again(n, lost=lost)
            task = asyncio.current_task()
            if (task is not None and task.cancelling()) or now() - began > LOST_SECONDS:
                raise
        # The next activity finds what this one kept in the archive by `lost`, so it pays for
        # nothing that was answered.
        tried = ledger.at(n).tried if sent.stream else 0
        sent = sent.model_copy(update={"tried": tried, "lost": lost})


async def guard(ledger: Ledger, n: int, due: Due, *, now: float) -> GuardFound:
    """Run one guardrail on a step's input or output; it may ask a model itself.

    A lost worker is not a failed attempt, as in `advance`.
    """
    sent = GuardInput(step=ledger.advance_input(n, now=now), rule=due.rule, i=due.i)
    return await _asking(ledger, n, "guard", sent, GuardFound, summary=f"{due.rule.name}, step {n}")


async def _asking(
    ledger: Ledger, n: int, name: str, sent: Value, kind: type[T], *, summary: str
) -> T:
    """Run an activity of a step that asks a model, for as long as its agent allows."""
    described = ledger.s.described or Described(snapshot="")
    rules = described.rules(ledger.at(n).open.step.agent)
    found: T = await workflow.execute_activity(
        name,
        sent,
        result_type=kind,
        start_to_close_timeout=timedelta(seconds=rules.timeout + 60),
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=COUNTING,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
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
        summary=f"{len(ledger.log.entries)} entries",
    )
    return segment


async def close(ledger: Ledger, sent: CloseInput, *, again: bool) -> Closed:
    """Archive the whole task, and what its session is to get.

    Args:
        ledger: The task.
        sent: What it closes with.
        again: Whether an attempt has failed.
    """
    run = workflow.info().workflow_id, workflow.info().run_id
    if not workflow.unsafe.is_replaying():
        keep_last_page(ledger, *run)
    try:
        closed = None if sent.commit or again else await _close_here(sent)
        if closed is not None:
            return closed
        return await quick(ledger, "close", sent, Closed, summary=sent.status)
    finally:
        drop_last_page(*run)  # another process has stored it, or an attempt that came to no end


async def _close_here(sent: CloseInput) -> Closed | None:
    """Archive the task in this workflow task, which saves an activity and a workflow task.

    Only where no code of an AgentWorker has a say in what is kept: it may take its time.

    Returns:
        None when that was not possible, or took too long.
    """
    kind: Any = Closed | None
    try:
        found: Closed | None = await workflow.execute_local_activity(
            "close_here",
            sent.model_copy(update={"begun": now()}),
            result_type=kind,
            schedule_to_close_timeout=AT_ONCE,
            retry_policy=RetryPolicy(maximum_attempts=1),
            summary=sent.status,
        )
    except FailureError:  # an ActivityError; of one without an answer, in a replay its cause
        return None
    return found


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


async def leave_line(session_id: str, task_id: str) -> None:
    """Let the next task of a session have its turn, once this one has ended without a turn in it.

    If the session rests, no task waits; and the next one that comes sees that this one has ended.
    """
    with suppress(FailureError):
        gone = Claim(gone=(task_id,))
        await workflow.get_external_workflow_handle(session_id).signal(CLAIM, gone)


def failure_of(error: BaseException) -> Failure:
    """Return the failure that the error of an activity carries."""
    cause: BaseException = error
    if isinstance(error, ActivityError) and error.cause is not None:
        cause = error.cause
    match cause:
        case ApplicationError():
            return failure_with(cause.type, cause.message, cause.details)
        case TemporalTimeout():
            return lost_failure(error.activity_type if isinstance(error, ActivityError) else "")
        case _:
            return Failure(type=type(cause).__name__, message=str(cause))


def now() -> float:
    """Time of the current workflow task, in seconds since the epoch."""
    return round(workflow.time(), 3)


def time_left(deadline: float, *, now: float) -> timedelta:
    """Return how long to wait for a deadline, at least a millisecond.

    A wait of no time sets no timer, so the time of the workflow would not go on: at a deadline that
    is a fraction of a millisecond away, the workflow would wait again and again in one task.
    """
    return timedelta(seconds=max(deadline - now, 0.001))


def is_certain(error: ApplicationError) -> bool:
    """Whether a failure hides no effect."""
    return error.type == NOT_STARTED or CERTAIN in error.details


class Background:
    """Runs work next to the main loop, and keeps the first error that no one takes.

    Attributes:
        error: That error, if there is one.

    Only an activity's failure is a decision: it is in the history, so a replay sees it as well. Any
    other error may be this process's alone. If it decided about a command, a replay would decide
    otherwise, and the task could never go on. `AgentTask.run` raises it: the workflow task fails,
    and the server repeats it, in another process or once the code is mended. Nothing is lost.
    """

    def __init__(self) -> None:
        """Begin with no work."""
        self._tasks: list[asyncio.Task[None]] = []
        self.error: BaseException | None = None

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin work that takes the failures of its activities itself."""
        task = asyncio.create_task(work)
        task.add_done_callback(self.over)
        return task

    def keep(self, *works: Coroutine[Any, Any, None]) -> None:
        """Begin work that goes on until `cancel`."""
        self._tasks += map(self.begin, works)

    def cancel(self) -> None:
        """Cancel the work that goes on until then."""
        for task in self._tasks:
            task.cancel()

    def check(self) -> None:
        """Raise what any of the work has raised.

        Raises:
            RuntimeError: It did. A FailureError as it is would end the workflow.
        """
        if self.error is not None:
            raise RuntimeError(f"The task's workflow code failed: {self.error!r}") from self.error

    def over(self, task: asyncio.Task[Any], *, is_awaited: bool = False) -> None:
        """Keep the error of work that has ended; who awaits it takes an activity's failure."""
        if self.error is None and not task.cancelled():
            error = task.exception()
            is_taken = is_awaited and isinstance(error, FailureError)
            self.error = None if is_taken else error


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin work of a task whose caller takes its result, and the failures of its activities."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(workflow.instance().core.background.over, is_awaited=True))
    return task
