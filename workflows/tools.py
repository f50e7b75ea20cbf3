"""Tool calls as the task runs them: approved, run, and asked about when a worker was lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutType,
    is_cancelled_exception,
)
from temporalio.exceptions import (
    TimeoutError as TemporalTimeout,
)
from temporalio.workflow import ActivityCancellationType

from holdfast import approvals
from holdfast.ledger import Ledger
from holdfast.messages import ToolCall
from holdfast.records import Failure, Outcome
from holdfast.tool_policy import ToolPolicy
from holdfast.wire import Probed, ToolInput
from holdfast.workflows.calls import LONGEST_TOOL, LOST, PATIENT, QUICK, failure_of, now
from holdfast.workflows.outcomes import cut_text, lost_text, unknown_tool

T = TypeVar("T")

NOT_STARTED = "NotStarted"
"""Type of the failure by which a tool activity says that the tool was not begun."""

MOST_STARTS = 8


async def run_tools(ledger: Ledger, running: set[int]) -> Failure | None:
    """Take the open calls as far as they go without a person; return the first failure, if any.

    Calls run all at once. Outcomes are recorded as they come, so that a call that is done is never
    repeated because of a sibling that failed.

    Args:
        ledger: The task.
        running: Filled with the positions of calls that are being run; an undo that cuts them off
            must count them as unknown.
    """
    taken = await asyncio.gather(  # all end before an error is raised: none goes on unseen
        *(_take(ledger, i, running) for i in ready_calls(ledger)), return_exceptions=True
    )
    for result in taken:
        if isinstance(result, BaseException):
            raise result
    return next((result for result in taken if isinstance(result, Failure)), None)


async def ask_about_cut(ledger: Ledger, cut: Iterable[int]) -> None:
    """Ask about calls that were cut off by an undo that then did not come to its end."""
    described = ledger.s.described
    for i in cut:
        current = ledger.s.current
        if current is None or described is None or i not in ledger.missing_calls():
            continue
        call = current.calls[i]
        policy = described.policies[call.name]
        if not policy.repeatable:
            await _ask_about(ledger, i, policy, cut_text(call))


def ready_calls(ledger: Ledger) -> list[int]:
    """List the open calls that can go on now: those that no person has to decide on first."""
    if ledger.s.current is None:
        return []
    ready: list[int] = []
    for i in ledger.missing_calls():
        approval = approvals.latest(ledger, i)
        if approval is None or approval.status != "open":
            ready.append(i)
    return ready


async def _take(ledger: Ledger, i: int, running: set[int]) -> Failure | None:
    """Take one call to its outcome, or to a person."""
    current, described = ledger.s.current, ledger.s.described
    if current is None or described is None:
        return None
    call = current.calls[i]
    place = (current.n, ledger.s.branch)
    policy = described.policies.get(call.name)
    if policy is None:
        if ledger.given.head.dialect.unknown_tool == "raise":
            text = f"Tool {call.name} not found in agent {ledger.given.head.agent}"
            return Failure(type="ModelBehaviorError", message=text)
        ledger.outcome(i, unknown_tool(call, list(described.policies)))
        return None
    try:
        if not await _may_run(ledger, i, policy):
            return None
        approval = approvals.latest(ledger, i)
        edited = approvals.effective_call(approval, call) if approval else call
        running.add(i)  # and it stays there when the call is cut off
        outcome = await _tool(ledger, i, None if edited == call else edited, policy)
        if _is_left(ledger, place, i):
            return None
        if edited != call:
            outcome = outcome.model_copy(update={"edited": edited.arguments})
        ledger.outcome(i, outcome)
        approvals.settle(ledger, i, now=now())
        running.discard(i)
    except ActivityError as error:
        if is_cancelled_exception(error) or _is_left(ledger, place, i):
            raise
        running.discard(i)
        if not _may_have_happened(error, policy):
            return failure_of(error)
        failure = failure_of(error)
        text = failure.message if failure.type == LOST else lost_text(call)
        await _ask_about(ledger, i, policy, text)
    return None


def _is_left(ledger: Ledger, place: tuple[int, int], i: int) -> bool:
    """Whether a call that did not heed its cancellation has outlived its step, or its question."""
    current = ledger.s.current
    if current is None or (current.n, ledger.s.branch) != place:
        return True
    return i not in ledger.missing_calls()


async def _may_run(ledger: Ledger, i: int, policy: ToolPolicy) -> bool:
    """Whether a call may run now; asks a person where the tool wants it."""
    approval = approvals.latest(ledger, i)
    if approval is not None:
        if approval.status == "checking":
            edited = approvals.effective_call(approval, _call(ledger, i))
            refused = await _quick(ledger, "check", ledger.tool_input(i, edited), str)
            approvals.checked(ledger, approval, refused, now=now())
            return not refused
        return approval.status == "approved"
    current = ledger.s.current
    if policy.needs_approval == "no" or (current is not None and i in current.cleared):
        return True
    if policy.needs_approval == "ask" and not await _quick(
        ledger, "gate", ledger.tool_input(i), bool
    ):
        ledger.clear(i)
        return True
    approvals.ask(ledger, i, "tool", now=now(), seconds=policy.approval_seconds)
    return False


async def _ask_about(ledger: Ledger, i: int, policy: ToolPolicy, text: str) -> None:
    """Find out about a call that may have happened: by its probe, else by a person."""
    call, approval = _call(ledger, i), approvals.latest(ledger, i)
    ran = approvals.effective_call(approval, call) if approval else call
    edited = None if ran == call else ran
    if policy.has_probe:
        try:
            probed = await _quick(ledger, "probe", ledger.tool_input(i, edited), Probed)
        except ActivityError as error:
            text += f" Its probe failed: {failure_of(error).message}"
        else:
            body = {"tool": call.name, "happened": probed.happened}
            ledger.note("probed", now=now(), body=body)
            if probed.happened:
                known = Outcome(content=probed.content, edited=edited.arguments if edited else "")
                ledger.outcome(i, known)
            else:
                ledger.clear(i)  # it did not happen, so it is run: it was approved before
            return
    approvals.ask(ledger, i, "unknown", now=now(), text=text, call=ran)


async def _tool(ledger: Ledger, i: int, edited: ToolCall | None, policy: ToolPolicy) -> Outcome:
    """Run one call; one that is known not to have started is scheduled again."""
    for attempt in itertools.count():
        try:
            return await _tool_once(ledger, i, edited, policy)
        except ActivityError as error:
            if attempt >= MOST_STARTS or failure_of(error).type != NOT_STARTED:
                raise
        await workflow.sleep(min(2.0**attempt, 60.0))
    raise RuntimeError  # unreachable: the loop returns or raises


async def _tool_once(
    ledger: Ledger, i: int, edited: ToolCall | None, policy: ToolPolicy
) -> Outcome:
    outcome: Outcome = await workflow.execute_activity(
        "tool",
        ledger.tool_input(i, edited),
        result_type=Outcome,
        start_to_close_timeout=LONGEST_TOOL,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=RetryPolicy(
            maximum_attempts=0 if policy.repeatable else 1, maximum_interval=timedelta(seconds=60)
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
    return outcome


async def _quick(ledger: Ledger, name: str, given: ToolInput, kind: type[T]) -> T:
    """Run a short activity that changes nothing in the world."""
    result: T = await workflow.execute_activity(
        name,
        given,
        result_type=kind,
        start_to_close_timeout=QUICK,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=PATIENT,
    )
    return result


def _call(ledger: Ledger, i: int) -> ToolCall:
    if ledger.s.current is None:
        msg = "no step is open"
        raise RuntimeError(msg)
    return ledger.s.current.calls[i]


def _may_have_happened(error: ActivityError, policy: ToolPolicy) -> bool:
    """Whether the tool was started and nobody knows how it ended."""
    if policy.repeatable:
        return False
    match error.cause:
        case TemporalTimeout(type=TimeoutType.HEARTBEAT | TimeoutType.START_TO_CLOSE):
            return True
        case ApplicationError(type=kind):
            return kind == LOST
        case _:
            return False
