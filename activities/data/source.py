"""Where an activity reads its task's records: queries of the workflow, the archive, the session.

Of these it makes the conversation that a step's agent sees. Large texts, images and files are in
the archive, and history refers to their bytes.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from itertools import takewhile
from typing import NamedTuple, TypeVar

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.data.cache import Cache, Conversation, TaskMemory
from holdfast.activities.data.registry import Registry
from holdfast.activities.user_loop import working
from holdfast.archive.archive import Archive
from holdfast.archive.contents import (
    check_reference,
    read_json,
    refer,
    refer_any,
    rehydrate,
    resolve,
    resolve_message,
    store_image,
    with_parts,
)
from holdfast.archive.segments import archived_step, read_back, read_messages, read_turns
from holdfast.archive.session_commits import is_gone, read_resting, send_claim
from holdfast.errors import ArchiveError, DigestMismatchError, EngineError, QueryFailedError
from holdfast.models.openai.hosted_items import outlines
from holdfast.reading.queries import while_busy
from holdfast.task.data.calls import Outcome, call_digest
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.records import (
    Entry,
    InputRef,
    JournalEntry,
    OpenStep,
    SegmentRef,
    usual_step,
)
from holdfast.task.data.state import Claim, SessionState, head_digest
from holdfast.task.data.wire import (
    INLINE_BYTES,
    AdvanceInput,
    EntriesPage,
    EntriesRequest,
    ToolInput,
    View,
    ViewRequest,
)
from holdfast.task.ledger.recording import output_digest
from holdfast.task.queries.pages import StepView, take_last_page
from holdfast.task.undo import active_messages
from holdfast.values.base import ChainRef, Json, canonical, digest, extend, in_order
from holdfast.values.checks.gate import clean
from holdfast.values.messages import (
    Artifact,
    Blob,
    Content,
    FilePart,
    ImagePart,
    ImageRef,
    Message,
    Part,
    TextPart,
    ToolCall,
)
from holdfast.values.parts.images import Image, Kind, write_file_data
from holdfast.values.parts.sources import SourceNode, read_nodes
from holdfast.values.steps import Task, TaskStep

T = TypeVar("T")

PATIENCE_SECONDS = (0.1, 0.4, 1, 2, 4, 8, 15, 25)
"""Waits between the attempts to store a value that must not be lost."""


class LargeValues:
    """Reads and stores the large values of one archive for the activities of a worker process.

    Attributes:
        archive: The archive.
        cache: Texts and images that were read or stored last.
    """

    def __init__(self, archive: Archive, cache: Cache) -> None:
        """Use this archive and this cache."""
        self.archive = archive
        self.cache = cache

    async def resolve(self, message: Message) -> Message:
        """Put what is archived of a message into it."""
        return await resolve_message(message, self.text)

    async def content(self, content: Content) -> Content:
        """Read the texts of a content that are in the archive."""
        return content if isinstance(content, str) else await resolve(content, self.text)

    async def nodes(self, outcome: Outcome) -> tuple[SourceNode, ...]:
        """Read what a result rests on."""
        nodes = outcome.nodes
        return read_nodes(await self.text(nodes)) if isinstance(nodes, Blob) else nodes

    async def text(self, blob: Blob) -> str:
        """Read a text of the archive."""
        text = self.cache.texts.get(blob.sha256)
        if text is None:
            text = (await self.archive.aget(blob.sha256)).decode("utf-8", "surrogatepass")
            self.cache.texts.keep(blob.sha256, text, len(text))
        return text

    async def rehydrate(self, message: Message) -> Message:
        """Put the bytes of its images into a message that is about to be sent to a model."""
        return await rehydrate(message, self._data)

    async def _data(self, kind: Kind, ref: ImageRef) -> str:
        await check_reference(kind, ref, self)
        name = f"{ref.media_type} {ref.sha256}"
        data = self.cache.images.get(name)
        if data is None:
            data = write_file_data(ref.media_type, await self.archive.aget(ref.sha256))
            self.cache.images.keep(name, data, len(data))
        return data

    async def offload(self, message: Message) -> Message:
        """Move large texts, large provider items and the bytes of images to the archive."""
        kept = await self.store_json(list(message.items)) if message.items else None
        if kept is not None:
            short = outlines(message.items)
            message = message.model_copy(update={"items": short, "kept": kept})
        if not isinstance(message.content, str):
            return await with_parts(message, self._offload_part)
        text = clean(message.content)
        content = await self.store(text) or text
        if content == message.content:
            return message
        return message.model_copy(update={"content": content})

    async def _offload_part(self, part: Part) -> Part:
        if not isinstance(part, TextPart):
            return await refer_any(part, self)
        text = clean(part.text)
        stored = await self.store(text) or part.stored
        return TextPart(kind="text", text="" if stored else text, stored=stored)

    async def refer(self, part: ImagePart) -> ImagePart:
        """Name an image by reference, its bytes in the archive."""
        return await refer(part, self)

    async def store_result(self, said: str | Sequence[str | Image | FilePart]) -> Content:
        """Return a tool's result as history holds it: large texts, images, files by reference."""
        if isinstance(said, str):
            return await self.store(clean(said)) or clean(said)
        parts = [
            await store_image(each, self)
            if isinstance(each, Image)
            else await self._offload_part(
                each if isinstance(each, FilePart) else TextPart(kind="text", text=each)
            )
            for each in said
        ]
        return tuple(parts)

    async def store(self, text: str, *, is_json: bool = False) -> Blob | None:
        """Store a text if it is too large for history."""
        if len(text) <= INLINE_BYTES // 4:  # four bytes a character is the most
            return None
        data = text.encode("utf-8", "surrogatepass")
        if len(data) <= INLINE_BYTES:
            return None
        blob = Blob(sha256=await self.aput(data), size=len(data), is_json=is_json)
        self.cache.texts.keep(blob.sha256, text, len(text))
        return blob

    async def store_json(self, data: Json) -> Blob | None:
        """Store JSON data if it is too large for history."""
        plain = isinstance(data, str)
        text = data if plain else in_order(data).decode("utf-8", "surrogatepass")
        return await self.store(clean(text), is_json=not plain)

    async def archived(self, text: str) -> Blob:
        """Store a text whatever its size; one that was just stored is not written again."""
        data = text.encode("utf-8", "surrogatepass")
        sha256 = digest(data)
        if self.archive.encrypted is not None or self.cache.texts.get(sha256) is None:
            await self.aput(data)  # of other tasks it may be erased
            self.cache.texts.keep(sha256, text, len(text))
        return Blob(sha256=sha256, size=len(data))

    async def aput(self, data: bytes) -> str:
        """Store bytes with patience: what they say has been paid for, or has taken effect.

        Raises:
            ArchiveError: The archive could not be written for about a minute.
        """
        return await _patiently(partial(self.archive.aput, data))

    async def amac(self, text: str) -> str:
        """Make the code of a reference, with the same patience."""
        return await _patiently(partial(self.archive.amac, text))

    async def written(self, outcome: Outcome) -> None:
        """Write an outcome as Temporal will write it, and read it again; wait for the archive.

        Raises:
            ArchiveError: It is large, and the archive could not be written for about a minute.
            Exception: It cannot be written, or what is written cannot be read.
        """
        converter = activity.client().data_converter
        payloads = await _patiently(partial(converter.encode, [outcome]))
        await converter.decode(payloads, [Outcome])


