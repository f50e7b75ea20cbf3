"""RunResultStreaming: a run that goes on while its events are read."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, get_args

from temporalio.exceptions import TemporalError

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.items.run_items import RunItem
from holdfast.agents.runs.item_helpers import RunInput
from holdfast.agents.runs.results import RunData, RunResult, summary
from holdfast.agents.runs.teams import has_servers, team_of
from holdfast.client.agent_runner.task_client.task_client import Caller, TaskClient
from holdfast.client.runner.input import Reviver
from holdfast.client.streamed import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Open,
    Streamed,
    Wrap,
    direct,
)
from holdfast.engine.converter import without_plumbing
from holdfast.errors import (
    CommandRefusedError,
    EngineError,
    HoldfastError,
    TaskAbandonedError,
    TaskClosedError,
    TaskNotFoundError,
    UserError,
)
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import read_recorded
from holdfast.reading.runs.run_results import add_followed, listed, run_data
from holdfast.reading.streams.reader import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StepUndoneStreamEvent,
    StreamEvent,
    StreamReader,
)
from holdfast.values.base import Json, pauses
from holdfast.values.code.context_data import CallersContext
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.logs import log

if TYPE_CHECKING:
    from holdfast.client.agent_runner.runner import AgentRunner

__all__ = ["RunResultStreaming"]


CANCELLED = "cancelled after the turn"
CANCEL_SECONDS = 60.0
"""How long a cancel is tried again while the server cannot be reached."""

READ_SECONDS = 2.0
"""Time limit for reading the items of a cancelled run."""

CancelMode = Literal["immediate", "after_turn"]


@without_plumbing
class RunResultStreaming(Streamed[RunResult]):
    """A run in progress, with the members of a RunResult; all are set once it is complete.

    Before that they hold what was read from the stream: no answer yet, the items so far. After a
    failure or a cancel they hold what the run had made by then.

    Attributes:
        task_id: The run's task: any process can read its events, see `AgentRunner.stream_events`.
        current_agent: The agent that runs now, as far as events were read.
        current_turn: Number of model calls that were begun, as far as events were read.
    """

    def __init__(
        self,
        agent: Agent,
        given: RunInput,
        task_id: str,
        *,
        run: Callable[[Callable[[], None]], Coroutine[Any, Any, RunResult]],
        find_engine: Callable[[], Coroutine[Any, Any, AgentRunner]],
        context: CallersContext | None = None,
        reviver: Reviver | None = None,
        by: str = "",
        resumes: bool = False,
        wrap: Wrap = direct,
    ) -> None:
        """Start the run.

        Args:
            agent: The agent that it starts with.
            given: Its input.
            task_id: Its task.
            run: Runs it; gets a function to call, from any thread, once the task is known to be its
                own.
            find_engine: Finds, or starts, the engine.
            context: The caller's context.
            reviver: Makes its object for a resumed run, where none was given.
            by: Name recorded when the run is cancelled.
            resumes: Whether the task exists already: its earlier events are not yielded.
            wrap: How to reach the engine's loop.
        """
        self._given = listed(given)
        self.current_agent: Any = users_agent(agent)
        self.current_turn = 0
        self._context = context
        self._reviver = reviver
        self._by = by
        self._find_engine = find_engine
        self._agent = agent
        self._team = team_of(agent)
        self._resumes = resumes
        self._items: dict[int, RunItem] = {}  # by offset: they may be read again
        self._turns: set[str] = set()
        self._read_to = 0  # offset of the newest event of a turn that was read
        self._made: RunData | None = None
        self._cancelled = False
        self._cancelling: asyncio.Task[None] | None = None

        async def work(opened: Callable[[Open], None]) -> RunResult:
            engine = await wrap(find_engine())
            begun = await wrap(_offset_now(engine, task_id)) if resumes else 0

            def open_reader(offset: int | None) -> StreamReader:
                reader = Reader(engine.client, engine.archive)
                at = begun if offset is None else offset
                return StreamReader(reader, task_id, offset=at, team=self._team, resumes=resumes)

            return await run(lambda: opened(open_reader))

        super().__init__(task_id, work, wrap=wrap)
        self._own_turns.watch()

    @property
    def is_complete(self) -> bool:
        """Whether the run is finished, has failed, was cancelled or waits for a person."""
        return self._cancelled or super().is_complete

    @property
    def run_loop_task(self) -> asyncio.Task[RunResult]:
        """The asyncio task that waits for the run: to await it is to await `result()`."""
        return self._work

    @property
    def run_loop_exception(self) -> BaseException | None:
        """The error that ended the run; None after a cancel."""
        return None if self._cancelled else super().run_loop_exception

    @property
    def final_output(self) -> Any:
        """The answer; None while the run is in progress or waits for a person."""
        return self._so_far.final_output

    @property
    def input(self) -> str | list[dict[str, Json]]:
        """The input of the run; once it is complete, as a RunResult has it."""
        return self._so_far.input

    @input.setter
    def input(self, given: str | list[dict[str, Json]]) -> None:
        """Set the input from which `to_input_list` is made."""
        made = self._whole
        if made is None:
            self._given = given
        else:
            made.input = given

    @property
    def new_items(self) -> list[RunItem]:
        """The items of the run: all once it is complete, else the ones read so far."""
        return self._so_far.new_items

    @property
    def last_agent(self) -> Any:
        """The agent that ran last."""
        return self._so_far.last_agent

    def to_input_list(
        self, *, mode: Literal["preserve_all", "normalized"] = "preserve_all"
    ) -> list[Any]:
        """Return input and new items as the input of a following run.

        Args:
            mode: As for a RunResult; the modes differ once the run is complete.
        """
        return self._so_far.to_input_list(mode=mode)

    async def result(self) -> RunResult:
        """Wait for the run and return its result; raise what went wrong.

        Raises:
            EngineError: The run could not be cancelled, and has gone on.
        """
        await asyncio.wait([self._work])
        if self._cancelling is not None:
            await asyncio.wait([self._cancelling])
            self._cancelling.result()
        return self._work.result()

    def cancel(self, mode: CancelMode = "immediate") -> None:
        """End the run.

        While the server cannot be reached, the run goes on and the cancel is tried again. If it
        fails for good, the end of the stream and `result` raise.

        Args:
            mode: "immediate": no further event is yielded, and reading ends once the task's abandon
                is recorded. The worker process then cancels model calls and async tools in
                progress; a sync tool goes on in its thread, and the provider may bill an answer
                that it had begun. `result` waits until the task is closed. "after_turn": the turn
                of the newest event that was read is finished with its tools (when none was read:
                the turn in progress); then the task is paused. Running its state, or `resume`, goes
                on with it. The next turn does not begin if the worker is in this process and waits
                for the reader of that event, as it does for a few seconds. Else a model call of it
                that has begun goes on, and its answer is kept; so do its tools, once one has begun.

        Raises:
            UserError: There is no such mode.
        """
        if mode not in get_args(CancelMode):
            raise UserError(f"mode must be one of {get_args(CancelMode)}; it was {mode!r}.")
        if self.is_complete:
            return
        self._own_turns.stop()
        self._cancelled = mode == "immediate"
        if self._cancelled:
            self._cut.set()
        self._cancelling = asyncio.get_running_loop().create_task(self._cancel(mode))
        self._keep(self._cancelling)

    async def _cancel(self, mode: CancelMode) -> None:
        """Stop the task, once it is known to be this run's; if that fails, nothing is cancelled.

        Raises:
            EngineError: The server or its worker cannot be reached.
        """
        is_stopped = False
        try:
            is_stopped = await self._is_begun() and await self._stop(mode)
        finally:
            if self._own_turns.is_stopping:
                self._own_turns.stopped(is_taken=is_stopped)
            self._cancelled = self._cancelled and is_stopped
            if not self._cancelled:
                self._cut.clear()

    async def _stop(self, mode: CancelMode) -> bool:
        """Stop the task; return False if the run came to its own end first."""
        engine = await self._wrap(self._find_engine())
        give_up = asyncio.get_running_loop().time() + CANCEL_SECONDS
        waits = pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while not self._work.done():
            try:
                if mode == "immediate":
                    reason = "the streamed run was cancelled"
                    await self._wrap(engine.abandon(self.task_id, reason, self._by))
                else:
                    await self._wrap(self._pause(engine))
            except (TaskClosedError, TaskNotFoundError, CommandRefusedError):  # it ends by itself
                await asyncio.wait([self._work])
            except EngineError:
                if asyncio.get_running_loop().time() >= give_up:
                    log.exception("The run %s could not be cancelled: it goes on", self.task_id)
                    raise
                await asyncio.wait([self._work], timeout=next(waits))
            else:
                self._own_turns.stopped(is_taken=True)
                if mode == "immediate":
                    await self._read_made(engine)
                return True
        return isinstance(super().run_loop_exception, TaskAbandonedError)

    async def _pause(self, engine: AgentRunner) -> None:
        """Pause the task after its turn, so that running the run's state resumes it."""
        body: dict[str, Json] = {"reason": CANCELLED, "after": self._read_to, "run": True}
        tasks = TaskClient(engine.client, engine.reader, Caller())
        await tasks.command(self.task_id, "pause", by=self._by, body=body)

    async def _read_made(self, engine: AgentRunner) -> None:
        """Read the items of the cancelled run; if that fails, keep the ones from the stream."""
        given = None if self._resumes else self._given
        try:
            async with asyncio.timeout(READ_SECONDS):
                servers = has_servers(self._agent)
                reading = read_recorded(engine.reader, self.task_id, servers=servers)
                recorded = await self._wrap(reading)
            made = run_data(recorded, self._agent, given=given, context=self._context)
            await self._wrap(add_followed(made, recorded, engine.reader, self._agent))
            if self._reviver is not None:
                await self._reviver.complete(made)
            self._made = made
        except (HoldfastError, TemporalError, TimeoutError, ValueError):
            log.warning("What the run %s had made could not be read", self.task_id, exc_info=True)

    async def _settle(self) -> None:
        if self._cut.is_set() and self._cancelling is not None:
            await asyncio.wait([self._cancelling])
            self._cancelling.result()
            if self._cancelled:  # `result` raises how the task ends
                return
        try:
            await self.result()
        except HoldfastError:
            if not self._cancelled:
                raise

    @property
    def _so_far(self) -> RunResult:
        """The result, as far as it is known: whole once the run is over, else what was read."""
        made = self._whole
        if made is not None:
            return made if isinstance(made, RunResult) else RunResult(**made.__getstate__())
        return RunResult(
            input=self._given,
            new_items=list(self._items.values()),
            last_agent=self.current_agent,
            context_wrapper=RunContextWrapper(
                None if self._context is None else self._context.object, task_id=self.task_id
            ),
            task_id=self.task_id,
            last_member=self._team.name_of(self.current_agent),
        )

    @property
    def _whole(self) -> RunData | None:
        """What the run has made, once it is over or was cancelled; None before that."""
        if self._work.done() and not self._work.cancelled():
            error = self._work.exception()
            if error is None:
                return self._work.result()
            data: RunData | None = getattr(error, "run_data", None)
            if data is not None:
                return data
        return self._made

    def __str__(self) -> str:
        """Return a short summary of the run, as far as it is known."""
        error = self.run_loop_exception
        if error is not None:
            state = f"failed with {type(error).__name__}"
        elif self._cancelled:
            state = "cancelled"
        else:
            state = "complete" if self.is_complete else f"in progress, turn {self.current_turn}"
        return summary(self._so_far, f"{type(self).__name__} ({state})")

    def __getattr__(self, name: str) -> Any:
        """Return the member of a RunResult with this name, as far as it is known.

        Raises:
            AttributeError: A RunResult has no such attribute.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._so_far, name)

    def _note(self, event: StreamEvent) -> None:
        match event:
            case AgentUpdatedStreamEvent():
                self.current_agent = event.new_agent
            case RunItemStreamEvent():
                self._items[event.offset] = event.item
                self._read_to = max(self._read_to, event.offset)
            case StepUndoneStreamEvent():
                kept = {at: item for at, item in self._items.items() if not event.is_void(at)}
                self._items = kept
            case RawResponsesStreamEvent():
                self._read_to = max(self._read_to, event.offset)
                if event.data.type == "response.created":
                    self._turns.add(event.data.response.id)
                    self.current_turn = len(self._turns)


async def _offset_now(engine: AgentRunner, task_id: str) -> int:
    """Return the offset of the newest event of a task; of a closed task, one behind all events."""
    reader = StreamReader(Reader(engine.client, engine.archive), task_id)
    try:
        await reader.skip(to="now")
    except TaskClosedError:
        return sys.maxsize
    return reader.offset
