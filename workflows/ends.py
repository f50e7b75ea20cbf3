"""The two ends of a run of the workflow: the task closes, or it continues as new.

Closing goes to the archive first, then to the session, then it ends the workflow. Continuing as new
puts the ledger into the archive, and gives the rest of the state to the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    is_cancelled_exception,
)

from holdfast.task import refusals
from holdfast.task.data.commands import RunReply
from holdfast.task.data.records import Seal, SegmentRef
from holdfast.task.data.wire import CloseInput
from holdfast.values.runs.status import TaskStatus
from holdfast.values.text.shown import shown
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import begin, now
from holdfast.workflows.children.reports import settle
from holdfast.workflows.core import Core
from holdfast.workflows.requests.updates import Commands
from holdfast.workflows.tools.tool_runs import leave_calls


class Closing:
    """Carries an accepted end out. An attempt that fails leaves the task stuck, and is repeated."""

    def __init__(self, core: Core, commands: Commands, take_postponed: Callable[[], None]) -> None:
        """Drive this task.

        Args:
            core: The task.
            commands: Its commands: the ones that came before the end are refused, each with a note.
            take_postponed: Carries out the parent's postponed requests when closing has failed.
        """
        self._core = core
        self._commands = commands
        self._take_postponed = take_postponed

    async def close(self) -> None:
        """Make one attempt to close the task.

        The commit to the session comes last: until it is made, an abandon can take the place of an
        end that cannot be reached, and after it nothing can fail any more.
        """
        core = self._core
        status = core.ending.status or "finished"
        # What was sent before the end belongs in the record, refused or obeyed.
        await workflow.wait_condition(lambda: not self._commands.are_waiting)
        # Once for each accepted end, also over failed attempts: its notes stand in the record once.
        if core.ending.prepare():
            self._prepare(status)
        head = core.given.head
        commits = status == "finished" or (status == "failed" and head.dialect.keeps_failed)
        sent = CloseInput(
            status=status,
            at=core.ledger.s.transcript,
            commit=commits and head.has_session,
            failure=core.ending.failure(),
            ledger=core.ledger.log.chain,
            head=core.ledger.changed_head,
            lanes=core.ledger.s.lanes,
        )
        # A task of its own: a cancellation of the workflow must not cancel what writes its record.
        storing = begin(self._store(sent))
        while not storing.done():
            try:
                await workflow.wait_condition(storing.done)
            except asyncio.CancelledError:  # the task is ending already
                continue
        error = storing.exception()
        if isinstance(error, FailureError):
            self._failed(error)
        else:
            self._over(sent, storing.result())

    def _prepare(self, status: TaskStatus) -> None:
        """Record the end in the ledger, once, before the ledger goes to the archive."""
        core = self._core
        leave_calls(core.ledger, core.running, at=now())
        core.children.close(status)
        if status == "abandoned":
            core.children.end("abandon", core.ending.why)
            if core.ledger.s.children:  # all below look at it before they ask a model
                core.publish(status)
        if unread := core.ledger.queue.unread:
            text = f"The task has ended, and no model has read this: {shown(unread)}."
            core.ledger.note("refused", now=now(), text=text, body={"verb": "feedback"})
        core.ledger.note("closed", now=now(), text=core.ending.why, body={"status": status})

    async def _store(self, sent: CloseInput) -> Seal:
        """Write the record to the archive, then commit the turn to the session.

        In this order: a turn in a session is never without the record that it came from.
        """
        core = self._core
        # Children may be in a model call still: its cost belongs in the record. It waits, not for
        # long.
        if sent.status == "abandoned":
            await core.children.ended()
        stored = await calls.close(core.ledger, sent, again=core.ending.failures > 0)
        session = core.given.head.session
        if session is None:
            return stored.seal
        if stored.turn is None:
            if session.queues and workflow.patched("session-line"):
                await calls.leave_line(session.id, workflow.info().workflow_id)
            return stored.seal
        try:
            await calls.commit(session.id, stored.turn)
        except ApplicationError:
            if not workflow.patched("commit-again"):
                raise
            # It has come to rest since `close` saw that it is open, which begins it again.
            stored = await calls.close(core.ledger, sent, again=True)
            if stored.turn is not None:
                await calls.commit(session.id, stored.turn)
        return stored.seal

    def _over(self, sent: CloseInput, seal: Seal) -> None:
        """Mark the task as closed and answer all requests."""
        core = self._core
        # First of all: handlers that wake up below find the task closed. No await follows, so that
        # the replies and the end of the workflow are in one workflow task.
        core.closed = True
        core.seal = seal
        if sent.status != "abandoned":  # else they were told; two signals may change places
            core.children.end("finish")
        if sent.failure is not None:
            core.requests.tell("ended", failure=sent.failure)
        else:
            reply = RunReply(n=core.ledger.s.steps, record=seal.record)
            core.requests.tell("closed", reply, refusals.CLOSED)
        core.publish(sent.status)

    def _failed(self, error: FailureError) -> None:
        """Leave the task stuck until the next attempt."""
        core = self._core
        pause = core.given.heartbeat
        core.park(core.ending.failed(calls.failure_of(error), now=now(), pause=pause))
        core.requests.tell_failures()
        self._take_postponed()


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
        core.requests.tell("moved", RunReply(status="moved"))
        most = 0
        while len(core.ledger.log.entries) > most or not self._is_done():
            if len(core.ledger.log.entries) > most:
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
        core.requests.tell_failures()
