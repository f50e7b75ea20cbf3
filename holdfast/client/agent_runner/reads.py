"""Reading tasks: status, steps, transcript, answer, events, audit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Literal

from holdfast.archive.contents import checked
from holdfast.client.agent_runner.base import (
    RunnerBase,
    TaskLike,
    id_of,
    no_completed_step,
    step_id_of,
)
from holdfast.errors import NoWorkerError, StepNotFoundError, StuckTaskError
from holdfast.reading.audit.audit import AuditEvent, audit_events
from holdfast.reading.audit.verification import Verification, verified
from holdfast.reading.listing import Wanted, newest_tasks
from holdfast.reading.server_errors import server_errors
from holdfast.reading.step_events import StepEvent
from holdfast.reading.streams.follower import POLL_SECONDS, Follower, follow
from holdfast.reading.visibility import read_memo
from holdfast.task.data.records import Entry
from holdfast.values.checks.arguments import Count, Seconds, check_arguments
from holdfast.values.checks.ids import check_name
from holdfast.values.messages import ImagePart, Message
from holdfast.values.parts.images import Image
from holdfast.values.parts.sources import union
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import AgentResponse, ListedTask, Task, TaskStep, TaskStepOutput
from holdfast.values.text.html import Rows

FINISHED: tuple[TaskStatus, ...] = ("answered", "finished")


class TaskRows(Rows[ListedTask]):
    """A list of tasks.

    Attributes:
        next: What `list_tasks(after=)` takes to list the following ones; empty for none.
    """

    next: str = ""


class TaskReading(RunnerBase):
    """The part of AgentRunner that reads tasks."""

    async def get_task(self, task: TaskLike) -> Task:
        """Describe a task, open or closed.

        Raises:
            TaskNotFoundError: No task has this id.
            NoWorkerError: It is open and no worker process is up to answer.
        """
        return await self._read.with_block(id_of(task))

    async def list_tasks(
        self,
        status: TaskStatus | None = None,
        agent: str | None = None,
        *,
        limit: Count | None = None,
        parent: TaskLike | None = None,
        after: str = "",
    ) -> TaskRows:
        """List tasks from Temporal's visibility store, newest first.

        The store knows what `ListedTask` has; `get_task` reads steps, usage and the rest.

        Args:
            status: Only tasks with this status.
            agent: Only tasks of this agent.
            limit: Most tasks; None for all.
            parent: Only the child tasks of this one (agents called as tools), which are not listed
                otherwise.
            after: The `next` of a list that had a limit: what follows it.

        Raises:
            ConnectError: The server could not be reached.
            InvalidArgumentError: `after` is not from such a list.
        """
        check_arguments(TaskReading.list_tasks, status=status, limit=limit, after=after)
        if agent is not None:
            check_name("agent", agent)
        above = id_of(parent) if parent is not None else ""
        wanted, client = Wanted(status, agent, limit, above, after), self.client
        with server_errors():
            memo_of = partial(read_memo, client.data_converter)
            service, namespace = client.workflow_service, client.namespace
            found, following = await newest_tasks(service, namespace, wanted, memo_of)
        rows = TaskRows(ListedTask(**each) for each in found)
        rows.next = following
        return rows

    async def get_upcoming_steps(self, task: TaskLike) -> list[TaskStep]:
        """List the step in progress and the queued ones, in order."""
        return Rows(await self._read.upcoming(id_of(task)))

    async def get_completed_steps(
        self, task: TaskLike, *, undone: bool = False
    ) -> list[TaskStepOutput]:
        """List the completed steps' outputs, oldest first.

        In place of a value that the archive has lost, the value's text says so.

        Args:
            task: The task.
            undone: Whether to list undone steps too; their status is "undone".
        """
        if undone:
            entries = await self._read.entries(id_of(task))
            return Rows(await self._read.steps_of(id_of(task), entries))
        return Rows(await self._read.steps(id_of(task)))

    async def get_completed_step(self, task: TaskLike, step: TaskStep | str) -> TaskStepOutput:
        """Return one completed step's output.

        Raises:
            StepNotFoundError: There is no completed step of this id.
        """
        step_id = step_id_of(step)
        outputs = await self.get_completed_steps(task)
        for output in outputs:
            if output.task_step.step_id == step_id:
                return output
        raise no_completed_step(step_id, [each.task_step.step_id for each in outputs])

    async def get_task_output(self, task: TaskLike) -> TaskStepOutput:
        """Return the last completed step's output.

        Raises:
            StepNotFoundError: No step is completed yet.
        """
        found = await self._read.task(id_of(task))
        if not found.steps:
            msg = f"No completed steps for task_id: {found.task_id}"
            raise StepNotFoundError(msg)
        return await self._read.step(found.task_id, found.steps)

    async def get_completed_tasks(self) -> list[ListedTask]:
        """List the tasks that have their answer: the open ones, then the finalized ones."""
        return Rows([task for status in FINISHED for task in await self.list_tasks(status)])

    async def delete_task(self, task: TaskLike) -> None:
        """Delete a task from Temporal and the archive; its turn in the session stays.

        An open task is terminated. No worker process is needed. Of an encrypted archive the task's
        data key stays: its id may be used again, and processes keep keys in memory.

        Raises:
            TaskNotFoundError: No task has this id.
            ConnectError: The server could not be reached.
        """
        await self._tasks.delete(id_of(task))

    async def transcript(self, task: TaskLike) -> list[Message]:
        """Return a task's messages, oldest first."""
        return await self._read.transcript(id_of(task))

    async def all_messages(self, task: TaskLike) -> list[Message]:
        """Return a task's messages and those of its open or failed step so far, oldest first."""
        return await self._read.all_messages(id_of(task))

    async def image(self, part: ImagePart) -> Image:
        """Read the image that a part of a message names; only one in the archive has bytes.

        Raises:
            BlobMissingError: The archive does not have it.
            InvalidArgumentError: The data is not an image that Holdfast takes, or the reference was
                not made for this archive.
        """
        check_arguments(TaskReading.image, part=part)
        if part.file_id:
            return Image(file_id=part.file_id, detail=part.detail)
        if part.stored is None:
            return Image.from_url(part.url, detail=part.detail)
        ref = (await checked(part, self.archive)).stored or part.stored
        data = await self.archive.aget(ref.sha256)
        return Image.from_bytes(data, detail=part.detail)

    async def response(self, task: TaskLike) -> AgentResponse:
        """Return the answer of a finalized task.

        Raises:
            TaskNotFoundError: No task has this id.
            StepNotFoundError: No step is completed.
        """
        outputs = await self._read.steps(id_of(task), to_answer=True)
        if not outputs:
            msg = f"No completed steps for task_id: {id_of(task)}"
            raise StepNotFoundError(msg)
        last = outputs[-1]
        sources = tuple(source for output in outputs for source in output.sources)
        found = await self._read.task(id_of(task))
        return AgentResponse(
            response=str(last),
            output=last.output,
            sources=sources,
            source_nodes=union(source.nodes for source in sources),
            usage=found.usage,
            branch_usage=found.branch_usage,
            task_id=id_of(task),
        )

    async def step_events(
        self,
        task: TaskLike,
        *,
        after: int = -1,
        until: Literal["closed", "answered"] = "closed",
        poll: Seconds = POLL_SECONDS,
    ) -> AsyncIterator[StepEvent]:
        """Follow a task: yield its events, past ones first, each once and in order.

        A task that waits, for a person or for run_step, is followed too. Breaking off does nothing
        to the task. Later attempts of model calls and tool calls are shown while they are pending;
        most of them are not recorded.

        Args:
            task: The task, running or closed.
            after: Number of the last event that is known already; -1 for none.
            until: Whether to end when the task is closed, or when it has its answer.
            poll: Seconds between two readings of a task in which nothing happened.

        Raises:
            TaskNotFoundError: No task has this id.
            NoWorkerError: It is open and no worker process is up to answer. Go on `after` the last
                event once there is one.
            ConnectError: The server could not be reached; likewise.
        """
        check_arguments(TaskReading.step_events, after=after, until=until, poll=poll)
        follower = Follower(self._read, self.response, id_of(task), after)
        ends: tuple[TaskStatus, ...] = ("answered",) if until == "answered" else ()
        async for event in follow(follower, poll=poll, ends=ends):
            yield event

    async def audit(self, task: TaskLike, *, secrets: Sequence[str] = ()) -> list[AuditEvent]:
        """Return every event of a task, open or closed, oldest first.

        Where no worker process is up, they are made of the task's history, up to what a worker read
        last. So they are where workflow code fails, and the last one says that. The last of another
        one that is blocked says by what.

        Args:
            task: The task.
            secrets: Texts to be replaced wherever they occur.
        """
        check_arguments(TaskReading.audit, secrets=secrets)
        block = ""
        try:
            entries, opens = await self._read.ledger(id_of(task), legible=True)
            block = await self._read.block_of(id_of(task))
        except (NoWorkerError, StuckTaskError):
            from holdfast.client.agent_runner.task_client.forced import replayed

            found = await replayed(self._read, id_of(task))
            entries, opens = found.entries, found.opens
        now = [AuditEvent(time=time.time(), kind="blocked", reason=block)] if block else []
        return audit_events(entries, secrets, opens=opens, now=now)

    async def verify(self, task: TaskLike) -> Verification:
        """Recompute the task's digests; return where they do not fit, or nothing.

        They are compared with what the task itself has while it is open, with what Temporal keeps
        of its closed run, and with the signature of its record, if there is a key
        (`HOLDFAST_SIGNING_KEY`). The turns that the task read from its session, and the one that it
        committed, are compared with the session. `proved` and `unproved` of the list name what
        could be compared and what could not.
        """
        return await verified(self._read, id_of(task))

    async def ledger(self, task: TaskLike) -> list[Entry]:
        """Return every record of a task: steps, commands and failures, oldest first."""
        return await self._read.entries(id_of(task))
