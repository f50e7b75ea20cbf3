"""Reading tasks: open ones by query, closed ones from the archive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCStatusCode

from holdfast.archive.archive import Archive
from holdfast.archive.contents import ReadText, read_json, resolve, resolve_message
from holdfast.archive.segments import archived_step, read_archived, read_messages
from holdfast.archive.session_commits import read_resting
from holdfast.engine.search_attributes import HF_STATUS
from holdfast.errors import (
    DAMAGED,
    ArchiveError,
    ConnectError,
    HoldfastError,
    NoWorkerError,
    QueryFailedError,
    StepNotFoundError,
    StuckTaskError,
    TaskClosedError,
    TaskNotFoundError,
    is_torn,
)
from holdfast.reading.queries import TaskQueries, has_begun, server_errors, why_blocked, why_ended
from holdfast.reading.records import Records
from holdfast.reading.visibility import listed
from holdfast.task.data.calls import Approval, Outcome, StandingRule
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, OpenState, StepRecord
from holdfast.task.data.state import SessionState, TaskInput, TaskRecord
from holdfast.task.data.wire import EntriesPage, EntriesRequest, View, ViewRequest
from holdfast.task.ledger.recording import input_message, resolve_adds, told
from holdfast.task.queries.pages import StepView
from holdfast.task.step_body import StepBody
from holdfast.task.undo import active_messages, active_steps
from holdfast.values.base import canonical
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Blob, Message, ToolCall, Usage, shown
from holdfast.values.parts.sources import read_nodes
from holdfast.values.runs.status import CLOSED
from holdfast.values.steps import Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.logs import log

T = TypeVar("T")

ONLY_OPENS = EntriesRequest(skip=10**9, opens=True)


class Reader(TaskQueries):
    """Reads the tasks of one namespace and archive.

    Attributes:
        archive: The namespace's archive.
        records: The records of its closed tasks.
    """

    def __init__(self, client: Client, archive: Archive) -> None:
        """Use this client and this archive."""
        super().__init__(client)
        self.archive = archive
        self.records = Records(self, archive)

    async def read(
        self, task_id: str, ask: Callable[[WorkflowExecution | None], Awaitable[T]]
    ) -> T | TaskRecord:
        """Read from a task by query while it is open; return its record once it is closed.

        Args:
            task_id: The task.
            ask: Queries the task. Its argument is what the server says of a closed task without a
                record: one that was ended with Temporal's own tools was not stored, but its history
                can be replayed.

        Raises:
            TaskNotFoundError: Neither Temporal nor the archive has a task of this id.
        """
        try:
            return await ask(None)
        except (TaskClosedError, TaskNotFoundError) as closed:
            is_known = isinstance(closed, TaskClosedError)
            try:
                record = await self.records.read(task_id)
            except ArchiveError as error:
                if not (is_known and is_torn(error)):
                    raise
                log.warning("The history of %r is read in place of its record: %s", task_id, error)
                record = None
            if record is not None:
                return record
            if not is_known:
                raise
            return await ask(await self.describe(task_id))

    async def task(self, task_id: str) -> Task:
        """Describe a task, open or closed, with its whole input.

        Raises:
            TaskNotFoundError: No task has this id.
        """

        async def ask(ended: WorkflowExecution | None) -> Task:
            if ended is None:
                return await self.query(task_id, "task_value", Task)
            why = {"error": await why_ended(self.client, ended)}
            known = (await listed(ended)).model_copy(update=why)
            try:
                task = await self.query(task_id, "task_value", Task, even_closed=ended)
            except (NoWorkerError, QueryFailedError):
                return known
            error = task.error or known.error
            return task.model_copy(update={"status": known.status, "error": error})

        task = await self.read(task_id, ask)
        if isinstance(task, TaskRecord):
            task = Task.model_validate(task.task)
            task = await self.settled(task) if task.unsettled else task
        if task.stored is None:
            return task
        return task.model_copy(update={"input": await self.text(task.stored), "stored": None})

    async def settled(self, task: Task) -> Task:
        """Add to a closed task's cost what tasks of its calls have cost since it has ended.

        It does not wait for long until they have ended, and its record cannot be changed later.
        """

        async def read(name: str) -> Task | None:
            try:
                return await self.task(name)
            except HoldfastError as error:
                log.warning(
                    "The cost of %r lacks what %r may have cost: %s", task.task_id, name, error
                )
                return None

        told = task.unsettled
        found = await some_at_once(read, list(told))
        usage, unsettled = task.usage, dict[str, Usage]()
        for (name, known), child in zip(told.items(), found, strict=True):
            if child is None:
                unsettled[name] = known
                continue
            usage += child.usage - known
            if child.status not in CLOSED or child.unsettled:
                unsettled[name] = child.usage
        return task.model_copy(update={"usage": usage, "unsettled": unsettled})

    async def with_block(self, task_id: str) -> Task:
        """Describe a task as `task` does, and say what blocks it while it is to run.

        Raises:
            TaskNotFoundError: No task has this id.
        """
        try:
            task = await self.task(task_id)
        except StuckTaskError:
            found = await self.describe(task_id)
            if why := await why_blocked(self.client, found):
                return (await listed(found)).model_copy(update={"blocked_by": why})
            task = await self.task(task_id)  # it goes on by now
        if task.status == "running":
            return task.model_copy(update={"blocked_by": await self.block_of(task_id)})
        return task

    async def block_of(self, task_id: str) -> str:
        """Say what blocks a task, or nothing where the server does not know the task."""
        with suppress(ConnectError, TaskNotFoundError):  # what was read stays true
            found = await self.describe(task_id)
            if found.typed_search_attributes.get(HF_STATUS) == "running":
                return await why_blocked(self.client, found)
        return ""

    async def entries(self, task_id: str) -> list[Entry]:
        """Read the whole ledger, oldest first."""
        return (await self.ledger(task_id))[0]

    async def ledger(
        self, task_id: str, *, legible: bool = False
    ) -> tuple[list[Entry], tuple[OpenState, ...]]:
        """Read the whole ledger, oldest first, and the steps that are open or were at its end.

        Args:
            task_id: The task.
            legible: Whether it is read to be shown: an entry then says which part of it is lost.

        Raises:
            BlobMissingError: The archive lacks a part of it.
            DigestMismatchError: A part of it was changed.
        """

        async def ask(ended: WorkflowExecution | None) -> tuple[list[Entry], tuple[OpenState, ...]]:
            if ended is not None and not has_begun(ended):
                return [], ()
            page, entries = await self.pages(task_id, even_closed=ended or False)
            archived = await read_archived(self.archive, page.segment, legible=legible)
            return archived + entries, page.opens

        found = await self.read(task_id, ask)
        if not isinstance(found, TaskRecord):
            return found
        return await read_archived(self.archive, found.segment, legible=legible), found.opens

    async def pages(
        self, task_id: str, *, even_closed: bool | WorkflowExecution
    ) -> tuple[EntriesPage, list[Entry]]:
        """Read what a task itself has of its ledger; begin again when it rolls over meanwhile.

        Returns:
            The last page, which has all but the entries, and the entries that are not archived.
        """
        entries: list[Entry] = []
        first: EntriesPage | None = None
        while True:
            page = await self.query(
                task_id,
                "entries",
                EntriesPage,
                EntriesRequest(skip=len(entries), opens=True),
                even_closed=even_closed,
            )
            if first is not None and first.segment != page.segment:
                entries, first = [], None
                continue
            first = page
            entries.extend(page.entries)
            if not page.more:
                return page, entries

    async def steps(self, task_id: str, *, to_answer: bool = False) -> list[TaskStepOutput]:
        """Read the completed steps of the present branch, oldest first.

        Args:
            task_id: The task.
            to_answer: Whether the last output is an answer, which must not be lost.
        """
        active = active_steps(await self.entries(task_id))
        if to_answer and active and active[-1].stored is not None:
            await self.text(active[-1].stored)
        return [await self.output(task_id, each, self.legible) for each in active]

    async def steps_of(self, task_id: str, entries: Sequence[Entry]) -> list[TaskStepOutput]:
        """Read all steps of a ledger, undone ones too, oldest first."""
        kept = {id(record) for record in active_steps(entries)}
        made = [entry.step for entry in entries if entry.step is not None]
        read = [await self.output(task_id, record, self.legible) for record in made]
        marks = [{} if id(record) in kept else {"status": "undone"} for record in made]
        return [o.model_copy(update=mark) for o, mark in zip(read, marks, strict=True)]

    async def head(self, task_id: str) -> TaskHead:
        """Read a task's head."""

        async def ask(ended: WorkflowExecution | None) -> View:
            return await self.query(
                task_id, "view", View, ViewRequest(head=True), even_closed=ended
            )

        return (await self.read(task_id, ask)).head or TaskHead(agent="")

    async def begun_head(self, task_id: str) -> TaskHead:
        """Read the head that an open task has begun with, by its history: no worker is asked.

        Raises:
            RPCError: There is no such task.
        """
        handle = self.client.get_workflow_handle(task_id)
        with server_errors(RPCStatusCode.NOT_FOUND):
            begun = await anext(handle.fetch_history_events(page_size=1))
        given = begun.workflow_execution_started_event_attributes.input.payloads
        [read] = await self.client.data_converter.decode([*given], [TaskInput])
        return cast("TaskHead", read.head)

    async def failure(self, task_id: str) -> Failure | None:
        """Read what is in a task's way, or what ended it; None when nothing is known."""

        async def ask(ended: WorkflowExecution | None) -> View:
            asked = ViewRequest(failure=True)
            try:
                return await self.query(task_id, "view", View, asked, even_closed=ended)
            except (NoWorkerError, QueryFailedError):
                if ended is None:
                    raise
                return View()

        return (await self.read(task_id, ask)).failure

    async def upcoming(self, task_id: str) -> list[TaskStep]:
        """Read the step in progress and the queued ones; a closed task has none."""

        async def ask(ended: WorkflowExecution | None) -> list[TaskStep]:
            return [] if ended else await self.query(task_id, "upcoming", list[TaskStep])

        found = await self.read(task_id, ask)
        return [] if isinstance(found, TaskRecord) else found

    async def approvals(self, task_id: str) -> list[Approval]:
        """Read the approvals of an open task: open ones, and decided ones of its open steps."""
        try:
            return await self.query(task_id, "approval_values", list[Approval])
        except TaskClosedError:
            return []

    async def session(self, session_id: str) -> SessionState:
        """Read what a session remembers: from itself, or of one that rests from the archive.

        Raises:
            TaskNotFoundError: There is no such session.
            ArchiveError: The memory of a session that rests cannot be read.
        """
        rests = False
        try:
            return await self.query(session_id, "state", SessionState)
        except TaskClosedError as error:
            rests = getattr(error.__cause__, "status", None) is WorkflowExecutionStatus.COMPLETED
            if not rests:  # it was ended from outside: its memory is still there
                return await self.query(session_id, "state", SessionState, even_closed=True)
        except TaskNotFoundError:
            pass
        if (kept := await read_resting(self.archive, session_id, rests=rests)) is None:
            raise TaskNotFoundError(session_id)
        return kept

    async def session_so_far(self, session_id: str) -> SessionState:
        """Read what a session remembers so far, which may be nothing.

        Raises:
            ArchiveError: As for `session`.
        """
        with suppress(TaskNotFoundError):
            return await self.session(session_id)
        return SessionState()

    async def standing_rules(self, task_id: str) -> list[StandingRule]:
        """Read the decisions of an open task, or of a session, that hold for later calls."""
        with suppress(TaskClosedError):
            return await self.query(task_id, "standing_rules", list[StandingRule])
        return []

    async def step(self, task_id: str, n: int) -> TaskStepOutput:
        """Read one completed step by its ordinal.

        Raises:
            StepNotFoundError: The present branch has no completed step of this ordinal.
        """

        async def ask(ended: WorkflowExecution | None) -> StepView:
            return await self.query(task_id, "step", StepView, n, even_closed=ended)

        view = await self.read(task_id, ask)
        record = None if isinstance(view, TaskRecord) else view.record
        record = record or await archived_step(self.archive, view.segment, n)
        if record is not None:
            return await self.output(task_id, record)
        raise StepNotFoundError(f"Could not find step number {n} of task {task_id!r}")

    async def waiting(self, task_id: str, n: int, *, or_done: bool = False) -> TaskStepOutput:
        """Read what a task waits for in its step of this number.

        When it was decided meanwhile, the output waits for nothing: ask again.

        Args:
            task_id: The task.
            n: Ordinal of the step.
            or_done: Whether to return the step's own output, if it is done.
        """
        try:
            view = await self.query(task_id, "step", StepView, 0)
        except (TaskClosedError, TaskNotFoundError):
            view = StepView()
        if not (view.waiting_for and view.n in (0, n)):
            view = view.model_copy(update={"waiting_for": (), "approvals": ()})
            if or_done:
                steps = active_steps(await self.entries(task_id))
                record = next((step for step in reversed(steps) if step.key == n), None)
                if record is not None:
                    return await self.output(task_id, record)
        step = view.step.model_copy(update={"task_id": task_id})
        return TaskStepOutput(
            status="waiting", task_step=step, waiting_for=view.waiting_for, approvals=view.approvals
        )

    async def all_waiting(self, task_id: str) -> list[TaskStepOutput]:
        """Read what each step in progress waits for, in the order in which they were begun."""
        page = await self.query(task_id, "entries", EntriesPage, ONLY_OPENS)
        asked = [
            approval for approval in await self.approvals(task_id) if approval.status == "open"
        ]
        outputs: list[TaskStepOutput] = []
        for current in page.opens:
            own = [approval for approval in asked if approval.n == current.n]
            output = TaskStepOutput(
                status="waiting",
                task_step=current.open.step.model_copy(update={"task_id": task_id}),
                waiting_for=tuple(approval.line for approval in own),
                approvals=tuple(approval.id for approval in own),
            )
            outputs.append(output)
        return outputs

    async def output(
        self, task_id: str, of: StepRecord | StepBody, text: ReadText | None = None
    ) -> TaskStepOutput:
        """Make the public form of a completed step, archived texts put in.

        Args:
            task_id: The task.
            of: The step.
            text: Reads its output: `text` if it is None, or `legible`, as its other values are.
        """
        sources: list[ToolOutput] = []
        own: dict[str, object] = {"task_id": task_id}
        calls = of.calls if isinstance(of, StepRecord) else tuple([each.call for each in of.calls])
        if isinstance(of, StepRecord):
            for _, _, call, done in of.made():
                sources.append(await self.source(call, done, told(of.adds, call, done)))
        else:
            sources = [
                await self.source(each.call, each.outcome, each.message)
                for each in of.all_calls()
                if each.outcome is not None and each.message is not None
            ]
        return TaskStepOutput(
            output=of.output
            if of.stored is None
            else await read_json(None, of.stored, text or self.text),
            task_step=of.step.model_copy(update=own),
            next_steps=tuple(step.model_copy(update=own) for step in of.next),
            is_last=of.last,
            usage=of.usage,
            branch=of.branch,
            calls=calls,
            sources=tuple(sources),
        )

    async def source(self, call: ToolCall, outcome: Outcome, message: Message) -> ToolOutput:
        """Make the public form of one tool result, archived texts put in."""
        nodes, said = outcome.nodes, message.content
        return ToolOutput(
            tool_name=call.name,
            call_id=call.id,
            raw_input=outcome.edited or call.arguments,
            content=said if isinstance(said, str) else shown(await resolve(said, self.legible)),
            is_error=message.is_error,
            status=outcome.status,
            attempts=outcome.attempts,
            nodes=read_nodes(await self.legible(nodes)) if isinstance(nodes, Blob) else nodes,
            child_task=outcome.child,
            artifacts=outcome.artifacts,
        )

    async def transcript(self, task_id: str) -> list[Message]:
        """Read a task's messages, oldest first."""
        found = active_messages(await self.entries(task_id))
        return [await resolve_message(message, self.legible) for message in found]

    async def all_messages(self, task_id: str) -> list[Message]:
        """Read a task's messages and those of its open steps, oldest first."""
        entries, opens = await self.ledger(task_id)
        found = active_messages(entries)
        for current in opens:
            found.extend(open_messages(current))
        return [await resolve_message(message, self.legible) for message in found]

    async def resolve(self, message: Message) -> Message:
        """Put what is archived of a message into it."""
        return await resolve_message(message, self.text)

    async def turn(self, sha256: str, *, legible: bool) -> list[Message]:
        """Read what a turn has left in its session; `legible` is as for `ledger`."""
        try:
            found = await read_messages(self.archive, sha256)
        except DAMAGED as error:
            if not legible:
                raise
            return [Message(role="system", content=f"[This turn cannot be read: {error}]")]
        text = self.legible if legible else self.text
        return [await resolve_message(message, text) for message in found]

    async def text(self, blob: Blob) -> str:
        """Read a text of the archive."""
        return (await self.archive.aget(blob.sha256)).decode("utf-8", "surrogatepass")

    async def legible(self, blob: Blob) -> str:
        """Read a text of the archive to show it; in place of a lost one, say which it is and why.

        No model is sent what this returns. In place of JSON data it is a list of one object, which
        also reads as the nodes of a result, and as the items of a provider.
        """
        try:
            return await self.text(blob)
        except DAMAGED as error:
            said = f"[This value cannot be read: {error}]"
            if not blob.is_json:
                return said
            return canonical([{"id": blob.sha256, "type": "unreadable", "text": said}]).decode()


def open_messages(current: OpenState) -> list[Message]:
    """List what an open step has said so far: its input, answers, and results of tools."""
    found: list[Message] = []
    if current.result is not None:
        found.extend(resolve_adds(current.result, current))
    else:
        opened = current.open
        if opened.stored is not None or opened.step.message() is not None:
            found.append(input_message(opened))
        for entry in current.journal:
            if entry.answer is not None:
                found.append(entry.answer.message)
            pairs = zip(entry.calls, entry.outcomes, strict=True)
            found.extend(outcome.message(call) for call, outcome in pairs)
    if current.result is not None and current.result.quiet:
        return found
    done = ((call, current.outcomes.get(i)) for i, call in enumerate(current.calls))
    found.extend(outcome.message(call) for call, outcome in done if outcome is not None)
    return found
