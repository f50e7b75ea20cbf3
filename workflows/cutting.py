"""Calls that the end of their task has cut off: nobody knows whether they took effect."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.task import approvals
from holdfast.task.data.records import Outcome
from holdfast.task.ledger import Ledger
from holdfast.workflows.outcomes import cut_text


def record_cut(ledger: Ledger, running: Iterable[tuple[int, int]]) -> None:
    """Record open calls as unknown that were running, or about which a person was asked.

    Args:
        ledger: The task; its steps are not being worked on any more.
        running: (step, position) of the calls that were running when the steps were stopped.
    """
    asked = [a for a in approvals.pending(ledger) if a.kind == "unknown"]
    for n, i in sorted({*running, *((approval.n, approval.i) for approval in asked)}):
        if ledger.find(n) is None or i not in ledger.missing_calls(n):
            continue
        call = ledger.at(n).calls[i]
        approval = approvals.latest(ledger, n, i)
        ran = approvals.effective_call(approval, call) if approval else call
        edited = ran.arguments if ran != call else ""
        text = cut_text(ran)
        ledger.outcome(n, i, Outcome(content=text, is_error=True, status="unknown", edited=edited))
