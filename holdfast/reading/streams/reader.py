"""Reading a task as a stream of events: what is recorded, and answers while they are made.

For news it looks at what the server says of the task, and does not ask the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from temporalio.client import WorkflowExecutionStatus
from temporalio.converter import DataConverter

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.items.run_items import HandoffCallItem
from holdfast.agents.runs.item_reading import message_items
from holdfast.agents.runs.teams import Team
from holdfast.errors import TaskNotFoundError
from holdfast.models.base import Delta
from holdfast.models.draft import Frame, deltas_of, goes_on, units_of
from holdfast.reading.queries import activities_of
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import read_snapshot
from holdfast.reading.streams.follower import Follower, Look
from holdfast.reading.streams.hub import LocalHub, News, StreamKey, local_hub, read_progress
from holdfast.reading.streams.raw import AnswerEvents, Raw, load_openai, to_openai
from holdfast.reading.streams.timeline import (
    Answered,
    Asking,
    Began,
    Moment,
    Said,
    Undone,
    asking,
    moments,
    undone,
)
from holdfast.task.data.head import AgentSnapshot
from holdfast.task.data.records import LAST_ATTEMPT, MOST_PLACES, Offset
from holdfast.task.happenings import StepsUndone
from holdfast.values.base import Json, pauses
from holdfast.values.runs.status import CLOSED, TaskStatus

ItemEventName = Literal[
    "message_output_created",
    "tool_called",
    "tool_output",
    "handoff_requested",
    "handoff_occured",
    "reasoning_item_created",
    "mcp_list_tools",
    "mcp_approval_requested",
    "mcp_approval_response",
    "tool_search_called",
    "tool_search_output_created",
]
"""The Agents SDK's names, one misspelt as it is there."""


@dataclass(frozen=True, kw_only=True)
class AgentUpdatedStreamEvent:
    """An agent begins, or takes over.

    Attributes:
        new_agent: The agent, or its name alone where this process does not know it.
        offset: Its place.
    """

    new_agent: Any
    offset: int = 0
    type: Literal["agent_updated_stream_event"] = "agent_updated_stream_event"


@dataclass(frozen=True, kw_only=True)
class RawResponsesStreamEvent:
    """A model goes on with its answer.

    A `response.created` that comes where an answer was not complete yet tells that the answer is
    made again, because a worker or a connection was lost: what was said of it so far is void.

    Attributes:
        data: An event of `openai.types.responses`, whatever API the model is called by.
        offset: Its place.
        attempt: The attempt to get this answer, from 1.
    """

    data: Any
    offset: int = 0
    attempt: int = 1
    type: Literal["raw_response_event"] = "raw_response_event"


@dataclass(frozen=True, kw_only=True)
class RunItemStreamEvent:
    """The run has a new item.

    Attributes:
        name: What happened.
        item: The item, as in `new_items` of the result.
        offset: Its place.
    """

    name: ItemEventName
    item: Any
    offset: int = 0
    type: Literal["run_item_stream_event"] = "run_item_stream_event"


@dataclass(frozen=True, kw_only=True)
class StepUndoneStreamEvent:
    """Steps were undone, as a person or program asked: what was told of them is void.

    Attributes:
        steps: Ids of the steps, also of steps in progress.
        void: Pairs of offsets: what was told from the first one on, and before the second one, does
            not count any more, here and after earlier undos. Mostly it is one pair.
        by: Who asked for it.
        reason: Why.
        offset: Its place.
    """

    steps: tuple[str, ...]
    void: tuple[tuple[int, int], ...] = ()
    by: str = ""
    reason: str = ""
    offset: int = 0
    type: Literal["step_undone_stream_event"] = "step_undone_stream_event"

    def is_void(self, offset: int) -> bool:
        """Return whether the event of this offset does not count any more."""
        return any(first <= offset < end for first, end in self.void)


StreamEvent = (
    AgentUpdatedStreamEvent | RawResponsesStreamEvent | RunItemStreamEvent | StepUndoneStreamEvent
)
"""What a streamed run yields."""


