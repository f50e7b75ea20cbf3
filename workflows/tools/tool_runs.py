"""How the calls of a step run: their tools are found, they go on side by side, each has an outcome.

A tool runs in the activity `tool`, or in `rejoin` when the call outlived its run. The task
words the outcome when nothing ran, or when it is not known whether something did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from holdfast.task import waits
from holdfast.task.data.calls import Called, LongCall, Outcome
from holdfast.task.data.failures import AGAIN, NOT_STARTED, Failure
from holdfast.task.data.head import ToolPolicy
from holdfast.task.data.state import MOST_LOST
from holdfast.task.data.wire import ToolInput, ToolsInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.queries.pages import call_label
from holdfast.task.tool_calls import (
    Call,
    Room,
    drop_long,
    find_long,
    that_may_run,
    tool_to_find,
    tools_to_find,
)
from holdfast.values.base import pause_of
from holdfast.values.messages import ToolCall
from holdfast.workflows.activity_calls import (
    LONGEST_TOOL,
    LOST_TOOL,
    MOST_STARTS,
    START_PAUSES,
    begin,
    failure_of,
    is_lost,
    now,
    quick,
    time_left,
    tool_label,
)

Further = Callable[[Call], Coroutine[Any, Any, Failure | None]]
"""Takes a call further, and returns why its step stops, if it does."""


@dataclass(eq=False)
class CallsTaken:
    """The calls of a step that are being taken further.

    Attributes:
        further: Takes one call further.
        ledger: The task.
        n: The step.
        room: Room for calls, shared by all steps.
        ended: Why the step stops, or the error, for calls that ended so.
        tasks: The work on each, by its position.
        found: Positions of calls that were looked up before any began, and could run then.
    """

    further: Further
    ledger: Ledger
    n: int
    room: Room
    ended: dict[int, Failure | BaseException]
    tasks: dict[int, asyncio.Task[Failure | None]] = field(
        default_factory=dict[int, "asyncio.Task[Failure | None]"]
    )
    found: set[int] = field(default_factory=set[int])

    def take(self, positions: Iterable[int]) -> None:
        """Take calls further."""
        for i in positions:
            self.tasks[i] = begin(self.further(Call(self.ledger, self.n, i)))
            self.room.taken += 1

    def settle(self) -> None:
        """Take out ended calls, and record what stops the step for a later run."""
        for i, call in [*self.tasks.items()]:
            if not call.done():
                continue
            # In the same activation as the calls' ends: `lets_go` compares this room with the long
            # calls.
            self.room.taken -= 1
            del self.tasks[i]
            error = asyncio.CancelledError() if call.cancelled() else call.exception()
            end = error or call.result()
            if end is not None:
                self.ended[i] = end
        if self.ended:
            self._record()

    def stop(self, i: int, failure: Failure) -> None:
        """Let no further call begin: the step stops with a call that has not begun."""
        self.ended[i] = failure
        self._record()

    def failure(self) -> Failure | None:
        """Return the first failure of calls that have ended, once all have; raise an error first.

        In the order of the calls, not of their ends: a replay and a later run name the same one.
        """
        in_order = [self.ended[i] for i in sorted(self.ended)]
        for result in in_order:
            if isinstance(result, BaseException):
                raise result
        return next((result for result in in_order if isinstance(result, Failure)), None)

    def _record(self) -> None:
        stops: dict[int, Failure] = {}
        if self.tasks:
            for i, each in self.ended.items():
                stops[i] = each if isinstance(each, Failure) else failure_of(each)
        self.ledger.calls.stop(self.n, stops)

    async def cancel(self) -> None:
        """Cancel them all, and wait for their ends."""
        for call in self.tasks.values():
            call.cancel()
        # Each may still record an outcome while it is cancelled. Only then is the room given back.
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self.room.taken -= len(self.tasks)
        self.ledger.calls.stop(self.n, {})


async def may_begin(ledger: Ledger, n: int, ready: Sequence[int], taken: CallsTaken) -> bool:
    """Return whether calls may begin as they are; else all of their answer are looked up.

    Where the tool of one is lost, none begins and the step stops, or the model reads of it.

    Args:
        ledger: The task.
        n: The step.
        ready: Positions of the calls.
        taken: The calls that have begun.

    Raises:
        ActivityError: The look-up was cancelled.
    """
    given = tools_to_find(ledger, n, ready, begun=taken.tasks, found=taken.found)
    if given is None:
        return True
    may_run = that_may_run(ledger, given)
    taken.room.taken += 1  # the task does not continue as new meanwhile
    try:
        lost = await find_tools(ledger, given)
    finally:
        taken.room.taken -= 1
    if isinstance(lost, Failure):
        # A person may have rejected the call meanwhile that cannot be made.
        if _wanted(ledger, n, ready, taken) == given:
            taken.stop(given.calls[0].i if given.calls else ready[0], lost)
        return False
    for i, text in lost.items():
        if not Call(ledger, n, i).is_left:
            told = Outcome(content=text, is_error=True, status="failed", attempts=0)
            ledger.calls.outcome(n, i, told)
    taken.found |= may_run
    return False


def _wanted(ledger: Ledger, n: int, ready: Sequence[int], taken: CallsTaken) -> ToolsInput | None:
    if ledger.find(n) is None:
        return None
    left = [i for i in ready if ledger.calls.is_missing(n, i)]
    return tools_to_find(ledger, n, left, begun=taken.tasks, found=taken.found)


async def find_tools(ledger: Ledger, given: ToolsInput) -> dict[int, str] | Failure:
    """Look for the tools of calls.

    Returns:
        Position of a call without a tool to what the model reads of it, as the run wants it; or the
        failure of the first call that cannot be made.

    Raises:
        ActivityError: It was cancelled.
    """
    try:
        summary = f"tools of step {given.n}"
        return await quick(ledger, "find_tools", given, dict[int, str], summary=summary)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return failure_of(error)


async def tool_is_lost(ledger: Ledger, call: Call) -> Failure | None:
    """Return the failure of a call whose tool is lost, if it is."""
    calls = (tool_to_find(ledger, call),)
    given = ToolsInput(n=call.n, calls=calls, agent=call.agent, head=ledger.changed_head)
    lost = await find_tools(ledger, given)
    return lost if isinstance(lost, Failure) else None


def unknown_tool(call: ToolCall, known: list[str]) -> Outcome:
    """Return the result of a call of a tool that does not exist."""
    names = ", ".join(sorted(known)) or "none"
    text = f"Tool with name {call.name} not found, please double check. Tools: {names}."
    if call.name in known:
        text = f"No {call.kind or 'function_call'} is a call of tool {call.name}. Tools: {names}."
    return Outcome(content=text, is_error=True, status="failed", attempts=0)


def too_deep(call: ToolCall, depth: int) -> Outcome:
    """Return the result of a call of an agent in a task that is nested as deep as it may be."""
    text = (
        f"Agent {call.name!r} was not called: this is a call of a call already, {depth} deep, and"
        " no further one is run. Answer with what is known here."
    )
    return Outcome(content=text, is_error=True, status="failed", attempts=0)


def lost_text(call: ToolCall, times: int) -> str:
    """Say that workers were lost inside a call that may or may not have taken effect."""
    if times > 1:
        return (
            f"Tool {call.name!r} was run {times} times, and each time its worker was lost. The tool"
            " may be what ends the worker. It is not known whether it took effect."
        )
    return not_known_text(f"The worker was lost while tool {call.name!r} ran.")


def cut_text(call: ToolCall) -> str:
    """Say that a call was cancelled and may or may not have taken effect."""
    return not_known_text(f"Tool {call.name!r} was cancelled while it ran.")


def not_known_text(why: str) -> str:
    """Say that a call may or may not have taken effect."""
    return f"{why} It is not known whether it took effect, and it must not be repeated blindly."


def leave_calls(ledger: Ledger, running: Iterable[tuple[int, int]], *, at: float) -> None:
    """Leave the calls of a task that ends, and withdraw what a person was asked.

    Calls that were running, or about which a person was asked, are recorded as unknown. A call that
    waits for something outside is recorded with what is known of it.

    Args:
        ledger: The task; its steps are not being worked on any more.
        running: (step, position) of the calls that were running when the steps were stopped.
        at: Time, seconds since the epoch.
    """
    cut: set[tuple[int, int]] = set()
    if ledger.s.opens:
        asked = [a for a in approvals.pending(ledger) if a.kind == "unknown"]
        cut = {*running, *((a.n, a.i) for a in asked), *begun(ledger)}
    for n, i in sorted(cut):
        if ledger.find(n) is None or i not in ledger.calls.missing(n):
            continue
        if i in ledger.at(n).waiting:
            waits.leave(ledger, n, i, now=at)
            continue
        call = ledger.at(n).calls[i]
        approval = approvals.latest(ledger, n, i)
        ran = approvals.effective_call(approval, call) if approval else call
        began = ledger.at(n).called.get(i, Called(at=at)).at
        unknown = Outcome(
            content=cut_text(ran),
            is_error=True,
            status="unknown",
            edited=ran.arguments if ran != call else "",
            ended=at,
            took=round(max(at - began, 0.0), 3),
        )
        ledger.calls.outcome(n, i, unknown)
    ledger.s.long_calls = ()
    approvals.close_open(ledger, now=at)


def begun(ledger: Ledger) -> Iterator[tuple[int, int]]:
    """Yield the calls that may have taken effect; child tasks report their own."""
    for current in ledger.s.opens:
        for i, called in current.called.items():
            if not (called.error or called.child):
                yield current.n, i


async def run_tool(
    ledger: Ledger, n: int, i: int, edited: ToolCall | None, policy: ToolPolicy
) -> Outcome:
    """Run one call; schedule it again if it is known not to have started.

    A repeatable call whose worker was lost is also scheduled again, but not for ever: the tool may
    be what ends the worker. A call that has run since before a rollover is awaited first.
    """
    long_call = find_long(ledger, n, i) if ledger.s.long_calls else None
    branch = ledger.s.branch
    current = ledger.at(n)
    # The activity of the step has made attempts of a call that gets one of its own only now.
    before = long_call or current.called.get(i)
    tried = 0 if before is None else before.tried
    starts, lost, name = 0, tried, current.calls[i].name
    # The beginning is recorded before the activity is scheduled: what began without an outcome
    # counts as unknown. A call of an agent began when its child task was started.
    if long_call is None and not policy.agent:
        ledger.calls.begins(n, i, now=now(), edited=edited.arguments if edited else "")
    while True:
        try:
            if long_call is not None:
                outcome = await _rejoin(ledger, long_call)
            else:
                given = ledger.calls.tool_input(n, i, edited).model_copy(update={"tried": tried})
                outcome = await _once(ledger, given, policy)
        except ActivityError as error:
            tried += failure_of(error).type != NOT_STARTED
            if policy.repeatable and is_lost(error) and lost + 1 < MOST_LOST:
                lost += 1
                ledger.calls.lost(n, i, lost, now=now())
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
            if ledger.s.long_calls:
                drop_long(ledger, branch, n, i)
        await workflow.sleep(pause_of(starts, *START_PAUSES), summary=f"start {name} again")
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
            non_retryable_error_types=LOST_TOOL if policy.repeatable else None,
        ),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=tool_label(ledger, given, short=policy.effect == "read"),
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
        retry_policy=RetryPolicy(non_retryable_error_types=LOST_TOOL),
        summary=call_label(ledger.at(call.n).calls[call.i]),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
    return outcome
