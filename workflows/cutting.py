"""Calls that the end of their task has cut off: nobody knows whether they took effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast import approvals
from holdfast.ledger import Ledger
from holdfast.records import Called, Outcome
from holdfast.workflows.calls import now
from holdfast.workflows.outcomes import cut_text


def record_cut(ledger: Ledger, running: Iterable[tuple[int, int]]) -> None:
    """Record open calls as unknown that were running, or about which a person was asked.

    Args:
        ledger: The task; its steps are not being worked on any more.
        running: (step, position) of the calls that were running when the steps were stopped.
    """
    asked = [a for a in approvals.pending(ledger) if a.kind == "unknown"]
    cut = {*running, *((a.n, a.i) for a in asked), *_begun(ledger)}
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


def _begun(ledger: Ledger) -> Iterator[tuple[int, int]]:
    """Yield the calls that may have taken effect; tasks of calls tell of themselves."""
    for current in ledger.s.opens:
        for i, called in current.called.items():
            if not (called.error or called.child):
                yield current.n, i
