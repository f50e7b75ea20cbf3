"""Finds the tools of an answer's calls, before one begins that a person has decided on."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.wire import ToolsInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.tools_to_find import that_may_run, tool_to_find, tools_to_find
from holdfast.task.tool_calls import Call
from holdfast.workflows.activity_calls import failure_of, quick
from holdfast.workflows.tools.calls_taken import CallsTaken


async def may_begin(ledger: Ledger, n: int, ready: Sequence[int], taken: CallsTaken) -> bool:
    """Return whether calls may begin as they are; else all of their answer are looked up.

    Where the tool of one is lost, none begins and the step stops, or the model reads of it.

    Args:
        ledger: The task.
        n: The step.
        ready: Positions of the calls.
        taken: Those that have begun.

    Raises:
        ActivityError: The look-up was cancelled.
    """
    given = _wanted(ledger, n, ready, taken)
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
            ledger.outcome(n, i, told)
    taken.found |= may_run
    return False


def _wanted(ledger: Ledger, n: int, ready: Sequence[int], taken: CallsTaken) -> ToolsInput | None:
    if ledger.find(n) is None:
        return None
    left = [i for i in ready if ledger.is_missing(n, i)]
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
