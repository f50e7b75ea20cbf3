"""Tool calls of open steps: which of them can go on now."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from holdfast.task import approvals
from holdfast.task.data.records import Failure, OpenState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.refusals import is_verdict

MOST_AT_ONCE = 300
"""Most calls of a task that are taken further at the same time; the others follow.

The server fails every workflow task that would have more than 2,000 activities on the way. Tasks in
flight depend on the number.
"""

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


def verdict_of_calls(current: OpenState) -> Failure | None:
    """Return the verdict that an open call of a step has ended with, the first in their order.

    It stands until it is heeded: a sibling may have stopped the step before, or an undo that was
    then refused.
    """
    failures = (current.outcomes[i].failure for i in sorted(current.outcomes))
    return next((failure for failure in failures if is_verdict(failure)), None)