async def _patiently(write: Callable[[], Awaitable[T]]) -> T:
    """Write to the archive, again and again while it refuses.

    Raises:
        ArchiveError: It did so for about a minute.
    """
    for wait in PATIENCE_SECONDS:
        try:
            return await write()
        except ArchiveError:
            await asyncio.sleep(wait)
    return await write()


_left_queue: ContextVar[bytes] = ContextVar("holdfast_left_queue", default=b"")
"""Task token of the activity attempt that has left the queue of a worker that may be dead."""


class Source(LargeValues):
    """Reads tasks for the activities of one worker process."""

    def memory(self) -> TaskMemory:
        """Return what is known of the task that the current activity works for."""
        info, loop = activity.info(), asyncio.get_running_loop()
        return self.cache.task(info.workflow_id or "", info.workflow_run_id or "", loop)

    async def head(self, known: str = "") -> TaskHead:
        """Return the task's head.

        Args:
            known: Its digest, if the task has sent it along. One that has changed once more is as
                it is now.
        """
        memory = self.memory()
        async with memory.finding:
            if known and memory.head_digest != known:  # it has changed, or is not known to be this
                if memory.head is None or head_digest(memory.head) != known:
                    memory.head = self.cache.heads.get(known)
                memory.head_digest = known
            if memory.head is None or not memory.head.snapshot:
                memory.head = (await self._view(ViewRequest(head=True))).head
        if memory.head is None:
            raise DigestMismatchError(f"Task {task_id()!r} answered without its head.")
        if (work := working.get()) is not None:
            work.head = memory.head
        return memory.head

    async def transcript(self, at: ChainRef) -> tuple[Message, ...]:
        """Return the first `at.length` messages, contents resolved, after checking their digest.

        Raises:
            DigestMismatchError: What is recorded does not give the digest.
        """
        return (await self.conversation(at)).messages

    async def conversation(self, at: ChainRef) -> Conversation:
        """Return the same, and which of the messages hold more than a text.

        Raises:
            DigestMismatchError: As for `transcript`.
        """
        memory = self.memory()
        async with memory.lock:  # two attempts of one step would append the same messages twice
            if memory.holds(at) and at.length < len(memory.recorded):
                memory.cut(at.length)  # an undo has moved the head back
            if not memory.holds(at):
                guess = memory.guess(at)
                if guess is None:
                    await self._fetch(memory, at)
                else:
                    memory.append(guess, [await self.resolve(message) for message in guess])
            return memory.conversation(at.length)

    async def _fetch(self, memory: TaskMemory, at: ChainRef) -> None:
        """Ask for what is missing; once more for everything when the digest does not fit."""
        for _ in range(2):
            while len(memory.recorded) < at.length:
                await self._fetch_page(memory, at.length)
            if memory.holds(at):
                return
            memory.forget()
        raise DigestMismatchError(
            f"The recorded messages of task {task_id()!r} do not give the digest recorded for them"
            f" ({at.digest} over {at.length} messages). Something was changed in the history or in"
            " the archive; the task does not go on from it."
        )

    async def _fetch_page(self, memory: TaskMemory, upto: int) -> None:
        have = len(memory.recorded)
        got = await self._view(ViewRequest(have=have, upto=upto))
        messages: Sequence[Message] = got.messages
        if got.segment is not None:
            messages = await self._archived(got.segment, have, got.base)
        if not messages:
            msg = f"Task {task_id()!r} lacks messages {have} to {upto} of its transcript."
            raise DigestMismatchError(msg)
        memory.append(messages, [await self.resolve(message) for message in messages])

    async def _archived(self, newest: SegmentRef, have: int, upto: int) -> list[Message]:
        """Return archived messages of the transcript, of `upto` those after the first `have`.

        The newest segments end with them, so that a worker that knows the others need not read a
        long task from its beginning. After an undo that reached into the archive, and is not there
        yet, these are other messages; their digest shows it, and the caller asks for all.
        """
        entries: list[Entry] = []
        count = 0
        async with aclosing(read_back(self.archive, newest)) as parts:
            async for part in parts:
                entries = [*part.entries, *entries]
                count += sum(len(each.step.adds) for each in part.entries if each.step is not None)
                if not have or count < upto - have:
                    continue
                said = active_messages(entries)
                if len(said) >= upto - have:
                    return said[have - upto :]
        return active_messages(entries)[have:upto]

    async def opened(self, given: AdvanceInput) -> OpenStep:
        """Return the open step, with its input resolved."""
        opened = given.open or (
            None if given.digest else OpenStep.model_validate(usual_step(given.n))
        )
        if opened is None:
            opened = (await self._view(ViewRequest(n=given.n, open=True))).open
            if opened is None or digest(canonical(opened.wire())) != given.digest:
                msg = f"Step {given.n} of task {task_id()!r} is not the one that was scheduled."
                raise DigestMismatchError(msg)
        return opened

    async def journal(self, given: AdvanceInput) -> tuple[JournalEntry, ...]:
        """Return the step's answered calls, as recorded."""
        memory = self.memory()
        if given.journal.length == 0:
            memory.drop_journal(given.n)
            return ()
        async with memory.lock:
            return await self._journal(memory, given)

    async def _journal(self, memory: TaskMemory, given: AdvanceInput) -> tuple[JournalEntry, ...]:
        known = memory.journals.get(given.n, ())[: given.journal.length]
        if extend("", known) == given.journal.digest:
            return known
        entries: list[JournalEntry] = []
        while len(entries) < given.journal.length:
            got = await self._view(ViewRequest(n=given.n, journal=len(entries)))
            if not got.journal:
                break
            entries.extend(got.journal)
        journal = tuple(entries[: given.journal.length])
        memory.put_journal(given.n, journal)
        if extend("", journal) != given.journal.digest:
            msg = f"The journal of step {given.n} of task {task_id()!r} does not give its digest."
            raise DigestMismatchError(msg)
        return journal

    async def call(self, given: ToolInput) -> tuple[ToolCall, dict[str, Json]]:
        """Return the call to run and the state that its tool sees."""
        memory = self.memory()
        async with memory.finding:
            call = _known(memory, given)
            if call is None:
                got = await self._view(ViewRequest(n=given.n, calls=True))
                memory.open_calls(given.n, got.calls)
                call = _known(memory, given)
        if call is None:
            raise DigestMismatchError(
                f"Call {given.i} of step {given.n} of task {task_id()!r} is not the scheduled one."
            )
        if not given.big:
            return call, dict(given.state)
        return call, dict((await self._view(ViewRequest(n=given.n, state=True))).state)

    async def record(self, ledger: ChainRef) -> tuple[Task, EntriesPage, list[Entry]]:
        """Return the task with its whole input, and the ledger entries that are not archived yet.

        One query for both, because each costs a workflow activation; none where the task runs in
        this process and has handed them over.

        Args:
            ledger: The ledger at which the task closes.
        """
        page = take_last_page(task_id(), activity.info().workflow_run_id or "", ledger)
        if page is not None:
            entries = list(page.entries)
        else:
            page, entries = await self.entries(task=True)
        task = page.task or await self.status()  # a worker of before a deploy sends none
        return await self._with_input(task), page, entries

    async def entries(self, *, task: bool = False) -> tuple[EntriesPage, list[Entry]]:
        """Return the ledger entries that are not archived yet; the last page describes the task."""
        entries: list[Entry] = []
        while True:
            asked = EntriesRequest(skip=len(entries), opens=True, task=task)
            got = await self._query("entries", EntriesPage, asked)
            entries.extend(got.entries)
            if not got.more:
                return got, entries

    async def output(self, ref: InputRef) -> Json:
        """Return the output of a completed step.

        Raises:
            DigestMismatchError: The ledger has another output for it.
        """
        memory = self.memory()
        if ref not in memory.outputs:
            memory.put_output(ref, await self._output(ref))
        return copy.deepcopy(memory.outputs[ref])

    async def _output(self, ref: InputRef) -> Json:
        view = await self._query("step", StepView, ref.n)
        record = view.record or await archived_step(self.archive, view.segment, ref.n)
        if record is None or output_digest(record) != ref.digest:
            msg = f"Step {ref.n} of task {task_id()!r} has not the output that was handed on."
            raise DigestMismatchError(msg)
        return await read_json(record.output, record.stored, self.text)

    async def output_of(self, n: int) -> View:
        """Return what a step that is about to end gives, the state it leaves, and the cost."""
        return await self._view(ViewRequest(n=n, output=True))

    async def task(self) -> Task:
        """Return the task as it is now, with its whole input."""
        return await self._with_input(await self.status())

    async def artifact(self, reference: str) -> tuple[Artifact, bytes]:
        """Return an artifact that the task may read, with its bytes.

        Raises:
            NotFoundError: Neither the task nor its parent or child tasks have it.
        """
        from holdfast.reading.artifacts import artifact_for  # few tasks have artifacts
        from holdfast.reading.reader import Reader

        return await artifact_for(Reader(activity.client(), self.archive), task_id(), reference)

    async def status(self) -> Task:
        """Return the task as it is now; of a long input, its beginning."""
        return await self._query("task_value", Task)

    async def _with_input(self, task: Task) -> Task:
        if task.stored is None:
            return task
        return task.model_copy(update={"input": await self.text(task.stored)})

    async def stored_list(self, sha256: str) -> Conversation:
        """Read a list of messages of the archive, contents resolved."""
        memory = self.memory()
        if sha256 not in memory.lists:
            found = await read_messages(self.archive, sha256)
            whole = Conversation.of([await self.resolve(message) for message in found])
            memory.put_list(sha256, whole)
        return memory.lists[sha256]

    # ---- the task

    async def _view(self, asked: ViewRequest) -> View:
        return await self._query("view", View, asked)

    async def _query(self, name: str, kind: type[T], *args: object) -> T:
        """Ask the task, one question after the other, and again while others keep it busy.

        Raises:
            QueryFailedError: This is a local activity: the task answers no query before its end.
        """
        if activity.info().is_local:
            msg = f"A local activity cannot ask its task {task_id()!r}, which waits for it."
            raise QueryFailedError(msg)
        handle = await self._reach()
        async with self.memory().asking:
            return await while_busy(lambda: handle.query(name, args=list(args), result_type=kind))

    async def _reach(self) -> WorkflowHandle[object, object]:
        """Return the task's handle, after leaving the queue of a worker that may be dead."""
        info = activity.info()
        if info.attempt > 1 and _left_queue.get() != info.task_token:
            _left_queue.set(info.task_token)  # once: each reset costs the task its sticky cache
            await activity.client().workflow_service.reset_sticky_task_queue(
                ResetStickyTaskQueueRequest(
                    namespace=info.namespace,
                    execution=WorkflowExecution(
                        workflow_id=task_id(), run_id=info.workflow_run_id or ""
                    ),
                )
            )
        return activity.client().get_workflow_handle(task_id(), run_id=info.workflow_run_id)


