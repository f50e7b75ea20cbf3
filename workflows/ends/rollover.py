"""Continuing as new: the ledger goes to the archive, the rest of the state to the next run."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.task.data.commands import RunReply
from holdfast.task.data.records import SegmentRef
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.children.background import begin
from holdfast.workflows.children.reports import settle
from holdfast.workflows.core import Core

MOST_CARRIED = 200
"""Most events that a run hands on to the next without having archived them."""


class Rollover:
    """Continues a task as new; only the audit tells its runs apart."""

    def __init__(
        self, core: Core, is_done: Callable[[], bool], cancelled: Callable[[], None]
    ) -> None:
        """Drive this task.

        Args:
            core: The task.
            is_done: Whether all handlers, and all signals to child tasks, have finished.
            cancelled: Takes a cancellation by Temporal for an abandon.
        """
        self._core = core
        self._is_done = is_done
        self._cancelled = cancelled

    async def roll(self) -> None:
        """Archive the ledger and continue as new, unless an end or an undo comes first."""
        core = self._core
        # Refuses new updates; those that wait are answered with "moved", and their clients send
        # them to the next run. An update that this run has accepted must have its reply here.
        core.moving = True
        core.requests.answer_all(RunReply(status="moved"))
        most = 0
        while len(core.ledger.entries) > most or not self._is_done():
            if len(core.ledger.entries) > most:
                try:
                    segment = await self._archive()
                except ActivityError as error:
                    self._failed(error)
                    return
                if segment is None:
                    break
                # Signals that came during the upload have added entries: another round archives
                # them.
                core.ledger.archived(segment)
            most = MOST_CARRIED  # commands may come all the time: the next run archives them
            await workflow.wait_condition(lambda: self._is_done() or self._is_called_off())
            if self._is_called_off():
                break
        if self._is_called_off():
            core.moving = False
            return
        # No await from here on: what a handler changed now would be in neither run.
        settle(core.ledger)
        carried = core.ledger.carried()
        began: dict[str, object] = {"extra_state": {}, "described": None}  # they are in it
        workflow.continue_as_new(core.given.model_copy(update={**began, "carried": carried}))

    async def _archive(self) -> SegmentRef | None:
        """Archive the ledger's entries; None when continuing as new is called off meanwhile."""
        archiving = begin(calls.archive(self._core.ledger))
        try:
            await workflow.wait_condition(lambda: archiving.done() or self._is_called_off())
        finally:
            if not archiving.done():
                archiving.cancel()
        return archiving.result() if archiving.done() else None

    def _is_called_off(self) -> bool:
        """Whether something comes before continuing as new: an end, or work that cannot go on.

        A call that ended meanwhile without a known outcome is being asked about, or begun again:
        the next run would know nothing of that.
        """
        core, work = self._core, self._core.work
        return core.phase == "closing" or (
            work is not None and not work.done() and not core.lets_go
        )

    def _failed(self, error: ActivityError) -> None:
        """Park the task; the next request tries to roll again."""
        core = self._core
        core.moving = False
        if is_cancelled_exception(error):
            self._cancelled()
            return
        # Else the main loop would try again at once, without end.
        core.unrollable = True
        core.park(calls.failure_of(error))
        core.requests.tell()
