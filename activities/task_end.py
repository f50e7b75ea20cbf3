"""The activities `archive`, `close`, `index` and `rest`: what outlives Temporal's own history."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import activity

from holdfast.activities.data.source import TaskActivities, task_id
from holdfast.activities.failures import typed_failures
from holdfast.activities.heartbeat import current_lease, ensure_ours, heartbeats
from holdfast.activities.spans import tell_of_closed
from holdfast.agents.agent_base import users_agent
from holdfast.agents.guardrails import OutputGuardrailBlockedMessageArgs
from holdfast.archive.archive import Archive
from holdfast.archive.kept_answers import drop_lanes
from holdfast.archive.segments import (
    read_archived,
    read_messages,
    write_messages,
    write_record,
    write_segment,
)
from holdfast.archive.session_commits import ensure_session, write_resting
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.guard_rules import OUTPUT_TRIPPED
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, OpenState, OpenStep, SegmentRef, archived_entries
from holdfast.task.data.state import CommitRef, SessionState, TaskRecord
from holdfast.task.data.wire import Closed, CloseInput, EntriesPage
from holdfast.task.ledger.recording import CLOSED_EVENT, input_message, last_round, resolve_adds
from holdfast.task.queries.pages import closed_task
from holdfast.task.undo import UNDONE, active_steps, without_undo_notes
from holdfast.tracing.switch import may_trace
from holdfast.values.base import canonical
from holdfast.values.checks.gate import as_object, as_text, clean
from holdfast.values.checks.ids import app_of
from holdfast.values.code import user_calls
from holdfast.values.code.user_calls import invoke, invoke_here, naming
from holdfast.values.messages import Message
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.steps import Task, TaskStep
from holdfast.values.text.logs import log

WITHHELD = "[withheld: an output guardrail has blocked this]"


def after_block(current: OpenState, placeholder: str = "") -> tuple[Message, ...]:
    """Return the messages of a blocked step that may be shown again, oldest first.

    The answer is left out, and so are words and reasoning next to tool calls, which may tell of it;
    a text replaces the results of its tools, because one of them may be the blocked output.
    The input of the user and the tool calls of the model stay: the tools were called.

    Args:
        current: The step, open when the task ended.
        placeholder: That text; empty for the usual one.
    """
    if current.result is None:
        return ()
    kept: list[Message] = []
    adds = resolve_adds(current.result, current)
    for message in adds:
        if message.role == "tool":
            kept.append(message.model_copy(update={"content": placeholder or WITHHELD}))
        elif message.role != "assistant":
            kept.append(message)
        elif message.calls:
            kept.append(Message(role="assistant", calls=message.calls))
    _, said = last_round(adds, current.calls)
    for call in current.calls:
        if call.id not in said and not current.result.quiet:
            told = Outcome(content=placeholder or WITHHELD).message(call)
            kept.append(told)
    return tuple(kept)


class ClosingActivities(TaskActivities):
    """Writes to the archive and to sessions for the tasks of one worker process."""

    @activity.defn(name="archive")
    async def archive(self) -> SegmentRef:
        """Store the ledger entries that are not archived yet."""
        with typed_failures():
            async with heartbeats():
                page, entries = await self._source.entries()
                return await write_segment(self._source.archive, entries, page.segment)

    @activity.defn(name="close")
    async def close(self, given: CloseInput) -> Closed:
        """Store the record of the task and the turn for its session.

        The workflow commits the turn afterwards, when nothing can fail any more: a commit made here
        could not be taken back if a later part fails and the task then gets another end.
        """
        with typed_failures():
            # A record that is written twice is the same, unless the task has come to another end.
            async with heartbeats(trusts_start=True):
                closed = await self._close(given)
        user_calls.release(task_id())
        return closed

    @activity.defn(name="close_here")
    async def close_here(self, given: CloseInput) -> Closed | None:
        """Do the work of `close` as a local activity, in the workflow task that ends the task.

        The record is a prepared one: the server may throw the workflow task away, and the task may
        go on. So nothing is done here that could not be done again, or would be missed then.

        Returns:
            None when it could not: the task then schedules `close`, which says why.
        """
        try:
            async with heartbeats():
                current_lease().trust_workflow_task(given.begun)
                return await self._close(given, prepared=True)
        except Exception as error:  # noqa: BLE001  `close` meets it again, and reports it
            log.debug("A task is not closed in its workflow task: %r", error)
            return None

    async def _close(self, given: CloseInput, *, prepared: bool = False) -> Closed:
        source = self._source
        head = await source.head(given.head)
        task, page, entries = await source.record(given.ledger)
        # Without what came since it closes.
        entries = entries[: given.ledger.length - archived_entries(page.segment)]
        turn = await self._turn(head, task, given, page.opens) if given.commit else None
        made = await record_of(source.archive, given, head, task, page, entries)
        app = app_of(activity.info().task_queue)
        record = made.model_copy(update={"app": app, "turn": turn, "prepared": prepared})
        await ensure_ours("writing of the record")  # the task may have come to another end since
        sealed = await write_record(source.archive, task_id(), record)
        at = closed_at(entries)
        if given.lanes:
            await drop_lanes(source.archive, task_id(), given.lanes)
        if may_trace():
            tell_of_closed(head, record, task, given.status, at=at, branch=page.branch)
        source.cache.drop(task_id())
        return Closed(seal=sealed, turn=turn)

    async def _turn(
        self, head: TaskHead, task: Task, given: CloseInput, opens: Sequence[OpenState]
    ) -> CommitRef | None:
        """Let the AgentWorker choose the messages to keep, and store them for the session.

        A list that the run was given comes first. Of a task that has failed before its first step
        was done, the input is kept.

        Returns:
            The turn; None when the session gets none. Else there is a session to commit it to, or
            the caller has one.
        """
        source, session = self._source, head.session
        if not head.has_session:
            return None
        adds = session.adds if session is not None else ""
        before = await read_messages(source.archive, adds) if adds else []
        transcript = without_undo_notes(await source.transcript(given.at))
        worker = self._registry.of(head).agent(head.agent).made_worker
        blocked = await self._blocked(head, given, opens)
        if given.status == "finished" or transcript:
            with naming(f"finalize_task of agent {head.agent!r}", worker.finalize_task):
                said = [*await invoke_here(worker.finalize_task, task, transcript), *blocked]
        else:
            said = blocked or ([] if _is_empty(task) else [_input(task)])
        kept = [*before, *[await source.offload(message) for message in said]]
        if not kept and given.status != "finished":
            return None
        turn = CommitRef(
            task=task_id(), sha256=await write_messages(source.archive, kept), count=len(kept)
        )
        if session is not None:
            queue = session.queue or activity.info().task_queue
            await ensure_session(activity.client(), source.archive, session.id, queue)
        return turn

    async def _blocked(
        self, head: TaskHead, given: CloseInput, opens: Sequence[OpenState]
    ) -> list[Message]:
        """Return what a session keeps of the step whose output a guardrail has blocked."""
        failure = given.failure
        # One that a tool has raised, as of a run within it, tells of no guardrail of this run.
        if failure is None or failure.type != OUTPUT_TRIPPED or not failure.data:
            return []
        rules = head.run
        kept: list[Message] = []
        for each in opens:
            text = rules.blocked_message
            if rules.blocked_formatter:
                text = await self._blocked_text(head, failure, each.n)
            kept += after_block(each, text)
        return kept

    async def _blocked_text(self, head: TaskHead, failure: Failure, n: int) -> str:
        """Let the run's formatter write the text instead of a blocked step's tool results.

        Returns:
            The text; empty for the usual one, also when the formatter fails: the turn counts more.
        """
        known = as_object(failure.data)
        role = "output_guardrail_blocked_message of the run"
        try:
            registry = self._registry.of(head)
            first = await registry.snapshot(head.snapshot)
            agent = registry.agent(as_text(known.get("agent")) or head.agent, first)
            formatter = registry.code(head.run.blocked_formatter)
            state = (await self._source.output_of(n)).state
            args = OutputGuardrailBlockedMessageArgs(
                default_message=WITHHELD,
                guardrail_name=as_text(known.get("name")),
                agent=users_agent(agent),
                run_context=RunContextWrapper(registry.context(head, state), task_id=task_id()),
            )
            with naming(role, formatter):
                said: object = await invoke(formatter, args)
        except Exception:  # it is code of the user's, and may be gone from this process
            log.exception("The %s failed; the usual text replaces its own", role)
            return ""
        if said is not None and not isinstance(said, str):
            log.error("The %s gave a %s, not a text", role, type(said).__name__)
        return clean(said) if isinstance(said, str) else ""

    @activity.defn(name="index")
    async def index(self, commits: list[CommitRef]) -> str:
        """Store a full page of a session's turns."""
        with typed_failures():
            return await self._source.archive.aput(canonical([c.wire() for c in commits]))

    @activity.defn(name="rest")
    async def rest(self, memory: SessionState) -> str:
        """Store the memory of a session that is unused; return the digest of its record."""
        with typed_failures():
            async with heartbeats():
                await ensure_ours("writing of the memory")  # it may have been used since
                return await write_resting(self._source.archive, task_id(), memory)


