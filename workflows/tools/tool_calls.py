"""Tool calls as the task runs them: approved, run, and asked about when a worker was lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from holdfast.task import approvals
from holdfast.task.data.children import Nesting
from holdfast.task.data.records import Failure, OpenState, Outcome
from holdfast.task.data.tool_failures import (
    AGAIN,
    INTERRUPTED,
    NOT_REPEATABLE,
    NOT_STARTED,
    TIMED_OUT,
    is_certain,
)
from holdfast.task.data.tool_policy import ToolPolicy
from holdfast.task.data.wire import Probed, ToolInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.refusals import is_verdict
from holdfast.values.messages import ToolCall
from holdfast.workflows.activity_calls import (
    LONGEST_TOOL,
    LOSSES,
    MOST_LOST,
    MOST_STARTS,
    failure_of,
    is_lost,
    now,
    quick,
)
from holdfast.workflows.children.children import Children
from holdfast.workflows.tools.call_outcomes import cut_text, lost_text, not_known_text, unknown_tool
from holdfast.workflows.tools.long_calls import drop_long, find_long, rejoin

T = TypeVar("T")

BLOCKED = "Blocked"
"""Type of the failure of a call that blocks the event loop of its worker."""

OF_CALLS = frozenset({"tool", "rejoin"})
"""Types of the activities in which a tool runs."""

MOST_AT_ONCE = 300
"""Most calls of a task that are taken further at the same time; the others follow.

