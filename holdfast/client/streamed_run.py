"""RunResultStreaming: a run that goes on while its events are read."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal

from holdfast.agent import Agent
from holdfast.client.items import RunItem, team_of
from holdfast.client.reading import Reader
from holdfast.client.results import RunResult
from holdfast.client.running import CANCELLED, RUNNER
from holdfast.client.streamed import Open, Streamed, Wrap, direct
from holdfast.client.streaming import StreamReader
from holdfast.errors import CommandRefusedError, HoldfastError, TaskClosedError, TaskNotFoundError
from holdfast.stream_events import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StreamEvent,
)
from holdfast.values import Json

if TYPE_CHECKING:
    from holdfast.client.runner import AgentRunner

__all__ = ["RunResultStreaming", "direct"]

_RETRY_SECONDS = 0.02

CancelMode = Literal["immediate", "after_turn"]


class RunResultStreaming(Streamed[RunResult]):
    """A run in progress. What a RunResult has, this has as well, once the run is complete.

    Attributes:
        task_id: The run's task: any process can read its events, see `AgentRunner.stream_events`.
        input: What the run was given.
        current_agent: The agent that runs now, as far as events were read.
        current_turn: Number of model calls that were begun, as far as events were read.
    """

    def __init__(
        self,
        agent: Agent,
        given: str | Sequence[dict[str, Json]],
        task_id: str,
        *,
        run: Callable[[], Coroutine[Any, Any, RunResult]],
        find_engine: Callable[[], Coroutine[Any, Any, AgentRunner]],
        resumes: bool = False,
        wrap: Wrap = direct,
    ) -> None:
        """Start the run.

        Args:
            agent: The agent that it starts with.
            given: Its input.
            task_id: Its task.
            run: Runs it.
            find_engine: Finds, or starts, the engine.
            resumes: Whether the task is there already: what it had done is not told again.
            wrap: How to reach the engine's loop.
        """
        self.input = given if isinstance(given, str) else list(given)
        self.current_agent: Any = agent
        self.current_turn = 0
        self._find_engine = find_engine
        self._items: list[RunItem] = []
        self._turns: set[str] = set()
        self._cancelled = False

        async def work(opened: Callable[[Open], None]) -> RunResult:
            engine = await wrap(find_engine())
            team = team_of(agent)
            begun = await wrap(_offset_now(engine, task_id)) if resumes else 0

            def open_reader(offset: int | None) -> StreamReader:
                reader = Reader(engine.client, engine.archive)
                at = begun if offset is None else offset
                return StreamReader(reader, task_id, offset=at, team=team, resumes=resumes)

            opened(open_reader)
            return await run()

        super().__init__(task_id, work, wrap=wrap)

    @property
    def is_complete(self) -> bool:
        """Whether the run is finished, has failed, was cancelled or waits for a person."""
        return self._cancelled or super().is_complete

    @property
    def run_loop_exception(self) -> BaseException | None:
        """What ended the run, if it was an error; cancelling it is none."""
        return None if self._cancelled else super().run_loop_exception

    @property
    def final_output(self) -> Any:
        """The answer; None while the run is in progress or waits for a person."""
        found = self._found
        return found.final_output if found is not None else None

    @property
    def new_items(self) -> list[RunItem]:
        """What the run has made: all of it once it is complete, else what was read of it."""
        found = self._found
        return found.new_items if found is not None else list(self._items)

    @property
    def last_agent(self) -> Any:
        """The agent that ran last."""
        found = self._found
        return found.last_agent if found is not None else self.current_agent

    def to_input_list(
        self, *, mode: Literal["preserve_all", "normalized"] = "preserve_all"
    ) -> list[dict[str, Json]]:
        """Return input and new items as the input of a following run.

        Args:
            mode: As for a RunResult; the difference shows once the run is complete.
        """
        found = self._found
        if found is not None:
            return found.to_input_list(mode=mode)
        given = self.input
        start = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        return [*start, *(item.to_input_item() for item in self._items)]

    def cancel(self, mode: CancelMode = "immediate") -> None:
        """End the run.

        Args:
            mode: "immediate": the task is abandoned, and reading ends. "after_turn": the turn in
                progress and its tools are finished; then the task is paused, and running its
                state, or `resume`, goes on with it.
        """
        if self.is_complete:
            return
        self._cancelled = mode == "immediate"
        self._keep(asyncio.get_running_loop().create_task(self._cancel(mode)))

    async def _cancel(self, mode: CancelMode) -> None:
        """Tell the task, which may be about to be created."""
        engine = await self._wrap(self._find_engine())
        while not self._work.done():
            try:
                if mode == "immediate":
                    reason = "the streamed run was cancelled"
                    await self._wrap(engine.abandon(self.task_id, reason))
                elif not (await self._wrap(engine.get_task(self.task_id))).paused:
                    await self._wrap(engine.pause(self.task_id, CANCELLED, by=RUNNER))
            except TaskNotFoundError:
                await asyncio.sleep(_RETRY_SECONDS)
            except (TaskClosedError, CommandRefusedError):  # it has ended meanwhile
                return
            else:
                return

    async def _settle(self) -> None:
        try:
            await self.result()
        except HoldfastError:
            if not self._cancelled:
                raise

    @property
    def _found(self) -> RunResult | None:
        if not self._work.done() or self._work.cancelled() or self._work.exception() is not None:
            return None
        return self._work.result()

    def __getattr__(self, name: str) -> Any:
        """Return what the finished run's result has under this name.

        Raises:
            AttributeError: A RunResult has no such attribute, or there is none yet.
        """
        found = None if name.startswith("_") else self._found
        if found is None:
            msg = f"{name!r} is not known before the run is complete: read stream_events() first."
            raise AttributeError(msg)
        return getattr(found, name)

    def _note(self, event: StreamEvent) -> None:
        match event:
            case AgentUpdatedStreamEvent():
                self.current_agent = event.new_agent
            case RunItemStreamEvent():
                self._items.append(event.item)
            case RawResponsesStreamEvent() if event.data.type == "response.created":
                self._turns.add(event.data.response.id)
                self.current_turn = len(self._turns)
            case RawResponsesStreamEvent():
                return


async def _offset_now(engine: AgentRunner, task_id: str) -> int:
    """Return the offset of what has happened in a task up to now; of a closed one, of all."""
    reader = StreamReader(Reader(engine.client, engine.archive), task_id)
    try:
        await reader.skip(to="now")
    except TaskClosedError:
        return sys.maxsize
    return reader.offset