def _known(memory: TaskMemory, given: ToolInput) -> ToolCall | None:
    """Return the call that was scheduled, if it is here."""
    calls = memory.calls.get(given.n, ())
    call = given.call or (calls[given.i] if given.i < len(calls) else None)
    return call if call is not None and call_digest(call) == given.sha else None


def task_id() -> str:
    """Return the id of the task that the current activity works for."""
    return activity.info().workflow_id or ""


def worker_identity() -> str:
    """Return the identity by which histories and audits name this worker."""
    return activity.client().identity


class Seen(NamedTuple):
    """The messages that a step's agent sees, without the ones that the step adds.

    Attributes:
        whole: All of them.
        transcript: The task's own.
        given: Number of messages before the task's own, or instead of the first of them.
    """

    whole: Conversation
    transcript: tuple[Message, ...]
    given: int


class TaskActivities:
    """Activities for the tasks of one worker process."""

    def __init__(self, registry: Registry, source: Source) -> None:
        """Use these agents and this source of task data."""
        self._registry = registry
        self._source = source


async def history_before(source: Source, head: TaskHead) -> Conversation:
    """Return the messages that the model sees before the task's own, oldest first."""
    memory = source.memory()
    if memory.history is None:
        messages: list[Message] = []
        if head.session is not None and head.session.commits:
            messages.extend(await _session(source, head.session))
        if head.reads is not None and head.reads.commits:
            messages.extend(await _session(source, head.reads))
        if head.history:
            messages.extend(await read_messages(source.archive, head.history))
        history = Conversation.of([await source.resolve(message) for message in messages])
        memory.put_history(history)
        return history
    return memory.history