async def record_of(  # noqa: PLR0917  as they are read of a task
    archive: Archive,
    given: CloseInput,
    head: TaskHead,
    task: Task,
    page: EntriesPage,
    entries: list[Entry],
) -> TaskRecord:
    """Store the rest of the ledger of a task that ends, and make its record.

    Args:
        archive: The namespace's archive.
        given: The end.
        head: Agent, session and rules.
        task: The task, as while it was open.
        page: Its open steps, and the newest segment.
        entries: The entries of its ledger that are not archived.
    """
    segment = page.segment
    if entries:
        segment = await write_segment(archive, entries, segment)
    steps = active_steps(entries)
    if not steps or any(e.event is not None and e.event.kind == UNDONE for e in entries):
        steps = active_steps(await read_archived(archive, segment))
    return TaskRecord(
        task=closed_task(task, given.status, given.failure).wire(),
        head=head,
        segment=segment,
        failure=given.failure,
        output=steps[-1].output if steps else None,
        stored=steps[-1].stored if steps else None,
        transcript=given.at,
        opens=page.opens,
        ledger=given.ledger,
        ended=closed_at(entries),
    )


def closed_at(entries: list[Entry]) -> float:
    """Return the time at which the task began to close, from its newest event of that kind."""
    for entry in reversed(entries):
        if entry.event is not None and entry.event.kind == CLOSED_EVENT:
            return entry.event.at
    return 0.0


def _is_empty(task: Task) -> bool:
    return not (task.input or task.stored or task.images)


def _input(task: Task) -> Message:
    step = TaskStep(input=task.input, images=task.images)
    return input_message(OpenStep(step=step, stored=task.stored))
