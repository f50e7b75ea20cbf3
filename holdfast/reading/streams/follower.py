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
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property

from holdfast.archive.contents import resolve
from holdfast.archive.segments import read_archived
from holdfast.errors import HoldfastError, TaskClosedError, TaskNotFoundError
from holdfast.reading.reader import Reader
from holdfast.reading.step_events import (
    Attempt,
    ChatEnd,
    ChatStart,
    EventHandler,
    HostedToolRan,
    StepEnd,
    StepEvent,
    StepStart,
    Thought,
    ToolCalled,
    ToolDone,
)
from holdfast.reading.streams.attempts import Attempts
from holdfast.reading.streams.noted import noted_event
from holdfast.task.data.closing import EntriesPage, EntriesRequest
from holdfast.task.data.records import Entry, EventRecord, OpenState, archived_entries
from holdfast.task.happenings import (
    CallAsked,
    CallDone,
    Fold,
    Happening,
    HostedRan,
    ModelAnswered,
    Noted,
    StepBegan,
    StepEnded,
    TaskClosed,
    in_order,
)
from holdfast.task.step_body import StepBody
from holdfast.values.messages import shown
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.steps import AgentResponse, Task
from holdfast.values.text.logs import log

Respond = Callable[[str], Awaitable[AgentResponse]]


@dataclass(frozen=True)
class Look:
    """What is new in a task.

    Attributes:
        task: The task as it was before the rest was read.
        entries: Ledger entries since the last look.
        opens: The steps that are open.
    """

    task: Task
    entries: list[Entry]
    opens: Sequence[OpenState]

    @cached_property
    def happenings(self) -> list[Happening]:
        """What happened, by the new entries and the open steps, in the order of the ledger."""
        fold = Fold(is_closed=self.task.status in CLOSED)
        return [*fold.entries(self.entries), *fold.opens(self.opens)]

    @property
    def steps(self) -> list[StepBody]:
        """The steps among the new entries that are completed, then those that are open."""
        began = (each.body for each in self.happenings if isinstance(each, StepBegan))
        return [body for body in began if not body.is_left]


