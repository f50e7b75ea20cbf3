"""Following a task: the events of its record, each once, as the record grows.

Events are of steps, approvals, commands, failures and lost workers.

While attempts of activities are pending, the server tells of them.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.service import RPCError

from holdfast.archive.archive import Archive
from holdfast.archive.contents import resolve
from holdfast.archive.kept_answers import find_answer
from holdfast.archive.segments import read_archived
from holdfast.errors import ArchiveError, HoldfastError, TaskClosedError, TaskNotFoundError
from holdfast.reading.queries import WORKER_LOST, activities_of, cause_of
from holdfast.reading.reader import Reader
from holdfast.reading.step_events import (
    ApprovalDecided,
    Attempt,
    ChatEnd,
    ChatStart,
    CommandGiven,
    EventHandler,
    HostedToolRan,
    StepEnd,
    StepEvent,
    StepFailed,
    StepStart,
    StepUndone,
    Thought,
    ToolCalled,
    ToolDone,
    Waiting,
)
from holdfast.task.data.calls import call_digest
from holdfast.task.data.commands import said_in
from holdfast.task.data.records import Entry, EventRecord, OpenState, archived_entries
from holdfast.task.data.wire import (
    AdvanceInput,
    EntriesPage,
    EntriesRequest,
    ToolInput,
    activity_key,
)
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
    StepsUndone,
    TaskClosed,
    in_order,
)
from holdfast.task.step_body import StepBody
from holdfast.values.checks.gate import as_object
from holdfast.values.messages import shown
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.runs.verbs import DECIDED
from holdfast.values.steps import AgentResponse, Task
from holdfast.values.text.logs import log

POLL_SECONDS = 0.2
"""Between two readings of a task in which nothing happened."""

LOOK_SECONDS = 1.0
"""Least time between two looks at the pending activities of a task."""


class _Place(NamedTuple):
    """Where an activity belongs.

    Attributes:
        step_id: Its step; empty when it has none.
        names: What is tried: "model", a tool's name, or the activity's type.
        tried: Attempts that were begun in the activity of the step.
    """

    step_id: str
    names: tuple[str, ...]
    tried: int = 0


class Attempts:
    """Reads which activities of a task are tried again; each attempt comes once.

    One look costs one request to the server and no work of the task's. Only a new attempt has the
    history read, for the step and the call that it belongs to.
    """

    def __init__(self, reader: Reader, task_id: str) -> None:
        """Have read nothing yet."""
        self._reader = reader
        self._task_id = task_id
        self._seen: set[tuple[str, str, int]] = set()
        self._due = 0.0

    async def new(self, opens: Sequence[OpenState], *, number: int) -> list[Attempt]:
        """Return the second and later attempts that were not returned yet.

        Args:
            opens: The steps in progress.
            number: Number of the last recorded event.

        Raises:
            TaskNotFoundError: Temporal knows no such task.
            ConnectError: The server could not be reached.
        """
        if time.monotonic() < self._due:
            return []
        self._due = time.monotonic() + LOOK_SECONDS
        found = await self._reader.describe(self._task_id)
        run_id = found.run_id
        events: list[Attempt] = []
        for pending in activities_of(found):
            mark = (run_id, pending.activity_id, pending.attempt)
            if pending.attempt <= 1 or mark in self._seen:
                continue
            self._seen.add(mark)
            try:
                place = await self._place(run_id, pending, opens)
            except Exception as error:  # noqa: BLE001  a codec raises what it likes: no reader ends
                log.warning("What activity %r was given cannot be read: %r", mark[1], error)
                place = _Place("", (pending.activity_type.name,))
            events += [
                Attempt(
                    number=number,
                    task_id=self._task_id,
                    step_id=place.step_id,
                    name=name,
                    attempt=place.tried + pending.attempt,
                    why=await cause_of(self._reader.client, pending.last_failure),
                    seconds=seconds_until(pending),
                )
                for name in place.names
            ]
        return events

    async def _place(
        self, run_id: str, pending: PendingActivityInfo, opens: Sequence[OpenState]
    ) -> _Place:
        """Return the step of an activity, as far as it has one, and what is tried."""
        kind = pending.activity_type.name
        if kind not in ("step", "tool"):
            return _Place("", (kind,))
        converter = self._reader.client.data_converter
        handle = self._reader.client.get_workflow_handle(self._task_id, run_id=run_id)
        with suppress(RPCError):  # the run is gone, or the server is: the next look finds out
            async for event in handle.fetch_history_events():
                sent = event.activity_task_scheduled_event_attributes
                if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED or (
                    sent.activity_id != pending.activity_id
                ):
                    continue
                payloads = list(sent.input.payloads)
                if kind == "step":
                    [step] = await converter.decode(payloads, [AdvanceInput])
                    ours = (activity_key(run_id, pending.activity_id), step.lost)
                    lost = await lost_calls(self._reader.archive, self._task_id, step.lane, ours)
                    names = () if lost else ("model",)  # recorded once they are lost
                    return _Place(_step_id(opens, step.n), names)
                [given] = await converter.decode(payloads, [ToolInput])
                return _Place(_step_id(opens, given.n), (_tool(opens, given),), given.tried)
        return _Place("", (kind,))


async def lost_calls(
    archive: Archive, task_id: str, lane: int, activities: tuple[str, str]
) -> tuple[str, ...]:
    """Name the calls that an earlier attempt of a step's activity may have begun.

    Args:
        archive: The namespace's archive; while it is down, no call is known.
        task_id: The task.
        lane: The lane of its step.
        activities: Keys of the activity, and of the one that was lost before it.
    """
    try:
        kept = await find_answer(archive, task_id, lane, activities)
    except ArchiveError as error:
        log.warning("The calls that a lost worker had begun are not known now: %s", error)
        return ()
    calls = kept.paid.answer.message.calls if kept.paid and kept.paid.answer else ()
    names = {call_digest(each): each.name for each in calls}
    return tuple(names.get(kept.runs[i], "tool") for i in sorted({*kept.runs} - {*kept.done}))


def seconds_until(pending: PendingActivityInfo) -> float:
    """Return how long it is until the next attempt of an activity begins; 0 when it has begun."""
    when = pending.next_attempt_schedule_time
    if not pending.HasField("next_attempt_schedule_time"):
        return 0.0
    return max(round(when.ToMicroseconds() / 1e6 - time.time(), 1), 0.0)


def _step_id(opens: Sequence[OpenState], n: int) -> str:
    return next((each.open.step.step_id for each in opens if each.n == n), "")


def _tool(opens: Sequence[OpenState], given: ToolInput) -> str:
    calls = next((each.calls for each in opens if each.n == given.n), ())
    call = given.call or (calls[given.i] if given.i < len(calls) else None)
    return call.name if call is not None else "tool"


def noted_event(noted: Noted, task_id: str) -> StepEvent | None:
    """Return the event for something that a ledger notes; None without one for it."""
    event, body = noted.event, noted.event.body
    own: Any = {"number": noted.number, "task_id": task_id}
    place: Any = {**own, "step_id": str(body.get("step", ""))}
    tool = str(body.get("tool", ""))
    if isinstance(noted, StepsUndone):
        return StepUndone(**own, steps=noted.steps, by=event.by, reason=event.text)
    match event.kind:
        case "asked" | "escalated":
            return Waiting(
                **place,
                approval=str(body.get("id", "")),
                approval_kind=body.get("kind", "tool"),
                tool=tool,
                arguments=str(body.get("arguments", "")),
                text=event.text,
                expires=float(body.get("expires", 0)),
            )
        case "standing" | "expired" | "withdrawn" as kind:
            status: Any = DECIDED[str(body["verb"])] if kind == "standing" else kind
            approval = str(body.get("id", ""))
            how: Any = {"status": status, "by": event.by, "note": event.text}
            return ApprovalDecided(**place, approval=approval, tool=tool, **how)
        case "command" | "refused" | "vote" as kind:
            given = as_object(body.get("arguments"))
            # Edited arguments that are refused have no verb: they came with an approval.
            verb, refused = str(body.get("verb") or "approve"), kind == "refused"
            if verb in DECIDED and kind == "command":
                approval = str(given.get("approval", ""))
                how = {"status": DECIDED[verb], "by": event.by, "note": said_in(given)}
                return ApprovalDecided(**place, approval=approval, tool=tool, **how)
            text = said_in(given) or str(body.get("votes", ""))
            reason = event.text if refused else ""
            told: Any = {"by": event.by, "text": text, "reason": reason}
            return CommandGiven(**own, verb=verb, is_refused=refused, **told)
        case "failed":
            return StepFailed(**place, error=event.text)
        case "lost":
            attempt = int(body.get("attempt", 2))
            return Attempt(**place, name=tool, attempt=attempt, why=WORKER_LOST)
        case _:
            return None


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
        """The steps among the new entries: the completed ones, then the open ones."""
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
        with suppress(TaskNotFoundError):  # deleted meanwhile: `new` finds out what is left of it
            return list(await self._attempts.new(self._opens, number=self._after))
        return []

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
        if isinstance(happening, Noted):
            return noted_event(happening, self._task_id)
        body = happening.body
        own: Any = {"number": happening.number, "task_id": self._task_id}
        place: Any = {**own, "step_id": body.step.step_id}
        match happening:
            case StepBegan():
                step = body.step.model_copy(update={"task_id": self._task_id})
                return StepStart(**own, step=step)
            case CallAsked(call=each):
                return ToolCalled(**place, call=each.call)
            case CallDone(call=each, outcome=outcome, message=message):
                got = await self._reader.source(each.call, outcome, message)
                return ToolDone(**place, output=got)
            case StepEnded():
                given = await self._reader.output(self._task_id, body, self._reader.legible)
                return StepEnd(**own, output=given)
            case ModelAnswered(answer=answer):
                said = shown(await resolve(answer.message.content, self._reader.legible))
                return Thought(**place, text=said)
            case HostedRan(call=ran):
                return HostedToolRan(**place, call=ran)
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
    follower: Follower, handlers: Sequence[EventHandler], *, afresh: bool
) -> AsyncGenerator[None]:
    """Call handlers with the events of a task while the body runs, and the rest at its end.

    Exceptions of handlers and trouble in reading are logged; they do not stop the task.

    Args:
        follower: Reads the events.
        handlers: Called with each event.
        afresh: Whether they get only the events from now on.
    """
    if afresh and not await _skipped(follower):
        yield
        return
    over = asyncio.Event()
    publishing = asyncio.create_task(_publish(follower, handlers, over))
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
    follower: Follower, handlers: Sequence[EventHandler], over: asyncio.Event
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
                await asyncio.wait_for(over.wait(), timeout=POLL_SECONDS)
            except TimeoutError:
                continue


async def _hand(handler: EventHandler, event: StepEvent) -> None:
    try:
        said = handler(event)
        if inspect.isawaitable(said):
            await said
    except Exception:  # an observer must not stop what it observes
        log.exception("A handler of events failed at event %d of %s", event.number, event.task_id)
