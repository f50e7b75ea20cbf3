"""Child tasks: a call of an agent as a tool runs as a task of its own.

Parent and child exchange signals: the parent starts the child and sends it orders, the child
reports each change that its parent must know.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from pydantic import Field

from holdfast.task.data.calls import Approval
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import RunChange
from holdfast.task.data.records import SegmentRef
from holdfast.task.data.undo import Obstacle
from holdfast.values.base import Value
from holdfast.values.checks.ids import nested_id
from holdfast.values.messages import NOTHING, Dollars, Usage
from holdfast.values.runs.status import CLOSED, TaskStatus

SAYS = "parent"
"""Signal by which a parent sends an order to its child."""

REPORTS = "child"
"""Signal by which a child reports to its parent."""


ENDED = "ended"
"""Activity that looks whether tasks have ended. Its attempts that find none fail."""


class ParentRef(Value):
    """The parent of a child task, and the call for which it was started.

    Attributes:
        task: Its id.
        step: Id of its step that made the call.
        call: The model's id of the call.
        root: The first task of all, which no call has started; empty if the parent is that.
        depth: How many tasks are above.
    """

    task: str
    step: str = ""
    call: str = ""
    root: str = ""
    depth: int = 1

    @property
    def first(self) -> str:
        """Id of the first task of all."""
        return self.root or self.task


class UndoAnswer(Value):
    """Answer of a child to an undo that its parent has ordered.

    Attributes:
        number: Number of the order.
        stands: Effects that prevent the undo.
        undone: What was undone, in words, newest first.
        remains: Effects that were not undone.
        failure: Why it was not undone, or empty.
    """

    number: int
    stands: tuple[Obstacle, ...] = ()
    undone: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    failure: str = ""


def secret_of_child(secret: str, child: str) -> str:
    """Derive the secret that a parent shares with one of its children.

    Each task has a secret, made where it was started and kept in its input. Signals between the two
    carry the child's: every client may send signals to a workflow, but only one that can read the
    child's input can pose as its parent, or as the child. Derived, not drawn at random, so that a
    parent workflow that was reset computes the same one.
    """
    return hmac.new(secret.encode(), child.encode(), hashlib.sha256).hexdigest()[:32]


def is_secret(given: str, expected: str) -> bool:
    """Whether a signal's secret is the one that it must carry."""
    return hmac.compare_digest(given.encode(), expected.encode())


class ParentSays(Value):
    """An order of a parent to its child.

    Attributes:
        secret: The child's secret: shows that its parent has sent this.
        number: Counts the orders of this parent to this child; 0 when no report is wanted.
        run: Try again what has failed.
        undo: "check": stop, say what is in the way of an undo, and wait; "do": undo
            everything, and end; "release": go on.
        keep: Whether effects that cannot be undone stay knowingly.
        paused: Who paused it and why; empty to go on; None to change nothing.
        end: "finish": close, the answer is not needed now; "abandon": end without an answer.
        change: Settings of the run that this one's run has as well; None to change nothing.
        by: Who wants it.
        reason: Why.
    """

    secret: str = ""
    number: int = 0
    run: bool = False
    undo: Literal["", "check", "do", "release"] = ""
    keep: bool = False
    paused: str | None = None
    end: Literal["", "finish", "abandon"] = ""
    change: RunChange | None = None
    by: str = ""
    reason: str = ""


class ChildReport(Value):
    """A report of a child to its parent.

    Attributes:
        id: The child.
        secret: The child's secret: shows that it has sent this.
        status: Its status; one with a verdict is "failed" and stays open until its parent ends.
        closed: Whether it is closed: it does nothing any more, and cannot be undone.
        heard: Number of the newest order that it has received.
        approvals: Open approvals, in it and in its own children.
        usage: Its cost so far, its children's included.
        unsettled: Whether tasks below it may have cost more than `usage` has of them.
        raised: By how much people have raised its budget in money, its children's included.
        lost: The most that its lost calls can have cost, likewise.
        failure: What is in its way, or ended it.
        undo: Its newest answer to an undo.
    """

    id: str
    secret: str = ""
    status: TaskStatus = "running"
    closed: bool = False
    heard: int = 0
    approvals: tuple[Approval, ...] = ()
    usage: Usage = Usage()
    unsettled: bool = False
    raised: Dollars = NOTHING
    lost: Dollars = NOTHING
    failure: Failure | None = None
    undo: UndoAnswer | None = None


