"""Where activities get a task's data: from memory, else from the task, else from the archive."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.cache import Cache, TaskMemory
from holdfast.archive import Archive
from holdfast.chain import ChainRef, extend
from holdfast.contents import (
    Kind,
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
from holdfast.errors import ArchiveError, DigestMismatchError
from holdfast.files import write_file_data
from holdfast.images import Image
from holdfast.messages import (
    Blob,
    Content,
    FilePart,
    ImagePart,
    ImageRef,
    Message,
    Part,
    TextPart,
    ToolCall,
    clean,
)
from holdfast.records import (
    Entry,
    InputRef,
    JournalEntry,
    OpenStep,
    Outcome,
    call_digest,
    usual_step,
)
from holdfast.references import output_digest
from holdfast.segments import read_archived, read_messages
from holdfast.sources import SourceNode, read_nodes
from holdfast.steps import Task
from holdfast.task_head import TaskHead
from holdfast.undo import active_messages, active_steps
from holdfast.values import Json, canonical, digest
from holdfast.views import EntriesPage, EntriesRequest, StepView
from holdfast.wire import INLINE_BYTES, AdvanceInput, ToolInput, View, ViewRequest

T = TypeVar("T")

PATIENCE_SECONDS = (0.1, 0.4, 1, 2, 4, 8, 15, 25)
"""Waits between the attempts to store a value that must not be lost."""

BUSY_PAUSES = (0.1, 0.2, 0.5, 1, 2, 3, 5, 5, 5, 5)
"""Waits between the attempts to ask a task that others ask, too."""

_left_queue: ContextVar[bytes] = ContextVar("holdfast_left_queue", default=b"")
"""Task token of the activity attempt that has left the queue of a worker that may be dead."""


class Source:
    """Reads tasks for the activities of one worker process."""

    def __init__(self, archive: Archive, cache: Cache) -> None:
        """Use this archive and this cache."""
        self.archive = archive
        self.cache = cache

    def memory(self) -> TaskMemory:
        """Return what is known of the task that the current activity works for."""
        return self.cache.task(task_id(), activity.info().workflow_run_id or "")

    async def head(self) -> TaskHead:
        """Return the task's head."""
        memory = self.memory()
        async with memory.finding:
            if memory.head is None or not memory.head.snapshot:
                memory.head = (await self._view(ViewRequest(head=True))).head
        if memory.head is None:
            msg = f"Task {task_id()!r} answered without its head."
            raise DigestMismatchError(msg)
        return memory.head

    async def transcript(self, at: ChainRef) -> list[Message]:
        """Return the first `at.length` messages, contents resolved, after checking their digest.

        Raises:
            DigestMismatchError: What is recorded does not give the digest.
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
            return memory.resolved[: at.length]

    async def _fetch(self, memory: TaskMemory, at: ChainRef) -> None:
        """Ask for what is missing; once more for everything when the digest does not fit."""
        for _ in range(2):
            while len(memory.recorded) < at.length:
                await self._fetch_page(memory, at.length)
            if memory.holds(at):
                return
            memory.forget()
        msg = (
            f"The recorded messages of task {task_id()!r} do not give the digest recorded for them"
            f" ({at.digest} over {at.length} messages). Something was changed in the history or in"
            " the archive; the task does not go on from it."
        )
        raise DigestMismatchError(msg)

    async def _fetch_page(self, memory: TaskMemory, upto: int) -> None:
        have = len(memory.recorded)
        got = await self._view(ViewRequest(have=have, upto=upto))
        messages: Sequence[Message] = got.messages
        if got.segment is not None:
            entries = await read_archived(self.archive, got.segment)
            messages = active_messages(entries)[have : got.base]
        if not messages:
            msg = f"Task {task_id()!r} lacks messages {have} to {upto} of its transcript."
            raise DigestMismatchError(msg)
        memory.append(messages, [await self.resolve(message) for message in messages])

    async def opened(self, given: AdvanceInput) -> OpenStep:
        """Return the open step, with its input resolved."""
        opened = given.open or (None if given.digest else usual_step(given.n))
        if opened is None:
            opened = (await self._view(ViewRequest(n=given.n, open=True))).open
            if opened is None or digest(canonical(opened.wire())) != given.digest:
                msg = f"Step {given.n} of task {task_id()!r} is not the one that was scheduled."
                raise DigestMismatchError(msg)
        return opened

    async def journal(self, given: AdvanceInput) -> tuple[JournalEntry, ...]:
        """Return the step's answered calls, as recorded."""
        memory = self.memory()
        async with memory.lock:
            return await self._journal(memory, given)

    async def _journal(self, memory: TaskMemory, given: AdvanceInput) -> tuple[JournalEntry, ...]:
        if given.journal.length == 0:
            memory.put_journal(given.n, ())
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
            msg = (
                f"Call {given.i} of step {given.n} of task {task_id()!r} is not the scheduled one."
            )
            raise DigestMismatchError(msg)
        if not given.big:
            return call, dict(given.state)
        return call, dict((await self._view(ViewRequest(n=given.n, state=True))).state)

    async def entries(self) -> tuple[EntriesPage, list[Entry]]:
        """Return the ledger entries that are not archived yet."""
        entries: list[Entry] = []
        while True:
            asked = EntriesRequest(skip=len(entries), opens=True)
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
        record = view.record
        if record is None:
            entries = await read_archived(self.archive, view.segment)
            record = next((step for step in active_steps(entries) if step.n == ref.n), None)
        if record is None or output_digest(record) != ref.digest:
            msg = f"Step {ref.n} of task {task_id()!r} has not the output that was handed on."
            raise DigestMismatchError(msg)
        return await read_json(record.output, record.stored, self.text)

    async def output_of(self, n: int) -> View:
        """Return what a step that is about to end gives, the state it leaves, and the cost."""
        return await self._view(ViewRequest(n=n, output=True))

    async def status(self) -> Task:
        """Return the task as it is now; of a long input, its beginning."""
        return await self._query("task", Task)

    async def task(self) -> Task:
        """Return the task as it is now, with its whole input."""
        task = await self.status()
        if task.stored is None:
            return task
        return task.model_copy(update={"input": await self.text(task.stored)})

    # ---- large values

    async def resolve(self, message: Message) -> Message:
        """Put what is archived of a message into it."""
        return await resolve_message(message, self.text)

    async def content(self, content: Content) -> Content:
        """Read the texts of a content that are in the archive."""
        return await resolve(content, self.text)

    async def nodes(self, outcome: Outcome) -> tuple[SourceNode, ...]:
        """Read what a result rests on."""
        nodes = outcome.nodes
        return read_nodes(await self.text(nodes)) if isinstance(nodes, Blob) else nodes

    async def stored_list(self, sha256: str) -> tuple[Message, ...]:
        """Read a list of messages of the archive, contents resolved."""
        memory = self.memory()
        if sha256 not in memory.lists:
            found = await read_messages(self.archive, sha256)
            memory.put_list(sha256, tuple([await self.resolve(message) for message in found]))
        return memory.lists[sha256]

    async def text(self, blob: Blob) -> str:
        """Read a text of the archive."""
        text = self.cache.texts.get(blob.sha256)
        if text is None:
            text = (await self.archive.aget(blob.sha256)).decode("utf-8", "surrogatepass")
            self.cache.texts.keep(blob.sha256, text)
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
            self.cache.images.keep(name, data)
        return data

    async def offload(self, message: Message) -> Message:
        """Move large texts, large provider items and the bytes of images to the archive."""
        kept = await self.store_json(list(message.items)) if message.items else None
        if kept is not None:
            message = message.model_copy(update={"items": (), "kept": kept})
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
        self.cache.texts.keep(blob.sha256, text)
        return blob

    async def store_json(self, data: Json) -> Blob | None:
        """Store JSON data if it is too large for history."""
        plain = isinstance(data, str)
        text = data if plain else canonical(data).decode("utf-8", "surrogatepass")
        return await self.store(clean(text), is_json=not plain)

    async def archived(self, text: str) -> Blob:
        """Store a text whatever its size; one that was just stored is not written again."""
        data = text.encode("utf-8", "surrogatepass")
        sha256 = digest(data)
        if self.cache.texts.get(sha256) is None:
            await self.aput(data)
            self.cache.texts.keep(sha256, text)
        return Blob(sha256=sha256, size=len(data))

    async def aput(self, data: bytes) -> str:
        """Store bytes with patience: what they say has been paid for, or has taken effect.

        Raises:
            ArchiveError: The archive could not be written for about a minute.
        """
        return await _patiently(lambda: self.archive.aput(data))

    async def amac(self, text: str) -> str:
        """Make the code of a reference, with the same patience."""
        return await _patiently(lambda: self.archive.amac(text))

    async def written(self, outcome: Outcome) -> None:
        """Write an outcome as Temporal will write it, and read it again; wait for the archive.

        Raises:
            ArchiveError: It is large, and the archive could not be written for about a minute.
            Exception: It cannot be written, or what is written cannot be read.
        """
        converter = activity.client().data_converter
        payloads = await _patiently(lambda: converter.encode([outcome]))
        await converter.decode(payloads, [Outcome])

    # ---- the task

    async def _view(self, asked: ViewRequest) -> View:
        return await self._query("view", View, asked)

    async def _query(self, name: str, kind: type[T], *args: object) -> T:
        """Ask the task, one question after the other, and again while others keep it busy."""
        handle = await self._reach()
        async with self.memory().asking:
            for pause in (*BUSY_PAUSES, 0.0):
                try:
                    found: T = await handle.query(name, args=list(args), result_type=kind)
                except RPCError as error:
                    if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED or not pause:
                        raise
                else:
                    return found
                await asyncio.sleep(pause)
            raise RuntimeError  # unreachable: the last attempt returns or raises

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


def _known(memory: TaskMemory, given: ToolInput) -> ToolCall | None:
    """Return the call that was scheduled, if it is here."""
    calls = memory.calls.get(given.n, ())
    call = given.call or (calls[given.i] if given.i < len(calls) else None)
    return call if call is not None and call_digest(call) == given.digest else None


def task_id() -> str:
    """Return the id of the task that the current activity works for."""
    return activity.info().workflow_id or ""


def worker_identity() -> str:
    """Return the identity by which histories and audits name this worker."""
    return activity.client().identity
