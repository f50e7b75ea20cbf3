"""Closing a task: the archive first, then its session, then the end of the workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import FailureError

from holdfast.task import refusals
from holdfast.task.data.closing import CloseInput
from holdfast.task.data.commands import RunReply
from holdfast.task.data.seal import Seal
from holdfast.values.runs.status import TaskStatus
from holdfast.values.text.shown import shown
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import now
from holdfast.workflows.children.background import begin
from holdfast.workflows.core import Core, publish
from holdfast.workflows.requests.commands import Commands
from holdfast.workflows.tools.tool_runs import leave_calls


class Closing:
    """Carries an accepted end out. An attempt that fails leaves the task stuck, and is repeated."""

    def __init__(self, core: Core, commands: Commands, take_postponed: Callable[[], None]) -> None:
        """Drive this task.

        Args:
            core: The task.
            commands: Its commands: those that came before the end are refused, each with a note.
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
            ledger=core.ledger.chain,
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
                publish(core.ledger, status)
        if unread := core.ledger.unread:
            text = f"The task has ended, and no model has read this: {shown(unread)}."
            core.ledger.note("refused", now=now(), text=text, body={"verb": "feedback"})
        core.ledger.note(
            "closed",
            now=now(),
            text=core.ending.why,
            body={"status": status},
        )

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
        if session is not None and stored.turn is not None:
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
            core.requests.fail_all(sent.failure)
        reply = RunReply(n=core.ledger.s.steps, record=seal.record)
        core.requests.answer_all(reply, only_all=True)
        core.requests.fail_all(refusals.CLOSED)
        publish(core.ledger, sent.status)
        core.show()

    def _failed(self, error: FailureError) -> None:
        """Leave the task stuck until the next attempt."""
        core = self._core
        pause = core.given.heartbeat
        core.park(core.ending.failed(calls.failure_of(error), now=now(), pause=pause))
        core.requests.tell()
        self._take_postponed()