class Follower:
    """Reads the events of one task; asked again, it reads only what is new.

    Attributes:
        status: Status of the task; what it had done by then is read.
        ended: Whether the last event was read: the task is closed.
    """

    def __init__(
        self, reader: Reader, respond: Respond, task_id: str, after: int = -1, *, hub: str = ""
    ) -> None:
        """Read nothing yet.

        Args:
            reader: Reads the task.
            respond: Reads the answer of a finalized task.
            task_id: The task.
            after: Number of the last event that is known already; -1 for none.
            hub: As for `EntriesRequest`.
        """
        self._hub = hub
        self._reader = reader
        self._respond = respond
        self._task_id = task_id
        self._after = after
        self._seen = 0  # ledger entries that were read
        self._base = 0  # ledger entries in the archive, as far as is known
        self._closing: EventRecord | None = None
        self._opens: Sequence[OpenState] = ()
        self._attempts = Attempts(reader, task_id)
        self.status: TaskStatus = "running"
        self.ended = False

    async def new(self) -> list[StepEvent]:
        """Return the events since the last reading, oldest first.

        Raises:
            TaskNotFoundError: Neither Temporal nor the archive has a task of this id.
            NoWorkerError: No worker process is up to answer.
        """
        look = await self.look()
        events: list[StepEvent] = []
        if self._after < 0:
            events.append(ChatStart(number=0, task_id=self._task_id, input=look.task.input))
        for happening in in_order(look.happenings):
            event = await self._event(happening) if happening.number > self._after else None
            events += [event] if event is not None else []
        closed = [each.event for each in look.happenings if isinstance(each, TaskClosed)]
        self._closing = closed[-1] if closed else self._closing
        self._after = max([self._after, *(event.number for event in events)])
        self.status, self._opens = look.task.status, look.opens
        if self.status in CLOSED and not self.ended:
            self.ended = True
            events += await self._end(look.task)
        return events

    async def attempts(self) -> list[Attempt]:
        """Return what is tried again now, each attempt once: `new` has read nothing new.

        Raises:
            ConnectError: The server could not be reached.
        """
        if self.ended or not self._opens:
            return []
        try:
            found = await self._attempts.new(self._opens, number=self._after)
        except TaskNotFoundError:  # deleted meanwhile: `new` finds out what is left of it
            return []
        return list(found)

    async def look(self) -> Look:
        """Read what is new in the task; what led to its status is read then.

        Raises:
            TaskNotFoundError: Neither Temporal nor the archive has a task of this id.
            NoWorkerError: No worker process is up to answer.
        """
        task = await self._reader.task(self._task_id)
        return Look(task, *await self._entries())

    async def skip(self) -> None:
        """Count what has happened up to now as read, at a price that does not grow with the task.

        Raises:
            TaskClosedError: The task is closed.
            TaskNotFoundError: Neither Temporal nor the archive has a task of this id.
            NoWorkerError: No worker process is up to answer.
        """
        newest = EntriesRequest(skip=sys.maxsize, opens=True)
        page = await self._reader.query(self._task_id, "entries", EntriesPage, newest)
        self._base = self._seen = archived_entries(page.segment)
        await self._ask(even_closed=False)
        # All that happened may be in the archive, where a task has continued as new.
        self._after = max(self._after, page.number)

    @property
    def after(self) -> int:
        """Number of the last event that is known."""
        return self._after

    async def _end(self, task: Task) -> list[StepEvent]:
        number = self._closing.number if self._closing is not None else 0
        number = number or self._after + 1  # ended with Temporal's own tools
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
            record = await self._reader.records.read(self._task_id)
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
            asked = EntriesRequest(skip=max(seen - self._base, 0), opens=True, hub=self._hub)
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

    async def _event(self, happening: Happening) -> StepEvent | None:
        """Return the event for something that happened; None without one for it."""
        number, task_id = happening.number, self._task_id
        match happening:
            case StepBegan(body=body):
                step = body.step.model_copy(update={"task_id": task_id})
                return StepStart(number=number, task_id=task_id, step=step)
            case CallAsked(body=body, call=each):
                id = body.step.step_id
                return ToolCalled(number=number, task_id=task_id, step_id=id, call=each.call)
            case CallDone(body=body, call=each, outcome=outcome, message=message):
                got = await self._reader.source(each.call, outcome, message)
                id = body.step.step_id
                return ToolDone(number=number, task_id=task_id, step_id=id, output=got)
            case StepEnded(body=body):
                given = await self._reader.output(task_id, body, self._reader.legible)
                return StepEnd(number=number, task_id=task_id, output=given)
            case ModelAnswered(body=body, answer=answer):
                said = shown(await resolve(answer.message.content, self._reader.legible))
                id = body.step.step_id
                return Thought(number=number, task_id=task_id, step_id=id, text=said)
            case HostedRan(body=body, call=ran):
                id = body.step.step_id
                return HostedToolRan(number=number, task_id=task_id, step_id=id, call=ran)
            case Noted():
                return noted_event(happening, task_id)
            case _:
                return None


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
            for attempt in await follower.attempts():
                yield attempt
            await asyncio.sleep(poll)


@asynccontextmanager
async def told(
    follower: Follower, handlers: Sequence[EventHandler], *, poll: float, afresh: bool
) -> AsyncGenerator[None]:
    """Call handlers with the events of a task while the body runs, and the rest at its end.

    Exceptions of handlers and trouble in reading are logged; they do not stop the task.

    Args:
        follower: Reads the events.
        handlers: Called with each event.
        poll: Seconds between two readings of a task in which nothing happened.
        afresh: Whether they get only the events from now on.
    """
    if not handlers or (afresh and not await _skipped(follower)):
        yield
        return
    over = asyncio.Event()
    publishing = asyncio.create_task(_publish(follower, handlers, over, poll))
    try:
        yield
    finally:
        over.set()
        await publishing


async def _skipped(follower: Follower) -> bool:
    """Skip what has happened; when that cannot be read, the body will meet the same trouble."""
    try:
        await follower.skip()
    except HoldfastError:
        return False
    return True


async def _publish(
    follower: Follower, handlers: Sequence[EventHandler], over: asyncio.Event, poll: float
) -> None:
    last = False
    while not follower.ended:
        try:
            events = await follower.new()
            if not events and not last:
                events += await follower.attempts()
        except HoldfastError:
            log.warning("The events of a task could not be read", exc_info=True)
            events = []
        for event in events:
            for handler in handlers:
                await _hand(handler, event)
        if last:
            return
        last = over.is_set()  # read once more after the end: the last events may have come since
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
