"""Outcomes of tool calls that the workflow itself writes: unknown tools and lost outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.task import approvals
from holdfast.task.data.calls import Called, Outcome
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.messages import ToolCall
from holdfast.workflows.activity_calls import now


def unknown_tool(call: ToolCall, known: list[str]) -> Outcome:
    """Return the result of a call of a tool that does not exist."""
    names = ", ".join(sorted(known)) or "none"
    text = f"Tool with name {call.name} not found, please double check. Tools: {names}."
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


def record_cut(ledger: Ledger, running: Iterable[tuple[int, int]]) -> None:
    """Record open calls as unknown that were running, or about which a person was asked.

    Args:
        ledger: The task; its steps are not being worked on any more.
        running: (step, position) of the calls that were running when the steps were stopped.
    """
    asked = [a for a in approvals.pending(ledger) if a.kind == "unknown"]
    cut = {*running, *((a.n, a.i) for a in asked), *begun(ledger)}
    for n, i in sorted(cut):
        if ledger.find(n) is None or i not in ledger.missing_calls(n):
            continue
        call = ledger.at(n).calls[i]
        approval = approvals.latest(ledger, n, i)
        ran = approvals.effective_call(approval, call) if approval else call
        began = ledger.at(n).called.get(i, Called(at=now())).at
        unknown = Outcome(
            content=cut_text(ran),
            is_error=True,
            status="unknown",
            edited=ran.arguments if ran != call else "",
            ended=now(),
            took=round(max(now() - began, 0.0), 3),
        )
        ledger.outcome(n, i, unknown)


def begun(ledger: Ledger) -> Iterator[tuple[int, int]]:
    """Yield the calls that may have taken effect; child tasks report their own."""
    for current in ledger.s.opens:
        for i, called in current.called.items():
            if not (called.error or called.child):
                yield current.n, i
