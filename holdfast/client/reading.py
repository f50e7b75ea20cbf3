"""Reading tasks: open ones by query, closed ones from the archive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TypeVar

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive import Archive
from holdfast.engine.cluster import has_workers
from holdfast.errors import NoWorkerError, StepNotFoundError, TaskClosedError, TaskNotFoundError
from holdfast.messages import Blob, Message, Usage
from holdfast.segments import read_record, read_segment
from holdfast.steps import Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.undo import active_messages, active_steps
from holdfast.values import Json
from holdfast.views import EntriesPage, EntriesRequest, StepView
from holdfast.wire import (
    Approval,
    Entry,
    SegmentRef,
    StepRecord,
    TaskHead,
    TaskRecord,
    View,
    ViewRequest,
)

T = TypeVar("T")
PATIENCE_SECONDS = 5.0


class Reader:
    """Reads the tasks of one namespace and archive.

    Attributes:
        client: Temporal client.
        archive: The namespace's archive.
    """

    def __init__(self, client: Client, archive: Archive) -> None:
        """Use this client and this archive."""
        self.client = client
        self.archive = archive

    async def query(
        self, task_id: str, name: str, kind: type[T], *args: object, even_closed: bool = False
    ) -> T:
        """Ask a task.

        Args:
            task_id: The task.
            name: Name of the query.
            kind: Type of the answer.
            args: Arguments of the query.
            even_closed: Whether to ask a closed task too: it is replayed for that.

        Raises:
            TaskClosedError: It is closed; the archive has it.
            TaskNotFoundError: Temporal knows none of this id.
            NoWorkerError: No worker process is up to answer.
        """
        handle = self.client.get_workflow_handle(task_id)
        asking = asyncio.ensure_future(
            handle.query(
                name,
                args=list(args),
                result_type=kind,
                reject_condition=None if even_closed else QueryRejectCondition.NOT_OPEN,
            )
        )
        try:
            return await self._patiently(asking, task_id)
        except WorkflowQueryRejectedError as cause:
            msg = f"Task {task_id!r} is closed."
            raise TaskClosedError(msg) from cause
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise TaskNotFoundError(task_id) from error
            raise
        except WorkflowQueryFailedError as error:
            msg = f"Task {task_id!r} could not answer: {error}"
            raise TaskClosedError(msg) from error

    async def _patiently(self, asking: asyncio.Future[T], task_id: str) -> T:
        """Wait for an answer for as long as there is a worker process to give it."""
        try:
            while True:
                done, _ = await asyncio.wait({asking}, timeout=PATIENCE_SECONDS)
                if done:
                    return asking.result()
                await self.require_worker(task_id)
        finally:
            asking.cancel()

    async def require_worker(self, task_id: str) -> None:
        """Check that somebody serves the task's queue.

        Raises:
            NoWorkerError: Nobody does.
        """
        try:
            queue = (await self.client.get_workflow_handle(task_id).describe()).task_queue
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise TaskNotFoundError(task_id) from error
            raise
        if not await has_workers(self.client, queue):
            raise NoWorkerError(queue)

    async def record(self, task_id: str) -> TaskRecord:
        """Read a closed task.

        Raises:
            TaskNotFoundError: The archive has none of this id.
        """
        record = await read_record(self.archive, task_id)
        if record is None:
            raise TaskNotFoundError(task_id)
        return record

    async def task(self, task_id: str) -> Task:
        """Describe a task, open or closed, with its whole input.

        Raises:
            TaskNotFoundError: There is none of this id.
        """
        try:
            task = await self.query(task_id, "task", Task)
        except (TaskClosedError, TaskNotFoundError) as closed:
            record = await read_record(self.archive, task_id)
            if record is not None:
                task = Task.model_validate(record.task)
            elif isinstance(closed, TaskNotFoundError):
                raise
            else:  # closed behind our back, from Temporal's own tools
                task = await self.query(task_id, "task", Task, even_closed=True)
                task = task.model_copy(update={"status": "abandoned"})
        if task.stored is None:
            return task
        return task.model_copy(update={"input": await self.text(task.stored), "stored": None})

    async def entries(self, task_id: str) -> list[Entry]:
        """Read the whole ledger, oldest first."""
        try:
            return await self._entries(task_id)
        except (TaskClosedError, TaskNotFoundError) as closed:
            record = await read_record(self.archive, task_id)
            if record is not None:
                return await self._archived(record.segments)
            if isinstance(closed, TaskNotFoundError):
                raise
            return await self._entries(task_id, even_closed=True)

    async def _entries(self, task_id: str, *, even_closed: bool = False) -> list[Entry]:
        """Read the ledger from the task; begin anew when it rolls over meanwhile."""
        entries: list[Entry] = []
        segments: tuple[SegmentRef, ...] | None = None
        while True:
            page = await self.query(
                task_id,
                "entries",
                EntriesPage,
                EntriesRequest(skip=len(entries)),
                even_closed=even_closed,
            )
            if segments not in (None, page.segments):
                entries, segments = [], None
                continue
            segments = page.segments
            entries.extend(page.entries)
            if not page.more:
                return await self._archived(segments) + entries

    async def _archived(self, segments: Sequence[SegmentRef]) -> list[Entry]:
        return [
            entry for segment in segments for entry in await read_segment(self.archive, segment)
        ]

    async def steps(self, task_id: str, *, undone: bool = False) -> list[TaskStepOutput]:
        """Read the completed steps of the present branch, or all, oldest first."""
        entries = await self.entries(task_id)
        active = active_steps(entries)
        if not undone:
            return [await self.output(task_id, record) for record in active]
        kept = {id(record) for record in active}
        outputs: list[TaskStepOutput] = []
        for record in (entry.step for entry in entries if entry.step is not None):
            output = await self.output(task_id, record)
            left = id(record) not in kept
            outputs.append(output.model_copy(update={"status": "undone"}) if left else output)
        return outputs

    async def head(self, task_id: str) -> TaskHead:
        """Read a task's head."""
        try:
            head = (await self.query(task_id, "view", View, ViewRequest(head=True))).head
        except (TaskClosedError, TaskNotFoundError):
            return (await self.record(task_id)).head
        return head or TaskHead(agent="")

    async def approvals(self, task_id: str) -> list[Approval]:
        """Read what an open task asks, and what was decided for its step in progress."""
        try:
            return await self.query(task_id, "approvals", list[Approval])
        except TaskClosedError:
            return []

    async def step(self, task_id: str, n: int) -> TaskStepOutput:
        """Read one step by its ordinal; a step that waits says what for.

        Raises:
            StepNotFoundError: There is no such step.
        """
        try:
            view = await self.query(task_id, "step", StepView, n)
        except (TaskClosedError, TaskNotFoundError):
            view = StepView(segments=(await self.record(task_id)).segments)
        if view.record is not None:
            return await self.output(task_id, view.record)
        if view.waiting_for:
            step = view.step.model_copy(update={"task_id": task_id})
            return TaskStepOutput(status="waiting", task_step=step, waiting_for=view.waiting_for)
        for segment in reversed(view.segments):  # the newest of this number is not undone
            for entry in reversed(await read_segment(self.archive, segment)):
                if entry.step is not None and entry.step.n == n:
                    return await self.output(task_id, entry.step)
        msg = f"Could not find step number {n} of task {task_id!r}"
        raise StepNotFoundError(msg)

    async def output(self, task_id: str, record: StepRecord) -> TaskStepOutput:
        """Make the public form of a step record, archived texts put in."""
        output: Json = record.output
        if record.stored is not None:
            text = await self.text(record.stored)
            output = json.loads(text) if record.stored.is_json else text
        return TaskStepOutput(
            output=output,
            task_step=record.step.model_copy(update={"task_id": task_id}),
            next_steps=tuple(_with_task(step, task_id) for step in record.next),
            is_last=record.last,
            calls=record.calls,
            sources=await self.sources(record),
            usage=record.usage,
            branch=record.branch,
        )

    async def sources(self, record: StepRecord) -> tuple[ToolOutput, ...]:
        """List a step's tool results in call order."""
        adds = {message.call_id: message for message in record.adds if message.role == "tool"}
        pairs = [
            *((c, o) for e in record.journal for c, o in zip(e.calls, e.outcomes, strict=True)),
            *zip(record.calls, record.outcomes, strict=True),
        ]
        outputs: list[ToolOutput] = []
        for call, outcome in pairs:
            message = adds.get(call.id, outcome.message(call))
            outputs.append(
                ToolOutput(
                    tool_name=call.name,
                    call_id=call.id,
                    raw_input=outcome.edited or call.arguments,
                    content=(await self.resolve(message)).text,
                    is_error=message.is_error,
                    status=outcome.status,
                    attempts=outcome.attempts,
                )
            )
        return tuple(outputs)

    async def transcript(self, task_id: str) -> list[Message]:
        """Read a task's messages, oldest first."""
        found = active_messages(await self.entries(task_id))
        return [await self.resolve(message) for message in found]

    async def resolve(self, message: Message) -> Message:
        """Put an archived content into its message."""
        if not isinstance(message.content, Blob):
            return message
        return message.model_copy(update={"content": await self.text(message.content)})

    async def text(self, blob: Blob) -> str:
        """Read a text of the archive."""
        return (await self.archive.aget(blob.sha256)).decode("utf-8", "surrogatepass")


def total_usage(outputs: list[TaskStepOutput]) -> Usage:
    """Sum the cost of steps."""
    total = Usage()
    for output in outputs:
        total += output.usage
    return total


def _with_task(step: TaskStep, task_id: str) -> TaskStep:
    return step.model_copy(update={"task_id": task_id})
