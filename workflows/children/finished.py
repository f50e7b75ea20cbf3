"""Children that are done: a task does not carry them, the steps in the archive name them."""

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
    """Leave out the children that are done, before the task continues as new with all archived.

    They are open all the same, for an undo, and end as this task does.
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
    """Know again of the children of steps that are to be undone.

    What is said to them has numbers above all that was said before: an old answer is none to it.
    """
    for target in targets:
        for effect in target.effects:
            if effect.child and effect.child not in ledger.s.children:
                place = (target.branch, target.key, effect.batch, effect.i)
                said = ledger.s.said
                known = ChildState(place=place, status="answered", said=said, counted=True)
                ledger.put_child(effect.child, known)


async def end_settled(ledger: Ledger, given: EndNested) -> None:
    """Have those end that are not carried: an activity finds them in the archive."""
    await workflow.execute_activity(
        "end_nested",
        given,
        start_to_close_timeout=LONGEST_END,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=PATIENT,
    )