class Watch:
    """Notices new records of a task, and reads unfinished answers from its heartbeats.

    One look costs one request to the server and no work of the task's.

    Attributes:
        frames: Unfinished answers, from the heartbeats of the activities that make them.
        idle: Whether no activity of the task is running or waiting to run.
    """

    def __init__(self, reader: Reader, task_id: str) -> None:
        """Know nothing yet."""
        self._reader = reader
        self._task_id = task_id
        self._seen: tuple[str, int, WorkflowExecutionStatus | None] | None = None
        self.frames: dict[StreamKey, Frame] = {}
        self.idle = False

    async def changed(self) -> bool:
        """Look; return whether the history has grown.

        Raises:
            TaskNotFoundError: There is no such task.
            ConnectError: The server could not be reached.
        """
        found = await self._reader.describe(self._task_id)
        pending = activities_of(found)
        self.idle = not pending and not found.raw_description.HasField("pending_workflow_task")
        converter = self._reader.client.data_converter
        self.frames = {}
        for activity in pending:
            if activity.activity_type.name == "step" and activity.HasField("heartbeat_details"):
                details = list(activity.heartbeat_details.payloads)
                await self._read(converter, details)
        seen = (found.run_id, found.history_length, found.status)
        has_news, self._seen = seen != self._seen, seen
        return has_news

    async def _read(self, converter: DataConverter, payloads: list[Any]) -> None:
        said: list[Json] = await converter.decode(payloads)
        progress = read_progress(self._task_id, said[0] if said else None)
        if progress is not None:
            self.frames[progress[0]] = progress[1]


FIRST_PAUSE_SECONDS = 0.02
BUSY_PAUSE_SECONDS = 0.03
"""Time between two looks while heartbeats carry an answer; a worker sends one each 0.1 s."""
LONGEST_PAUSE_SECONDS = 0.1
IDLE_PAUSE_SECONDS = 1.0
"""Longest time between two looks at a task that waits for a decision or a request."""
GROWTH = 1.5
"""How many times as long as the one before each pause is."""

_NAMES: dict[str, ItemEventName] = {
    "message_output_item": "message_output_created",
    "tool_call_item": "tool_called",
    "tool_call_output_item": "tool_output",
    "handoff_call_item": "handoff_requested",
    "handoff_output_item": "handoff_occured",
    "reasoning_item": "reasoning_item_created",
    "mcp_list_tools_item": "mcp_list_tools",
    "mcp_approval_request_item": "mcp_approval_requested",
    "mcp_approval_response_item": "mcp_approval_response",
    "tool_search_call_item": "tool_search_called",
    "tool_search_output_item": "tool_search_output_created",
}


class Live:
    """An answer that is being made, as far as its events were yielded.

    Attributes:
        place: Its place in the stream.
        attempt: Number of the attempt that makes it.
        told: Its deltas whose events were yielded.
        units: Size of these.
    """

    def __init__(self, place: Asking, attempt: int, name: str) -> None:
        """Begin an attempt."""
        self.place = place
        self.attempt = attempt
        self.told: list[Delta] = []
        self.units = 0
        self._events = AnswerEvents(name, created=place.started)

    def take(self, frame: Frame) -> Iterator[Raw]:
        """Yield the events of the deltas that a frame has beyond the known ones."""
        for delta in frame.after(self.units):
            self.units += units_of(delta)
            if not self._events.stuck:
                self.told.append(delta)
                yield from self._events.add(delta)


