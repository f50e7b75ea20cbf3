"""Reports of a child task to its parent, and the children that are done.

The parent does not carry children that are done: its steps in the archive name them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

from holdfast.task.data.children import (
    REPORTS,
    ChildReport,
    ChildState,
    EndNested,
    ParentSays,
    UndoAnswer,
)
from holdfast.task.data.undo import Obstacle, UndoRequest, UndoState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.refusals import UNDO_RUNS, is_verdict
from holdfast.values.runs.status import CLOSED, TaskStatus
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
    ledger.money.forget_children(done)
    ledger.s.settled = s.settled + still_open
    ledger.s.said = said


def _is_settled(ledger: Ledger, child: ChildState) -> bool:
    branch, n, _, _ = child.place
    if branch == ledger.s.branch and ledger.find(n) is not None:
        return False
    if child.held or child.approvals:
        return False
    return child.closed or (child.is_over and not child.left)


async def end_settled(ledger: Ledger, given: EndNested) -> None:
    """End the settled children: an activity finds them in the archive."""
    await workflow.execute_activity(
        "end_nested",
        given,
        start_to_close_timeout=LONGEST_END,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=PATIENT,
        summary=f"{given.end} child tasks",
    )


WAITS: frozenset[TaskStatus] = frozenset({"waiting", "paused", "needs_attention"})
"""In these a task may stay for long without a report, by which it would learn that its parent has
ended."""

Asked = Callable[[], TaskStatus | None]
"""Returns a status that the ledger does not have: the task is closed, or about to try again."""


class Reporter:
    """Reports to the parent of a task."""

    def __init__(self, ledger: Ledger, status: Asked, orphaned: Callable[[], None]) -> None:
        """Report the state of this ledger.

        The parent of a task that begins knows its state. After a rollover the first report is sent
        anyway: the new run does not know what the one before it had not reported yet.

        Args:
            ledger: The child task.
            status: Returns a status that the ledger does not have.
            orphaned: Called when the parent's workflow has ended.
        """
        self._ledger = ledger
        self._status = status
        self._orphaned = orphaned
        self._reported = None if ledger.given.carried is not None else self._news()

    async def run(self) -> None:
        """Report until the workflow ends."""
        parent = self._ledger.given.parent
        if parent is None:
            return
        handle = workflow.get_external_workflow_handle(parent.task)
        while True:
            await workflow.wait_condition(lambda: self._news() != self._reported)
            # Kept as it was sent: what changes during the signal is the next report.
            news = self._news()
            money = self._ledger.money
            cost = {"usage": money.spent, "unsettled": bool(money.unsettled)}
            report = news.model_copy(update=cost)
            try:
                await handle.signal(REPORTS, report)
            except FailureError:  # its workflow has ended
                workflow.logger.info("The parent of %s has ended", self._ledger.task_id)
                self._orphaned()
            self._reported = news

    def awaits_parent(self) -> frozenset[str]:
        """Name the parent while only it, or a person, can end the wait of this task."""
        s, parent = self._ledger.s, self._ledger.given.parent
        rests = parent is not None and s.closing is None and self._ledger.status in WAITS
        return frozenset({parent.task}) if parent is not None and rests else frozenset()

    async def finish(self) -> None:
        """Wait until everything is reported."""
        await workflow.wait_condition(lambda: self._news() == self._reported)

    def _news(self) -> ChildReport:
        """Make the report of the present state. A change of the cost alone is not reported."""
        ledger = self._ledger
        status = self._status() or ledger.status
        failure = None if status == "running" else ledger.failure
        closed = status in CLOSED
        if status == "needs_attention" and is_verdict(failure):
            status = "failed"
        return ChildReport(
            id=ledger.task_id,
            secret=ledger.given.secret,
            status=status,
            closed=closed,
            heard=ledger.s.heard,
            raised=ledger.money.raised,
            lost=ledger.money.lost,
            approvals=tuple(approvals.asked_everywhere(ledger)) if not closed else (),
            failure=failure,
            undo=ledger.s.undo_answer,
        )


def undo_for_parent(ledger: Ledger, said: ParentSays) -> None:
    """Check, carry out or release an undo for the parent; an undo of a client is left alone."""
    s = ledger.s
    if s.undo is not None and not s.undo.number:
        why = UNDO_RUNS.message
        busy = UndoAnswer(number=said.number, stands=(Obstacle(text=why),), failure=why)
        ledger.s.undo_answer = busy
        return
    if s.undo is None and said.undo == "release":
        return
    asked = UndoRequest(
        to=0, residue="keep" if said.keep else "refuse", by=said.by, reason=said.reason
    )
    begun = UndoState(
        asked=asked,
        done=s.undo.done if s.undo is not None else s.undone_effects,
        unclear=s.undo.unclear if s.undo is not None else {},
        cut=s.undo.cut if s.undo is not None else (),
        number=said.number,
        mode="" if said.undo == "do" else said.undo,
    )
    ledger.s.undo = begun
