"""Where an activity reads its task's records: queries of the workflow, the archive, the session."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import TypeVar

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import WorkflowHandle

from holdfast.activities.data.cache import TaskMemory
from holdfast.activities.data.conversation import Conversation
from holdfast.activities.data.large_values import LargeValues
from holdfast.archive.contents import read_json
from holdfast.archive.segments import archived_step, read_back, read_messages
from holdfast.errors import DigestMismatchError, QueryFailedError
from holdfast.reading.queries import while_busy
from holdfast.task.data.calls import call_digest
from holdfast.task.data.closing import EntriesPage, EntriesRequest
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import (
    Entry,
    InputRef,
    JournalEntry,
    OpenStep,
    SegmentRef,
    usual_step,
)
from holdfast.task.data.state import head_digest
from holdfast.task.data.wire import AdvanceInput, ToolInput
from holdfast.task.ledger.references import output_digest
from holdfast.task.queries.last_page import take
from holdfast.task.queries.pages import StepView
from holdfast.task.queries.views import View, ViewRequest
from holdfast.task.undo import active_messages
from holdfast.values.base import ChainRef, Json, canonical, digest, extend
from holdfast.values.messages import Message, ToolCall
from holdfast.values.steps import Task

T = TypeVar("T")

_left_queue: ContextVar[bytes] = ContextVar("holdfast_left_queue", default=b"")
"""Task token of the activity attempt that has left the queue of a worker that may be dead."""


class Source(LargeValues):
    """Reads tasks for the activities of one worker process."""

    def memory(self) -> TaskMemory:
        """Return what is known of the task that the current activity works for."""
        info = activity.info()
        return self.cache.task(info.workflow_id or "", info.workflow_run_id or "")

    async def head(self, known: str = "") -> TaskHead:
        """Return the task's head.

        Args:
            known: Its digest, if the task has sent it along. One that has changed once more is as
                it is now.
        """
        memory = self.memory()
        async with memory.finding:
            if known and memory.head_digest != known:  # it has changed, or is not known to be this
                memory.head = self._known_head(memory, known)
                memory.head_digest = known
            if memory.head is None or not memory.head.snapshot:
                memory.head = (await self._view(ViewRequest(head=True))).head
        if memory.head is None:
            msg = f"Task {task_id()!r} answered without its head."
            raise DigestMismatchError(msg)
        return memory.head

    def _known_head(self, memory: TaskMemory, known: str) -> TaskHead | None:
        """Return the head of a digest, if it is here."""
        if memory.head is not None and head_digest(memory.head) == known:
            return memory.head
        return self.cache.head(known)

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

    async def record(self, ledger: ChainRef) -> tuple[Task, EntriesPage, list[Entry]]:
        """Return the task with its whole input, and the ledger entries that are not archived yet.

        One query for both, because each costs a workflow activation; none where the task runs in
        this process and has handed them over.

        Args:
            ledger: The ledger at which the task closes.
        """
        page = take(task_id(), activity.info().workflow_run_id or "", ledger)
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