async def seen_before(source: Source, head: TaskHead, step: TaskStep, at: ChainRef) -> Seen:
    """Return what a step's agent sees of the conversation before the step."""
    own, skip = await source.conversation(at), 0
    if step.history is not None:
        history, skip = await source.stored_list(step.history.sha256), step.history.skip
    elif head.session is None and head.reads is None and not head.history:
        return Seen(own, own.messages, 0)
    else:
        history = await history_before(source, head)
    given, transcript = len(history.messages), own.messages[skip:]
    places = (given - skip + k for k in own.not_text if k >= skip)
    # Added, not unpacked: with one that is empty, the other is not copied.
    whole = Conversation(history.messages + transcript, (*history.not_text, *places))
    return Seen(whole, transcript, given)


async def session_now(
    source: Source, session: SessionRef, head: TaskHead
) -> tuple[ChainRef, tuple[str, ...]]:
    """Return the commits that a task sees of its session, and the tasks whose turn comes first."""
    ahead: tuple[str, ...] = ()
    if session.queues:
        state, ahead = await _line(source, session, head)
    else:
        state = SessionState() if session.unread else await _state(source, session)
    seen = ChainRef(state.base + len(state.commits), state.digest)
    return ChainRef() if session.unread else seen, ahead


MOST_CLAIMS = 3


