"""The activities in which a tool runs: `tool`, and `rejoin` for a call that outlived its run."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityCancellationType

from holdfast.task.data.calls import LongCall, Outcome
from holdfast.task.data.failures import AGAIN, NOT_STARTED
from holdfast.task.data.tool_policy import ToolPolicy
from holdfast.task.data.wire import ToolInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.tool_calls import drop_long, find_long
from holdfast.values.messages import ToolCall
from holdfast.workflows.activity_calls import (
    LONGEST_TOOL,
    LOSSES,
    MOST_LOST,
    MOST_STARTS,
    failure_of,
    is_lost,
    now,
    time_left,
)


async def run_tool(
    ledger: Ledger, n: int, i: int, edited: ToolCall | None, policy: ToolPolicy
) -> Outcome:
    """Run one call; schedule it again if it is known not to have started.

    A repeatable call whose worker was lost is scheduled again, too, but not for ever: the tool may
    be what ends the worker. A call that has run since before a rollover is awaited first.
    """
    long_call, branch = find_long(ledger, n, i), ledger.s.branch
    tried = long_call.tried if long_call is not None else 0
    starts, lost = 0, tried
    # The beginning is recorded before the activity is scheduled: what began without an outcome
    # counts as unknown. A call of an agent began when its child task was started.
    if long_call is None and not policy.agent:
        ledger.call_begins(n, i, now=now(), edited=edited.arguments if edited else "")
    while True:
        try:
            if long_call is not None:
                outcome = await _rejoin(ledger, long_call)
            else:
                given = ledger.tool_input(n, i, edited).model_copy(update={"tried": tried})
                outcome = await _once(ledger, given, policy)
        except ActivityError as error:
            tried += failure_of(error).type != NOT_STARTED
            if policy.repeatable and is_lost(error) and lost + 1 < MOST_LOST:
                lost += 1
                continue
            if starts >= MOST_STARTS or not _starts_again(error, policy):
                raise
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # cancelled before it began
                raise
        else:
            return outcome.model_copy(update={"attempts": outcome.attempts + tried})
        finally:
            long_call = None
            drop_long(ledger, branch, n, i)
        await workflow.sleep(min(2.0**starts, 60.0))
        starts += 1


def _starts_again(error: ActivityError, policy: ToolPolicy) -> bool:
    """Whether a call is scheduled again that has failed: it was not begun, or may be repeated."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return False
    return cause.type == NOT_STARTED or (policy.repeatable and AGAIN in cause.details)


async def _once(ledger: Ledger, given: ToolInput, policy: ToolPolicy) -> Outcome:
    outcome: Outcome = await workflow.execute_activity(
        "tool",
        given,
        result_type=Outcome,
        start_to_close_timeout=LONGEST_TOOL,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=RetryPolicy(
            maximum_attempts=0 if policy.repeatable else 1,
            maximum_interval=timedelta(seconds=60),
            non_retryable_error_types=LOSSES if policy.repeatable else None,
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
    return outcome


async def _rejoin(ledger: Ledger, call: LongCall) -> Outcome:
    """Wait for a call that was begun in an earlier run of the task.

    The activity does nothing but stand for the call at the server: the process that runs the tool
    shows its signs of life and gives its outcome, by the activity's id.

    Raises:
        ActivityError: As the activity `tool`.
    """
    outcome: Outcome = await workflow.execute_activity(
        "rejoin",
        result_type=Outcome,
        activity_id=call.id,
        start_to_close_timeout=time_left(call.started + LONGEST_TOOL.total_seconds(), now=now()),
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        # A worker process that does not know the activity says so, and another one takes it.
        retry_policy=RetryPolicy(non_retryable_error_types=LOSSES),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
    return outcome
