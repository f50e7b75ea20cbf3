"""Calls that go on while their task continues as new, as its runs see them."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from holdfast.task.data.long_calls import LongCall
from holdfast.task.data.records import Outcome
from holdfast.task.ledger.ledger import Ledger
from holdfast.workflows.activity_calls import LONGEST_TOOL, LOSSES, now, time_left


def add_long(ledger: Ledger, call: LongCall) -> None:
    """Note that the task may continue as new while a call runs."""
    kept = _others(ledger, call.branch, call.n, call.i)
    ledger.change(long_calls=(*kept, call.model_copy(update={"secret": ""})))


def find_long(ledger: Ledger, n: int, i: int) -> LongCall | None:
    """Return a call with which the task may continue as new, or has."""
    return next((call for call in ledger.s.long_calls if (call.n, call.i) == (n, i)), None)


def drop_long(ledger: Ledger, branch: int, n: int, i: int) -> None:
    """Note that an attempt of a call is over."""
    others = _others(ledger, branch, n, i)
    if len(others) < len(ledger.s.long_calls):
        ledger.change(long_calls=others)


def _others(ledger: Ledger, *place: int) -> tuple[LongCall, ...]:
    return tuple(c for c in ledger.s.long_calls if (c.branch, c.n, c.i) != place)


async def rejoin(ledger: Ledger, call: LongCall) -> Outcome:
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