async def _line(
    source: Source, session: SessionRef, head: TaskHead
) -> tuple[SessionState, tuple[str, ...]]:
    """Get in line in the session, and return its state with the open tasks that come first.

    A task is in line already if its client has seen to that. Tasks ahead that have ended without
    a word, as by Temporal's own tools, are taken out of the line.

    Raises:
        ApplicationError: The session does not take it now; a later attempt may have luck.
    """
    client, queue = activity.client(), session.queue or activity.info().task_queue
    read = partial(_state, source, session)
    for _ in range(MOST_CLAIMS):
        state = await read()
        ahead = tuple(takewhile(task_id().__ne__, state.line))
        # Only the last one: who has many before them would look at all of these.
        gone = ahead[-1:] if ahead and await is_gone(client, ahead[-1], state, read) else ()
        if task_id() in state.line and not gone:
            return state, ahead
        claim = Claim(task=task_id(), gone=gone, callers=head.callers)
        await send_claim(client, source.archive, session.id, queue, claim)
    raise ApplicationError(
        f"Session {session.name!r} does not let the task get in line: too many are in it, or an"
        " older worker process serves the session. The task tries again.",
        type=EngineError.__name__,
    )  # both pass with time


async def _state(source: Source, session: SessionRef) -> SessionState:
    """Return what a session remembers now; an unused one remembers nothing."""
    try:
        return await _memory(source, session.id)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return SessionState()
        raise


async def _memory(source: Source, session_id: str) -> SessionState:
    """Return what a session remembers: from itself, or of one that rests from the archive."""
    handle = activity.client().get_workflow_handle(session_id)
    ask = partial(handle.query, "state", result_type=SessionState)
    if_open = QueryRejectCondition.NOT_OPEN
    try:
        return await while_busy(partial(ask, reject_condition=if_open))
    except (WorkflowQueryRejectedError, RPCError) as error:
        rests = error.status is WorkflowExecutionStatus.COMPLETED
        is_kept = rests or error.status is RPCStatusCode.NOT_FOUND
        kept = await read_resting(source.archive, session_id, rests=rests) if is_kept else None
        if kept is not None:
            return kept
        if isinstance(error, RPCError):
            raise
    return await while_busy(ask)  # it was ended from outside, or continued as new meanwhile


async def _session(source: Source, session: SessionRef) -> list[Message]:
    """Read the turns that the session had when the task began."""
    state = await _memory(source, session.id)
    return await read_turns(source.archive, state, session.commits)
