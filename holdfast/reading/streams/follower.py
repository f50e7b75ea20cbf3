"""Following a task: the events of its record, each once, as the record grows."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import NamedTuple

from holdfast.archive.segments import read_archived, read_record
from holdfast.errors import HoldfastError, TaskClosedError, TaskNotFoundError
from holdfast.reading.reader import Reader
from holdfast.reading.step_events import (
    ChatEnd,
    ChatStart,
    EventHandler,
    StepEnd,
    StepEvent,
    StepStart,
    StepUndone,
    ToolCalled,
    ToolDone,
)
from holdfast.reading.streams.timeline import number_of, undos
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    Mark,
    OpenState,
    Outcome,
    StepRecord,
    archived_entries,
)
from holdfast.task.ledger.references import told as told_by
from holdfast.task.pages import EntriesPage, EntriesRequest
from holdfast.values.messages import Message, ToolCall
from holdfast.values.steps import CLOSED, AgentResponse, Task, TaskStatus
from holdfast.values.text.logs import log

Respond = Callable[[str], Awaitable[AgentResponse]]
Batch = tuple[Sequence[ToolCall], Mapping[int, Outcome]]


class Marked(NamedTuple):
    """A mark with what it is about."""

    mark: Mark
    of: StepRecord | OpenState


class Look(NamedTuple):
    """What is new in a task.

    Attributes:
        task: The task as it was before the rest was read.
        entries: Ledger entries since the last look.
        opens: The steps that are open.
    """

    task: Task
    entries: list[Entry]
    opens: Sequence[OpenState]


class Follower:
    """Reads the events of one task; asked again, it reads only what is new.

    Attributes:
        status: Status of the task; what it had done by then is read.
        ended: Whether the last event was read: the task is closed.
    """

    def __init__(self, reader: Reader, respond: Respond, task_id: str, after: int = -1) -> None:
        """Read nothing yet.

        Args:
            reader: Reads the task.
            respond: Reads the answer of a finalized task.
            task_id: The task.
            after: Number of the last event that is known already; -1 for none.
        """
        self._reader = reader
        self._respond = respond
        self._task_id = task_id
        self._after = after
        self._seen = 0  # ledger entries that were read
        self._base = 0  # ledger entries in the archive, as far as is known
        self._closing: EventRecord | None = None
        self.status: TaskStatus = "running"
        self.ended = False

    async def new(self) -> list[StepEvent]:
        """Return the events since the last reading, oldest first.

        Raises:
            TaskNotFoundError: There is no such task.
            NoWorkerError: No worker process is up to answer.
        """
        task, entries, opened = await self.look()
        events: list[StepEvent] = []
        if self._after < 0:
            events.append(ChatStart(number=0, task_id=self._task_id, input=task.input))
        marked = [Marked(m, e.step) for e in entries if e.step is not None for m in e.step.marks]
        marked += [Marked(m, current) for current in opened for m in current.marks]
        for mark, of in sorted(marked, key=lambda each: each.mark.number):
            if mark.number > self._after:
                events.append(await self._event(mark, of))
        events += self._undone(entries)
        events.sort(key=lambda event: event.number)
        closed = [e.event for e in entries if e.event is not None and e.event.kind == "closed"]
        self._closing = closed[-1] if closed else self._closing
        self._after = max([self._after, *(event.number for event in events)])
        self.status = task.status
        if task.status in CLOSED and not self.ended:
            self.ended = True
            events += await self._end(task)
        return events

    def _undone(self, entries: Sequence[Entry]) -> list[StepUndone]:
        return [
            StepUndone(
                number=number_of(event),
                task_id=self._task_id,
                steps=event.body.get("steps", ()),
                by=event.by,
                reason=event.text,
            )
            for event in undos(entries)
            if number_of(event) > self._after
        ]

    async def look(self) -> Look:
        """Read what is new in the task; what led to its status is read then.

        Raises:
            TaskNotFoundError: There is no such task.
            NoWorkerError: No worker process is up to answer.
        """
        task = await self._reader.task(self._task_id)
        return Look(task, *await self._entries())

    async def skip(self) -> None:
        """Count what has happened up to now as read, at a price that does not grow with the task.

        Raises:
            TaskClosedError: The task is closed.
            TaskNotFoundError: There is no such task.
            NoWorkerError: No worker process is up to answer.
        """
        newest = EntriesRequest(skip=sys.maxsize, opens=True)
        page = await self._reader.query(self._task_id, "entries", EntriesPage, newest)
        self._base = self._seen = archived_entries(page.segment)
        entries, opened = await self._ask(even_closed=False)
        marks = [mark for entry in entries if entry.step is not None for mark in entry.step.marks]
        marks += [mark for current in opened for mark in current.marks]
        numbers = [*(mark.number for mark in marks), *map(number_of, undos(entries))]
        self._after = max([0, self._after, *numbers])

    @property
    def after(self) -> int:
        """Number of the last event that is known."""
        return self._after

    async def _end(self, task: Task) -> list[StepEvent]:
        body = self._closing.body if self._closing is not None else {}
        number = int(body.get("number", self._after + 1))  # ended with Temporal's own tools
        known, self._after = self._after, max(self._after, number)
        if number <= known:
            return []
        done = task.status == "finished"
        return [
            ChatEnd(
                number=number,
                task_id=self._task_id,
                status=task.status,
                response=await self._respond(self._task_id) if done else None,
                error=task.error,
            )
        ]

    async def _entries(self) -> tuple[list[Entry], Sequence[OpenState]]:
        """Return the ledger entries that were not read yet, and the steps that are open."""
        try:
            return await self._ask(even_closed=False)
        except (TaskClosedError, TaskNotFoundError) as closed:
            record = await read_record(self._reader.archive, self._task_id)
            if record is None:
                if isinstance(closed, TaskNotFoundError):
                    raise
                return await self._ask(even_closed=True)
        entries = await read_archived(self._reader.archive, record.segment, skip=self._seen)
        self._seen += len(entries)
        return entries, record.opens

    async def _ask(self, *, even_closed: bool) -> tuple[list[Entry], Sequence[OpenState]]:
        entries: list[Entry] = []
        while True:
            seen = self._seen + len(entries)
            asked = EntriesRequest(skip=max(seen - self._base, 0), opens=True)
            page = await self._reader.query(
                self._task_id, "entries", EntriesPage, asked, even_closed=even_closed
            )
            found = archived_entries(page.segment)
            if found != self._base:  # the task has rolled over meanwhile: this skipped too many
                if seen < found:
                    entries += await read_archived(self._reader.archive, page.segment, skip=seen)
                self._base = found  # once they are read: else a second attempt would miss them
                continue
            entries += page.entries
            if not page.more:
                self._seen += len(entries)
                return entries, page.opens

    async def _event(self, mark: Mark, of: StepRecord | OpenState) -> StepEvent:
        step = of.step if isinstance(of, StepRecord) else of.open.step
        step = step.model_copy(update={"task_id": self._task_id})
        number, task_id = mark.number, self._task_id
        if mark.kind == "start":
            return StepStart(number=number, task_id=task_id, step=step)
        if mark.kind == "end" and isinstance(of, StepRecord):
            output = await self._reader.output(task_id, of)
            return StepEnd(number=number, task_id=task_id, output=output)
        calls, outcomes = _batches(of)[mark.batch]
        call = calls[mark.i]
        if mark.kind == "call":
            return ToolCalled(number=number, task_id=task_id, step_id=step.step_id, call=call)
        outcome = outcomes[mark.i]
        got = await self._reader.source(call, outcome, _message(of, call, outcome))
        return ToolDone(number=number, task_id=task_id, step_id=step.step_id, output=got)


def _batches(of: StepRecord | OpenState) -> list[Batch]:
    """List the batches of calls of a step, with the outcomes that are known."""
    batches: list[Batch] = [(e.calls, dict(enumerate(e.outcomes))) for e in of.journal if e.calls]
    last = of.outcomes if isinstance(of, OpenState) else dict(enumerate(of.outcomes))
    return [*batches, (of.calls, last)]


def _message(of: StepRecord | OpenState, call: ToolCall, outcome: Outcome) -> Message:
    """Find what a call gave: a completed step may hold it among its messages only."""
    return told_by(of.adds if isinstance(of, StepRecord) else (), call, outcome)


async def follow(
    follower: Follower, *, poll: float, ends: Collection[TaskStatus] = ()
) -> AsyncIterator[StepEvent]:
    """Yield events until the task is closed.

    Args:
        follower: Reads them.
        poll: Seconds between two readings of a task in which nothing happened.
        ends: Statuses in which an open task is followed no longer.
    """
    while True:
        events = await follower.new()
        for event in events:
            yield event
        if follower.ended or follower.status in ends:
            return
        if not events:
            await asyncio.sleep(poll)


@asynccontextmanager
async def told(
    follower: Follower, handlers: Sequence[EventHandler], *, poll: float, afresh: bool
) -> AsyncGenerator[None]:
    """Tell handlers what happens in a task while the body runs, and the rest before it returns.

    Nothing of it stops the task: what a handler raises is logged, and so is trouble in reading.

    Args:
        follower: Reads the events.
        handlers: Who is told.
        poll: Seconds between two readings of a task in which nothing happened.
        afresh: Whether they are told only what happens from now on.
    """
    if not handlers or (afresh and not await _skipped(follower)):
        yield
        return
    over = asyncio.Event()
    telling = asyncio.create_task(_tell(follower, handlers, over, poll))
    try:
        yield
    finally:
        over.set()
        await telling


async def _skipped(follower: Follower) -> bool:
    """Skip what has happened; when that cannot be read, the body will meet the same trouble."""
    try:
        await follower.skip()
    except HoldfastError:
        return False
    return True


async def _tell(
    follower: Follower, handlers: Sequence[EventHandler], over: asyncio.Event, poll: float
) -> None:
    last = False
    while not follower.ended:
        try:
            events = await follower.new()
        except HoldfastError:
            log.warning("The events of a task could not be read", exc_info=True)
            events = []
        for event in events:
            for handler in handlers:
                await _hand(handler, event)
        if last:
            return
        last = over.is_set()  # one reading more than there was news of the end
        if not last and not events:
            try:
                await asyncio.wait_for(over.wait(), timeout=poll)
            except TimeoutError:
                continue


async def _hand(handler: EventHandler, event: StepEvent) -> None:
    try:
        said = handler(event)
        if inspect.isawaitable(said):
            await said
    except Exception:  # an observer must not stop what it observes
        log.exception("A handler of events failed at event %d of %s", event.number, event.task_id)
