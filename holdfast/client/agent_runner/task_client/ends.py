"""How a task has ended: closed with its record, closed by other means, or never created."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.segments import has_record
from holdfast.engine.search_attributes import AGENT_TASK, HF_STATUS
from holdfast.errors import HoldfastError, TaskClosedError, TaskNotFoundError
from holdfast.reading.reader import Reader
from holdfast.reading.server_errors import server_errors, to_error
from holdfast.task.data.state import TaskRecord
from holdfast.task.data.wire import TaskResult
from holdfast.values.pauses import pauses

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
GROWTH = 1.5
"""How many times as long as the one before each pause is."""
CLOSING_SECONDS = 120.0

FIRST_LOOK_SECONDS = 1.0
LONGEST_LOOK_SECONDS = 5.0
"""Pauses between looks whether a task that is awaited rests, growing from one to the other. A look
is in no history and on no bill, but costs the server time."""


class TaskEnds:
    """Reads how tasks have ended."""

    def __init__(self, reader: Reader) -> None:
        """Read with this reader."""
        self._reader = reader

    async def closed(self, task_id: str) -> TaskRecord:
        """Wait until a task that has accepted its end is closed, and return its record.

        Raises:
            TaskClosedError: It is not closed after two minutes, or as for `ended`.
            TaskNotFoundError: As for `ended`, like those after it.
            TaskAbandonedError: It was abandoned.
            AgentsException: It has ended with another verdict.
        """
        waits = pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, GROWTH, CLOSING_SECONDS)
        for pause in waits:
            record = await self.ended(task_id)
            if record is not None:
                return record
            await asyncio.sleep(pause)
        msg = f"Task {task_id!r} said that it is closed, but is not. Ask again."
        raise TaskClosedError(msg)

    async def ended(self, task_id: str) -> TaskRecord | None:
        """Return a finished task's record, or None while the task is open.

        Raises:
            TaskNotFoundError: There is no such task.
            TaskAbandonedError: It was abandoned.
            AgentsException: It has ended with another verdict.
            TaskClosedError: It was ended with Temporal's own tools.
        """
        found = await self._describe(task_id)
        if found.close_time is None or found.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return None
        record = await self._reader.records.read(task_id, found)
        if record is None:
            how = found.status.name.lower() if found.status is not None else "ended"
            msg = f"Task {task_id!r} was {how} with Temporal's own tools: it can only be read."
            raise TaskClosedError(msg)
        if record.failure is not None:
            raise to_error(record.failure, task_id=task_id)
        return record

    async def has_finished(self, task_id: str, request_id: str, rests: asyncio.Event) -> bool:
        """Wait for a task; return whether it has finished well, so that it need not be asked.

        Else it rests, has another end, or its end could not be read: the request that follows meets
        that again.

        Args:
            task_id: The task.
            request_id: The request that it was started with.
            rests: Set when the task may rest, where it runs in this process.

        Raises:
            NoWorkerError: No worker process serves the task any more.
            StuckTaskError: Workflow code fails in it.
        """
        handle = self._reader.client.get_workflow_handle(task_id, result_type=TaskResult)
        ending = asyncio.ensure_future(handle.result())
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())
        resting = asyncio.ensure_future(rests.wait())
        try:
            pause = FIRST_LOOK_SECONDS
            while True:
                await asyncio.wait(
                    {ending, resting}, timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
                if ending.done() or resting.done() or await self._rests(task_id, request_id):
                    break
                pause = min(pause * GROWTH, LONGEST_LOOK_SECONDS)
            if not ending.done() or ending.exception() is not None:
                return False
            self._reader.records.ended(task_id, ending.result().seal.record)
            return True
        finally:
            ending.cancel()
            resting.cancel()

    async def _rests(self, task_id: str, request_id: str) -> bool:
        """Whether a task is open and says in lists that it waits for someone."""
        presence = self._reader.presence
        if not presence.is_fresh(await presence.queue_of(task_id)):
            await presence.require(task_id, request_id)
        found = await self._reader.refuse_stuck(task_id)
        if found is None or found.close_time is not None:
            return False
        return found.typed_search_attributes.get(HF_STATUS) != "running"

    async def _missing(self, task_id: str, error: RPCError) -> Exception:
        """Return the error for a task that an RPC did not find: closed, never created, or other."""
        try:
            with suppress(RPCError), server_errors(RPCStatusCode.NOT_FOUND):
                raise error
            closed = await has_record(self._reader.archive, task_id) or await self.is_known(task_id)
        except HoldfastError as cause:
            return cause
        return await self.closed_error(task_id) if closed else TaskNotFoundError(task_id)

    async def is_known(self, task_id: str) -> bool:
        """Whether Temporal has a task of this id, open or closed."""
        try:
            found = await self._describe(task_id)
        except TaskNotFoundError:
            return False
        return found.workflow_type == AGENT_TASK

    async def closed_error(self, task_id: str) -> TaskClosedError:
        """Return the error for a request to a closed task: how it ended, and how to go on."""
        how = ""
        with suppress(HoldfastError, TemporalError):
            task = await self._reader.task(task_id)
            how = f" ({task.error.partition(': ')[2] or task.status})"
        return TaskClosedError(
            f"Task {task_id!r} is closed{how}: it can be read, not changed. To go on from one of"
            " its steps, fork it: fork(task, at=step)."
        )

    async def _describe(self, task_id: str) -> WorkflowExecutionDescription:
        return await self._reader.describe(task_id)
