"""Which calls of an answer to look up before one begins that a person has approved. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.task.data.wire import ToolInput, ToolsInput
from holdfast.task.handoff_calls import called_handoff, handed_to
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.tool_calls import Call, CallState
from holdfast.values.messages import ToolCall

NEEDS_NO_TOOL: frozenset[CallState] = frozenset(
    {"over", "unknown_tool", "runs_on", "rejected", "to_pass"}
)
MAY_RUN: frozenset[CallState] = frozenset({"to_run", "to_nest"})


def tools_to_find(
    ledger: Ledger,
    n: int,
    ready: Collection[int],
    *,
    begun: Collection[int],
    found: Collection[int],
) -> ToolsInput | None:
    """Return the calls of a step to look up before those that are ready begin.

    A person may decide days after the model's answer, and the agent may have lost a tool or a
    handoff meanwhile. So all calls of the answer that have not begun are looked up first, whatever
    they wait for: else one would take effect, and the one next to it could not.

    Args:
        ledger: The task.
        n: The step.
        ready: Positions of the calls that can go on now.
        begun: Positions of the calls that are being taken further already.
        found: Positions of the calls that were looked up and could run then.

    Returns:
        None if a person has decided on none of those that are ready, or if there is one call alone,
        which is looked up where it runs.
    """
    if not any(i not in found and _takes_effect(ledger, n, i) for i in ready):
        return None
    answers = ledger.head.answers_lost_calls
    others = [Call(ledger, n, i) for i in ledger.missing_calls(n) if i not in begun]
    calls = _one_of_a_name(call for call in others if _needs_tool(call, answers=answers))
    handoff = _handoff_after(ledger, n)
    if len(calls) + (handoff is not None) < (1 if answers else 2):
        return None
    return ToolsInput(
        n=n,
        calls=tuple(tool_to_find(ledger, call) for call in calls),
        agent=ledger.at(n).open.step.agent,
        handoff=handoff,
        head=ledger.changed_head,
    )


def tool_to_find(ledger: Ledger, call: Call) -> ToolInput:
    """Return a call to look up, with the state only where code of the run may read it."""
    given = ledger.tool_input(call.n, call.i, call.edited)
    if ledger.head.answers_lost_calls and ledger.head.run.tool_error_formatter:
        return given
    left_out: dict[str, object] = {"state": {}, "big": False, "patch": {}}
    return given.model_copy(update={**left_out, "answers": {}, "resume": ""})


def that_may_run(ledger: Ledger, given: ToolsInput) -> set[int]:
    """Return the positions of those calls that wait for nothing else."""
    return {each.i for each in given.calls if Call(ledger, given.n, each.i).state in MAY_RUN}


def _one_of_a_name(calls: Iterable[Call]) -> list[Call]:
    """Leave out calls that wait for a person next to another such call of the same tool.

    A person may decide on a thousand calls of one tool one by one.
    """
    waiting: set[str] = set()
    kept: list[Call] = []
    for call in calls:
        if call.state == "asked":
            if call.asked.name in waiting:
                continue
            waiting.add(call.asked.name)
        kept.append(call)
    return kept


def _takes_effect(ledger: Ledger, n: int, i: int) -> bool:
    """Whether a call would begin now that a person has approved some time after the answer.

    A decision for later calls that holds already is applied at once.
    """
    if Call(ledger, n, i).state not in MAY_RUN:
        return False
    approval = approvals.latest(ledger, n, i)
    if approval is None or (approval.kind, approval.status) != ("tool", "approved"):
        return False
    return approval.at > approval.asked


def _needs_tool(call: Call, *, answers: bool) -> bool:
    """Whether a call that has not begun must be looked up.

    One that waits for a person is, unless the model would read of its tool after the decision.
    """
    if call.state in NEEDS_NO_TOOL:
        return False
    approval = call.approval
    if approval is None or call.state != "asked":
        return True
    return approval.kind == "tool" and not answers


def _handoff_after(ledger: Ledger, n: int) -> ToolCall | None:
    """Return the call of the answer that hands the task over after the others, if there is one."""
    current, policies = ledger.at(n), Call(ledger, n, 0).policies
    if current.result is not None:
        settled = ((current.calls[i], each) for i, each in current.outcomes.items())
        told = (call for call, each in settled if handed_to(call, each.message(call), policies))
        return next(told, None)
    answer = next((each.answer for each in reversed(current.journal) if each.answer), None)
    made = () if answer is None else answer.message.calls
    if not any(call in made for call in current.calls):
        return None
    first = next((call for call in made if called_handoff(call, policies)), None)
    return None if first in current.calls else first