class StreamReader:
    """Reads the events of one task in batches, each event once.

    Attributes:
        offset: Offset of the last event that was read.
        ended: Whether the task is closed, and all of it was read.
        status: Status of the task; what it had done by then is read.
        opened: Number of the newest step that it has read as open.
    """

    def __init__(
        self,
        reader: Reader,
        task_id: str,
        *,
        offset: int = 0,
        team: Team | None = None,
        resumes: bool = False,
        hub: LocalHub = local_hub,
    ) -> None:
        """Read nothing yet.

        Args:
            reader: Reads the task.
            task_id: The task.
            offset: Offset of the last event that is known already; 0 for none.
            team: The agents that this process has, for the events.
            resumes: Whether to begin with the agent that runs now.
            hub: Deltas of the answers that are made in this process.
        """
        self._reader = reader
        self._task_id = task_id
        self._team = team or Team("")
        self._resumes = resumes
        self._handoffs: set[str] = set()
        self._called: dict[str, str] = {}  # ids of calls to names of their tools
        self._snapshot: AgentSnapshot | None = None
        self._hub = hub
        self._follower = Follower(reader, _no_response, task_id, hub=hub.name)
        self._watch = Watch(reader, task_id)
        self._asking: Asking | None = None
        self._live: Live | None = None
        self._first_agent = ""
        self._agent = ""
        self.offset = offset
        self.ended = False
        self.status: TaskStatus = "running"
        self.opened = 0

    async def skip(self, to: Literal["step", "now"] = "step") -> None:
        """Skip to the step that is open, else to the next one; or to what happens from now on.

        An answer that is being made is streamed from its beginning: a part might be void.

        Raises:
            TaskClosedError: The task is closed.
            TaskNotFoundError: There is no such task.
            NoWorkerError: No worker process is up to answer.
        """
        await self._follower.skip()
        look = await self._follower.look()
        self._first_agent = look.task.agent
        steps = [current for current in look.opens if current.marks]
        first = min((step.marks[0].number for step in steps if to == "step"), default=None)
        place = _asking(look)
        newest = Offset(self._follower.after, LAST_ATTEMPT, MOST_PLACES)
        if place is not None:
            newest = Offset(place.mark, place.attempts, MOST_PLACES)
        self.offset = int(newest if first is None else Offset(first))
        self._agent = (steps[0].open.step.agent if steps else "") or look.task.agent

    async def batches(
        self, over: asyncio.Event | None = None, *, ends: Collection[TaskStatus] = ()
    ) -> AsyncGenerator[list[StreamEvent]]:
        """Yield the events that are new, as soon as there are some, until the task is closed.

        Args:
            over: Once it is set, what has happened until then is read and nothing more.
            ends: Statuses in which an open task is read no longer.

        Raises:
            TaskNotFoundError: There is no such task.
            NoWorkerError: No worker process is up to answer. Go on after the last offset.
            ConnectError: The server could not be reached; likewise.
        """
        over = over or asyncio.Event()
        with self._hub.listening(self._task_id) as news:
            await asyncio.to_thread(load_openai)
            while True:
                last = over.is_set()
                yield await self._recorded()
                if last or self.ended or self.status in ends:
                    return
                async for events in self._meanwhile(news, over):
                    yield events

    async def _meanwhile(
        self, news: News, over: asyncio.Event
    ) -> AsyncGenerator[list[StreamEvent]]:
        """Yield what models say, until something more is recorded."""
        loop = asyncio.get_running_loop()
        waits = pauses(FIRST_PAUSE_SECONDS, IDLE_PAUSE_SECONDS, GROWTH)
        look_at = loop.time()
        while not over.is_set():
            if news.is_recorded:
                news.is_recorded = False
                return
            if loop.time() >= look_at:
                if await self._watch.changed():
                    return
                longest = IDLE_PAUSE_SECONDS if self._watch.idle else LONGEST_PAUSE_SECONDS
                look_at = loop.time() + min(next(waits), longest)
            woken = news.is_set()
            news.clear()
            events = list(self._living())
            if events:
                if not woken:  # told by a heartbeat
                    waits = pauses(BUSY_PAUSE_SECONDS, IDLE_PAUSE_SECONDS, GROWTH)
                    look_at = min(look_at, loop.time() + BUSY_PAUSE_SECONDS)
                yield events
            elif woken:  # the answer is complete: its record is near
                waits = pauses(FIRST_PAUSE_SECONDS, IDLE_PAUSE_SECONDS, GROWTH)
                look_at = min(look_at, loop.time() + FIRST_PAUSE_SECONDS / 2)
            await _first_of(news, over, seconds=look_at - loop.time())

    # ---- what is recorded

    async def _recorded(self) -> list[StreamEvent]:
        """Return the events since the last look at the record."""
        look = await self._follower.look()
        events: list[StreamEvent] = []
        self._first_agent = self._first_agent or look.task.agent
        if not self._agent:
            upcoming = (current.open.step.agent for current in look.opens)
            self._agent = (next(upcoming, "") if self._resumes else "") or look.task.agent
            if self._resumes:
                now = users_agent(self._team.of(self._agent))
                events.append(AgentUpdatedStreamEvent(new_agent=now, offset=self.offset))
            events += self._tell_agent(Offset(0, 0, 1), self._agent)
        found = [m for step in look.steps for m in moments(step, self._first_agent)]
        if news := [each for each in look.happenings if isinstance(each, StepsUndone)]:
            entries, _ = await self._reader.ledger(self._task_id)
            found += [undone(entries, each, self._first_agent) for each in news]
        for moment in sorted(found, key=lambda each: each.at):
            events += await self._tell(moment)
        self._asking = _asking(look)
        self.opened = max((current.n for current in look.opens), default=self.opened)
        self.status = look.task.status
        self.ended = look.task.status in CLOSED
        return events

    async def _tell(self, moment: Moment) -> list[StreamEvent]:
        match moment:
            case Began():
                changed = moment.agent != self._agent
                self._agent = moment.agent
                return list(self._tell_agent(moment.at, moment.agent)) if changed else []
            case Answered():
                return await self._tell_answer(moment)
            case Said():
                return await self._tell_items(moment)
            case Undone():
                self._agent, self._live = moment.agent, None
                return list(self._tell_undo(moment))

    def _tell_agent(self, at: Offset, agent: str) -> Iterator[StreamEvent]:
        if self._advance(at):
            new = users_agent(self._team.of(agent))
            yield AgentUpdatedStreamEvent(new_agent=new, offset=self.offset)

    def _tell_undo(self, told: Undone) -> Iterator[StreamEvent]:
        if self._advance(told.at):
            steps: tuple[str, ...] = tuple(told.event.body.get("steps", ()))
            yield StepUndoneStreamEvent(
                steps=steps,
                void=told.void,
                by=told.event.by,
                reason=told.event.text,
                offset=self.offset,
            )

    async def _tell_items(self, said: Said) -> list[StreamEvent]:
        last = said.at._replace(place=said.at.place + 1)
        agent = self._team.of(said.agent)
        names = await self._handoff_names(agent) if said.message.calls else set[str]()
        self._handoffs -= {call.id for call in said.message.calls}  # ids may be used again
        self._handoffs |= {call.id for call in said.message.calls if call.name in names}
        self._called |= {call.id: call.name for call in said.message.calls}
        if int(last) <= self.offset - 256:
            return []
        message = await self._reader.resolve(said.message)
        if self._team.lacks_servers and (began := await self._read_snapshot()) is not None:
            self._team.learn(began)
        events, at = list[StreamEvent](), said.at
        for item in message_items(
            [message], agent, self._team, handoffs=self._handoffs, called=self._called
        ):
            at = at._replace(place=at.place + 1)
            name = _NAMES.get(item.type)
            if isinstance(item, HandoffCallItem):
                self._handoffs.add(item.call_id or "")
            if name is not None and self._advance(at):
                events.append(RunItemStreamEvent(name=name, item=item, offset=self.offset))
        return events

    async def _handoff_names(self, agent: Agent) -> set[str]:
        """Return how an agent's handoffs are called: their outputs may be still new.

        Of an agent that this process does not have, the snapshot that the task began with knows.
        """
        names = {each.tool_name for each in agent.made_handoffs}
        if names or self._team.has(agent.name):
            return names
        began = await self._read_snapshot()
        return names if began is None else {e.name for e in began.of(agent.name).handoffs}

    async def _read_snapshot(self) -> AgentSnapshot | None:
        if self._snapshot is None:
            head = await self._reader.head(self._task_id)
            self._snapshot = await read_snapshot(self._reader, head)
        return self._snapshot

    async def _tell_answer(self, told: Answered) -> list[StreamEvent]:
        """Return the events of a recorded answer that were not yielded while it was made."""
        end = Offset(told.at.mark, told.attempts, MOST_PLACES)
        live = self._live
        is_mine = live is not None and (live.place.n, live.place.k) == (told.n, told.k)
        if int(end) <= self.offset and not is_mine:
            return []
        message = await self._reader.resolve(told.answer.message)
        answer = told.answer.model_copy(update={"message": message})
        attempts, own = told.attempts, told.own
        if live is not None and is_mine:
            self._live = None
            same = live.attempt == own and goes_on(live.told, deltas_of(answer))
            if live.told and live.attempt >= own and not same:  # what was told is void
                attempts += live.attempt + 1 - own
                own = live.attempt + 1
        pieces = self._hub.pieces(StreamKey(self._task_id, told.n, told.k))
        raws = AnswerEvents(f"{told.at.mark}_{told.k}", created=told.started).whole(answer, pieces)
        return list(self._tell_raws(raws, Offset(told.at.mark, attempts), own))

    def _tell_raws(self, raws: Iterator[Raw], at: Offset, attempt: int) -> Iterator[StreamEvent]:
        for raw in raws:
            left = raw.after(self.offset - int(at))
            if left is not None:
                self._advance(at._replace(place=left.place))
                data = to_openai(left.data)
                yield RawResponsesStreamEvent(data=data, offset=self.offset, attempt=attempt)

    def _advance(self, at: Offset) -> bool:
        """Move to a place; return whether it is a new one."""
        is_new = int(at) > self.offset
        self.offset = max(self.offset, int(at))
        return is_new

    # ---- answers while they are made

    def _living(self) -> Iterator[StreamEvent]:
        """Yield what the model has said more of the answer that is asked for."""
        place = self._asking
        if place is None:
            return
        key = StreamKey(self._task_id, place.n, place.k)
        live = self._live
        frame = self._hub.read(key, live.units if live is not None and live.place == place else 0)
        if frame is None:
            frame = self._watch.frames.get(key)
        if frame is None:
            return
        if live is None or live.place != place or live.attempt < frame.attempt:
            name = f"{place.mark}_{place.k}"
            live = self._live = Live(place, frame.attempt, name)
            frame = self._hub.read(key) or frame
        if live.attempt == frame.attempt:
            at = Offset(place.mark, place.attempts + frame.attempt)
            yield from self._tell_raws(live.take(frame), at, frame.attempt)


def _asking(look: Look) -> Asking | None:
    """Return where the next answer is streamed; None when none is, or steps run side by side."""
    return asking(look.steps[-1]) if len(look.opens) == 1 else None


async def _first_of(*events: asyncio.Event, seconds: float) -> None:
    """Wait until one of these is set, or some seconds have passed."""
    if seconds <= 0 or any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _no_response(task_id: str) -> Any:
    raise TaskNotFoundError(task_id)