class ChildState(Value):
    """State of a child task as its parent knows it.

    Attributes:
        place: Branch, step, batch and position of its call.
        status: As it reported it.
        closed: Whether it is closed.
        heard: Number of the newest order that it has received, by its newest report.
        said: Number of the newest order sent to it.
        approvals: Open approvals in it; step and position are those of the call.
        usage: Its cost.
        unsettled: Whether it has ended without the whole of it in `usage`.
        dollars: What this task has reserved for it, if the budget is in money.
        raised: As it reported it.
        lost: As it reported it.
        failure: What is in its way, or ended it.
        told: Whether the step that waits for it has been stopped because of that failure.
        held: Whether it was stopped for an undo, and waits.
        undo: Its newest answer to an undo.
        left: Whether its call does not count any more: it was undone or made again.
        started: When its call began; 0 once the call's span has been emitted.
        counted: Whether the task counts its cost already, in `spent`.
    """

    place: tuple[int, int, int, int]
    status: TaskStatus = "running"
    closed: bool = False
    heard: int = 0
    said: int = 0
    approvals: tuple[Approval, ...] = ()
    usage: Usage = Usage()
    unsettled: bool = False
    dollars: Dollars = NOTHING
    raised: Dollars = NOTHING
    lost: Dollars = NOTHING
    failure: Failure | None = None
    told: bool = False
    held: bool = False
    undo: UndoAnswer | None = None
    left: bool = False
    started: float = 0.0
    counted: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the child task has a result for its call: an answer or an end."""
        return self.status == "answered" or self.status in CLOSED

    @property
    def reserves(self) -> Decimal:
        """Money that is reserved for it, and that it has not spent."""
        if self.closed or self.is_over:
            return NOTHING
        return max(self.dollars + self.raised - self.usage.paid - self.lost, NOTHING)

    @property
    def is_watched(self) -> bool:
        """Whether this task waits for something that an end from outside would keep it from."""
        return not self.closed and (self.held or not (self.left or self.is_over))

    @property
    def is_awaited(self) -> bool:
        """Whether there is nothing to do for its call but to wait."""
        return self.status in ("running", "waiting", "paused")

    def after(self, report: ChildReport) -> ChildState:
        """Return the state after a report; a report from before the newest order is dropped."""
        if self.closed or (report.heard < self.said and not report.closed):
            return self
        _, n, _, i = self.place
        found = {
            "status": report.status,
            "closed": report.closed,
            "heard": report.heard,
            "approvals": tuple(
                approval.model_copy(update={"n": n, "i": i}) for approval in report.approvals
            ),
            "usage": report.usage,
            "unsettled": report.unsettled,
            "raised": report.raised,
            "lost": report.lost,
            "failure": report.failure,
            "told": self.told and report.status == "needs_attention",
            "undo": report.undo,
        }
        return self.model_copy(update=found)


GIVEN = "given"
"""Signal by which a caller acknowledges the outputs that it was given."""


class OutputsGiven(Value):
    """Shows that a caller has got the outputs of the steps that were sent to it.

    Attributes:
        caller: The caller, as in the ids of its requests.
    """

    caller: str = Field(max_length=40)


class EndNested(Value):
    """Input of the activity that ends child tasks which the carried state does not list any more.

    Attributes:
        segment: Newest segment of the ledger, whose steps name them.
        secret: The parent's secret.
        end: How they end.
        reason: Why.
    """

    segment: SegmentRef
    secret: str
    end: Literal["finish", "abandon"]
    reason: str = ""


def child_id(task: str, place: tuple[int, int, int, int], taken: dict[str, ChildState]) -> str:
    """Name the child of a call: the task and the call's place; a call made again gets a number."""
    return next(name for name in child_ids(task, place) if name not in taken)


def child_ids(task: str, place: tuple[int, int, int, int]) -> Iterator[str]:
    """Name the children of a call in the order in which they were begun."""
    yield nested_id(task, place)
    for k in itertools.count(2):
        yield nested_id(task, (*place, k))
