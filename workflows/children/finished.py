"""Settled children: a task that continues as new drops them; archived steps name them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from temporalio import workflow

from holdfast.task.data.children import ChildState, EndNested
from holdfast.task.data.undo import Undoable
from holdfast.task.ledger.ledger import Ledger
from holdfast.workflows.activity_calls import PATIENT

LONGEST_END = timedelta(hours=1)


def settle(ledger: Ledger) -> None:
    """Drop the children that are done, before the task continues as new with all archived.

    Their workflows stay open for an undo, and end when this task does.
    """
    s = ledger.s
    if s.undo is not None or s.closing is not None:
        return
    done = {name: child for name, child in s.children.items() if _is_settled(ledger, child)}
    still_open = sum(not child.closed for child in done.values())
    said = max([s.said, *(child.said for child in done.values())])
    ledger.forget_children(done)
    ledger.change(settled=s.settled + still_open, said=said)


def _is_settled(ledger: Ledger, child: ChildState) -> bool:
    branch, n, _, _ = child.place
    if branch == ledger.s.branch and ledger.find(n) is not None:
        return False
    if child.held or child.approvals:
        return False
    return child.closed or (child.is_over and not child.left)


def recall(ledger: Ledger, targets: Iterable[Undoable]) -> None:
    """Take settled children of steps that are to be undone into the state again.

    Requests to them get numbers above all earlier ones, so that an old answer is not taken for one
    to a new request.
    """
    for target in targets:
        for effect in target.effects:
            if effect.child and effect.child not in ledger.s.children:
                place = (target.branch, target.key, effect.batch, effect.i)
                said = ledger.s.said
                known = ChildState(place=place, status="answered", said=said, counted=True)
                ledger.put_child(effect.child, known)


async def end_settled(ledger: Ledger, given: EndNested) -> None:
    """End the settled children: an activity finds them in the archive."""
    await workflow.execute_activity(
        "end_nested",
        given,
        start_to_close_timeout=LONGEST_END,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=PATIENT,
    )
