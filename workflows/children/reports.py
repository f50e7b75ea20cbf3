"""Reports of a child task to its parent: its status, whenever that has changed."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import FailureError

from holdfast.task import approvals
from holdfast.task.data.children import REPORTS, ChildReport, ParentSays, UndoAnswer
from holdfast.task.data.undo import Obstacle, UndoRequest, UndoState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.refusals import UNDO_RUNS, is_verdict
from holdfast.values.steps import CLOSED, TaskStatus

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
            news = self._news()
            report = news.model_copy(update={"usage": self._ledger.spent})
            try:
                await handle.signal(REPORTS, report)
            except FailureError:  # its workflow has ended
                workflow.logger.info("The parent of %s has ended", self._ledger.task_id)
                self._orphaned()
            self._reported = news

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
        ledger.change(undo_answer=busy)
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
    ledger.change(undo=begun)