The server fails every workflow task that would have more than 2,000 activities on the way. Tasks in
flight depend on the number.
"""

NOT_HAPPENED = "It did not take effect: so says the probe of its tool."

MOST_CHILDREN_AT_ONCE = 1000
"""Most tasks that the calls of one step are at the same time; the server allows 2,000 of a task."""

Running = set[tuple[int, int]]
"""The (step, position) of the calls that are being run."""


class Room:
    """Room for the calls that a task takes further at the same time, over all its steps.

    Attributes:
        taken: How many there are.
    """

    def __init__(self) -> None:
        """Begin with all of it."""
        self.taken = 0

    @property
    def left(self) -> int:
        """How many more may join them."""
        return max(MOST_AT_ONCE - self.taken, 0)


async def run_tools(
    ledger: Ledger,
    n: int,
    running: Running,
    children: Children,
    *,
    room: Room,
    leaves: Callable[[], bool],
) -> Failure | None:
    """Take a step's open calls as far as they go without a person; return their first failure.

    First in the order of the calls. As many run at once as the task has room for and the run
    allows; one that is approved meanwhile joins them. Outcomes are recorded as they come, so that a
    call that is done is never repeated because of a sibling that failed.

    Args:
        ledger: The task.
        n: The step.
        running: Filled with the calls that are being run; an undo that cuts them off must count
            them as unknown.
        children: Starts the tasks that calls of agents are.
        room: Room for calls, shared with the steps beside this one.
        leaves: Whether no further call may begin now: the task is about to continue as new.
    """
    taken = _Taken(ledger, n, running, children, room)

    def fresh(most: int) -> list[int]:
        if taken.ended or leaves():
            return []
        return ready_calls(ledger, n, taken.tasks, most=most)

    def is_over() -> bool:
        return not taken.tasks and not fresh(1)

    def has_news() -> bool:
        return taken.has_ended or bool(room.left and fresh(1)) or is_over()

    try:
        taken.take(call.i for call in ledger.s.long_calls if call.n == n)  # they run already
        while True:
            taken.take(fresh(room.left))
            if is_over():  # all end before an error is raised: none goes on unseen
                break
            await workflow.wait_condition(has_news)
            taken.settle()
    except asyncio.CancelledError:  # not `finally`: an evicted task may await nothing
        await taken.cancel()
        raise
    in_order = [taken.ended[i] for i in sorted(taken.ended)]
    for result in in_order:
        if isinstance(result, BaseException):
            raise result
    return next((result for result in in_order if isinstance(result, Failure)), None)


class _Taken:
    """The calls of a step that are being taken further.

    Attributes:
        tasks: The work on each, by its position.
        ended: What stands in the way of those that have ended, if anything does.
    """

    def __init__(
        self, ledger: Ledger, n: int, running: Running, children: Children, room: Room
    ) -> None:
        self.tasks: dict[int, asyncio.Task[Failure | None]] = {}
        self.ended: dict[int, Failure | BaseException] = {**ledger.at(n).stops}
        self._ledger, self._n = ledger, n
        self._running, self._children, self._room = running, children, room

    @property
    def has_ended(self) -> bool:
        """Whether one of them has ended."""
        return any(call.done() for call in self.tasks.values())

    def take(self, positions: Iterable[int]) -> None:
        """Take calls further."""
        for i in positions:
            taking = _take(self._ledger, self._n, i, self._running, self._children)
            self.tasks[i] = asyncio.create_task(taking)
            self._room.taken += 1

    def settle(self) -> None:
        """Take out those that have ended; a later run of the task must know of what stops it."""
        done = {i: self.tasks.pop(i) for i in [i for i, c in self.tasks.items() if c.done()]}
        self._room.taken -= len(done)
        found = {i: _came_to(call) for i, call in done.items()}
        self.ended |= {i: each for i, each in found.items() if each is not None}
        stops = {
            i: each if isinstance(each, Failure) else failure_of(each)
            for i, each in self.ended.items()
        }
        self._ledger.stop(self._n, stops if self.tasks else {})

    async def cancel(self) -> None:
        """Cancel them all, and wait for their ends."""
        for call in self.tasks.values():
            call.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self._room.taken -= len(self.tasks)
        self._ledger.stop(self._n, {})


def _came_to(call: asyncio.Task[Failure | None]) -> Failure | BaseException | None:
    """Return what stands in the way of a call that has ended, if anything does."""
    if call.cancelled():
        return asyncio.CancelledError()
    return call.exception() or call.result()


async def ask_about_cut(ledger: Ledger, cut: Iterable[tuple[int, int]]) -> None:
    """Ask about calls that were cut off by an undo that then did not come to its end."""
    described = ledger.s.described
    for n, i in cut:
        current = ledger.find(n)
        if current is None or described is None or not ledger.is_missing(n, i):
            continue
        call = current.calls[i]
        policy = described.rules(current.open.step.agent).policies[call.name]
        if not policy.repeatable:
            await _ask_about(ledger, n, i, policy, cut_text(call))


def ready_calls(
    ledger: Ledger, n: int, taking: Collection[int] = (), *, most: int = MOST_AT_ONCE
) -> list[int]:
    """List a step's open calls that can go on now.

    No person has to decide on them first, and the run allows as many at once, calls of agents in
    progress included.

    Args:
        ledger: The task.
        n: The step.
        taking: Positions of the calls that go on already; they are not listed.
        most: Most that are listed.
    """
    if ledger.find(n) is None:
        return []
    nested = _nested(ledger, n)
    most = min(most, MOST_CHILDREN_AT_ONCE - nested)
    allowed = ledger.given.head.run.tool_concurrency
    if allowed:
        most = min(most, allowed - len(taking) - nested)
    can_go = (i for i in ledger.missing_calls(n) if i not in taking and _can_go(ledger, n, i))
    return list(itertools.islice(can_go, max(most, 0)))


def _can_go(ledger: Ledger, n: int, i: int) -> bool:
    """Whether an open call waits neither for a person nor for the task that it is."""
    child = ledger.child(n, i)
    if child and ledger.s.children[child].is_awaited:
        return False
    approval = approvals.latest(ledger, n, i)
    return approval is None or approval.status != "open"


def _nested(ledger: Ledger, n: int) -> int:
    """Count the open calls of a step whose tasks are in progress."""
    children = [ledger.child(n, i) for i in ledger.missing_calls(n)] if ledger.s.children else []
    return sum(bool(child) and ledger.s.children[child].is_awaited for child in children)


def awaits_children(ledger: Ledger, n: int) -> bool:
    """Whether a step waits for a task that one of its open calls is."""
    return _nested(ledger, n) > 0


async def _take(
    ledger: Ledger, n: int, i: int, running: Running, children: Children
) -> Failure | None:
    """Take one call to its outcome, or to a person."""
    current, described = ledger.find(n), ledger.s.described
    if current is None or described is None:
        return None
    call, branch = current.calls[i], ledger.s.branch
    agent = current.open.step.agent
    policies = described.rules(agent).policies
    policy = policies.get(call.name)
    if policy is None:
        if ledger.given.head.dialect.unknown_tool == "raise":
            text = f"Tool {call.name} not found in agent {agent or ledger.given.head.agent}"
            return Failure(type="ModelBehaviorError", message=text)
        ledger.outcome(n, i, unknown_tool(call, list(policies)))
        return None
    try:
        runs = find_long(ledger, n, i) is not None
        if not runs and not await _may_run(ledger, n, i, policy):
            return _stopped_by(ledger, n, i)
        approval = approvals.latest(ledger, n, i)
        edited = approvals.effective_call(approval, call) if approval else call
        child = ledger.s.children.get(ledger.child(n, i)) if policy.agent else None
        if policy.agent and not (child and child.is_over):
            if child is not None:
                return children.take(n, i)
            return await _nest(ledger, n, i, None if edited == call else edited, children)
        running.add((n, i))  # and it stays there when the call is cut off
        outcome = await _tool(ledger, n, i, None if edited == call else edited, policy)
        if _is_left(ledger, branch, n, i):
            return None
        if edited != call:
            outcome = outcome.model_copy(update={"edited": edited.arguments})
        children.done(n, i, outcome)
        ledger.outcome(n, i, outcome)
        approvals.settle(ledger, n, i, now=now())
        running.discard((n, i))
        return outcome.failure
    except ActivityError as error:
        if is_cancelled_exception(error) or _is_left(ledger, branch, n, i):
            raise
        running.discard((n, i))
        failure = failure_of(error)
        if not _may_have_happened(error, policy):
            _record_failure(ledger, n, i, error, failure, reads=policy.effect == "read")
            return failure
        why = _unknown_text(error, call, policy)
        return await _ask_about(ledger, n, i, policy, why, failure=failure)


async def _nest(
    ledger: Ledger, n: int, i: int, edited: ToolCall | None, children: Children
) -> Failure | None:
    """Start the task that a call of an agent is, unless the call has its outcome before that."""
    branch, given = ledger.s.branch, ledger.tool_input(n, i, edited)
    plan = await quick(ledger, "nest", given, Nesting, longest=LONGEST_TOOL)
    if _is_left(ledger, branch, n, i):
        return None
    said = edited.arguments if edited is not None else ""
    if plan.outcome is None:
        child = children.start(n, i, plan)
        ledger.call_begins(n, i, now=now(), edited=said, child=child)
        return None
    changed = {"edited": said} if said else {}
    ledger.outcome(n, i, plan.outcome.model_copy(update=changed))
    return plan.outcome.failure


def _record_failure(
    ledger: Ledger, n: int, i: int, error: ActivityError, failure: Failure, *, reads: bool
) -> None:
    """Record of a call that stops its step that it took no effect, if that is certain.

    It may be begun again. Of one that was begun before, the last attempt may say nothing.

    Args:
        ledger: The task.
        n: The step.
        i: Position of the call.
        error: The error of its activity.
        failure: The same, as data.
        reads: Whether the tool changes nothing in the world.
    """
    is_known = isinstance(error.cause, ApplicationError) and is_certain(error.cause)
    if not (reads or is_known):
        return
    if failure.type == NOT_STARTED:
        ledger.call_not_begun(n, i)
    elif error.activity_type in OF_CALLS:
        ledger.call_failed(n, i, failure.message, now=now())


def _is_left(ledger: Ledger, branch: int, n: int, i: int) -> bool:
    """Whether a call that did not heed its cancellation has outlived its step, or its question."""
    if ledger.find(n) is None or ledger.s.branch != branch:
        return True
    return not ledger.is_missing(n, i)


async def _may_run(ledger: Ledger, n: int, i: int, policy: ToolPolicy) -> bool:
    """Whether a call may run now; asks a person where the tool wants it."""
    approval = approvals.latest(ledger, n, i)
    if approval is not None and approval.status != "closed":  # as by an end that failed: ask anew
        if approval.status == "checking":
            edited = approvals.effective_call(approval, _call(ledger, n, i))
            refused = await quick(ledger, "check", ledger.tool_input(n, i, edited), str)
            approvals.checked(ledger, approval, refused, now=now())
            return not refused
        if approval.status == "rejected":
            text = await quick(ledger, "rejected", ledger.tool_input(n, i), str)
            approvals.rejected(ledger, n, i, text)
        return approval.status == "approved"
    current = ledger.find(n)
    if policy.needs_approval == "no" or (current is not None and i in current.cleared):
        return True
    if policy.needs_approval == "ask" and not await quick(
        ledger, "gate", ledger.tool_input(n, i), bool
    ):
        ledger.clear(n, i)
        return True
    if approvals.stands(ledger, n, i, now=now()):  # a rejection may still have to be worded
        return ledger.is_missing(n, i) and await _may_run(ledger, n, i, policy)
    if policy.guarded and ledger.given.head.run.guards_before_approval:
        stopped = await quick(ledger, "screen", ledger.tool_input(n, i), Outcome)
        if stopped != Outcome():
            ledger.outcome(n, i, stopped)
            return False
    approvals.ask(ledger, n, i, "tool", now=now(), seconds=policy.approval_seconds)
    return False


def verdict_of_calls(current: OpenState) -> Failure | None:
    """Return the verdict that an open call of a step has ended with, the first in their order.

    It stands until it is heeded: a sibling may have stopped the step before, or an undo that was
    then refused.
    """
    failures = (current.outcomes[i].failure for i in sorted(current.outcomes))
    return next((failure for failure in failures if is_verdict(failure)), None)


def _stopped_by(ledger: Ledger, n: int, i: int) -> Failure | None:
    """Return why a call that is not run stops its step: a guardrail saw it before any person."""
    current = ledger.find(n)
    outcome = current.outcomes.get(i) if current is not None else None
    return outcome.failure if outcome is not None else None


async def _ask_about(
    ledger: Ledger,
    n: int,
    i: int,
    policy: ToolPolicy,
    text: str,
    *,
    failure: Failure | None = None,
) -> Failure | None:
    """Find out about a call that may have happened: by its probe, else by a person.

    Args:
        ledger: The task.
        n: The step.
        i: Position of the call.
        policy: The rules of its tool.
        text: What is known, for a person.
        failure: How its activity failed, if it did.

    Returns:
        Why the step stops, if the call is now known not to have happened.
    """
    call, approval = _call(ledger, n, i), approvals.latest(ledger, n, i)
    ran = approvals.effective_call(approval, call) if approval else call
    edited = None if ran == call else ran
    if policy.has_probe:
        try:
            probed = await quick(ledger, "probe", ledger.tool_input(n, i, edited), Probed)
        except ActivityError as error:
            text += f" Its probe failed: {failure_of(error).message}"
        else:
            body = {"tool": call.name, "happened": probed.happened}
            ledger.note("probed", now=now(), body=body)
            if probed.happened:
                known = Outcome(content=probed.content, edited=edited.arguments if edited else "")
                ledger.outcome(n, i, known)
            elif failure is not None and failure.type == TIMED_OUT:
                return _timed_out(ledger, n, i, policy, failure)
            else:
                ledger.call_failed(n, i, NOT_HAPPENED, now=now())
                ledger.clear(n, i)  # it did not happen, so it is run: it was approved before
            return None
    approvals.ask(ledger, n, i, "unknown", now=now(), text=text, call=ran)
    return None


def _timed_out(
    ledger: Ledger, n: int, i: int, policy: ToolPolicy, failure: Failure
) -> Failure | None:
    """End a call that took too long and has not happened: another run might take as long."""
    if policy.timeout_behavior == "raise_exception":
        ledger.call_failed(n, i, failure.message, now=now())
        return failure
    ledger.outcome(n, i, Outcome(content=failure.message, is_error=True, status="failed"))
    return None


async def _tool(
    ledger: Ledger, n: int, i: int, edited: ToolCall | None, policy: ToolPolicy
) -> Outcome:
    """Run one call; one that is known not to have started is scheduled again.

    So is one that may be repeated and whose worker was lost, but not for ever: the tool may be what
    ends the worker. A call that runs since before the task continued as new is waited for first.
    """
    long_call, branch = find_long(ledger, n, i), ledger.s.branch
    tried = long_call.tried if long_call is not None else 0
    starts, lost = 0, tried
    if long_call is None and not policy.agent:  # of those the task itself was begun before
        ledger.call_begins(n, i, now=now(), edited=edited.arguments if edited else "")
    while True:
        try:
            if long_call is not None:
                outcome = await rejoin(ledger, long_call)
            else:
                given = ledger.tool_input(n, i, edited).model_copy(update={"tried": tried})
                outcome = await _tool_once(ledger, given, policy)
        except ActivityError as error:
            tried += failure_of(error).type != NOT_STARTED
            if policy.repeatable and is_lost(error) and lost + 1 < MOST_LOST:
                lost += 1
                continue
            if starts >= MOST_STARTS or not _starts_again(error, policy):
                raise
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # it was not begun, and is not to be
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


async def _tool_once(ledger: Ledger, given: ToolInput, policy: ToolPolicy) -> Outcome:
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


def _call(ledger: Ledger, n: int, i: int) -> ToolCall:
    return ledger.at(n).calls[i]


def _may_have_happened(error: ActivityError, policy: ToolPolicy) -> bool:
    """Whether a call may have taken effect although its activity failed.

    Whatever the failure is, one that is new to this code too, unless it is known to hide none. A
    call that may be repeated is asked about when it has ended, or blocked, its worker too often.
    """
    if error.activity_type not in OF_CALLS:  # what is asked about a call stands before it
        return False
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type in (BLOCKED, NOT_REPEATABLE):
        return True
    if not policy.may_have_happened:
        return is_lost(error)
    return not (isinstance(cause, ApplicationError) and is_certain(cause))


def _unknown_text(error: ActivityError, call: ToolCall, policy: ToolPolicy) -> str:
    """Say to a person why it is not known whether a call took effect."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return lost_text(call, MOST_LOST if policy.repeatable else 1)
    if cause.type in (INTERRUPTED, BLOCKED):
        return cause.message
    return not_known_text(cause.message)
