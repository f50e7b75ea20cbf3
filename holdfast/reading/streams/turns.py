"""Turns of streamed runs, which wait for the readers in this process.

A reader may stop its run in reaction to an event. So the next turn begins once the consumers have
come back for the event after the last one of the turn before. Nothing of it is durable: a run goes
on without its readers, and one in another process is not waited for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Literal, NamedTuple

from holdfast.reading.streams.hub import Listeners, LocalHub, local_hub

PATIENCE_SECONDS = 5.0
"""How long a turn waits for readers, then for a stop that is on its way. The time limit of a step's
activity has room for both."""


class Place(NamedTuple):
    """Names a step that is about to begin.

    Attributes:
        branch: Branch of the task's ledger.
        n: Number under which the step was opened.
    """

    branch: int
    n: int


class Reading:
    """One iterator over the events of a streamed run.

    Attributes:
        turn: Number of the newest step that was open when its consumer came back for more.
        counts: Whether turns wait for it.
    """

    def __init__(self, turns: StreamedTurns) -> None:
        """Begin to read."""
        self.turn = 0
        self.counts = True
        self._turns = turns
        self._consumer: asyncio.Task[Any] | None = None

    def hand_over(self) -> None:
        """Note which asyncio task gets the next event: it does not come back once it has failed.

        One that has ended well says nothing: a consumer may begin a task for each event.
        """
        task = asyncio.current_task()
        if task is not self._consumer:
            self._forget_consumer()
            self._consumer = task
            if task is not None and self._turns.are_watched:
                task.add_done_callback(self._lost)

    def came_back(self, opened: int) -> None:
        """Note that the consumer wants more: it has all events before the newest open step."""
        self.turn = opened
        self.counts = True
        self._turns.changed()

    def end(self) -> None:
        """Let no turn wait for it any more."""
        self._forget_consumer()
        self._turns.forget(self)

    def _lost(self, task: asyncio.Task[Any]) -> None:
        # `exception()` would count as the retrieval without which asyncio logs the user's error.
        failed = task.cancelled() or getattr(task, "_exception", None) is not None
        if failed and task is self._consumer:
            self.counts = False
            self._turns.changed()

    def _forget_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.remove_done_callback(self._lost)
            self._consumer = None


class StreamedTurns:
    """The turns of one streamed run, as far as its own process knows them. Safe from any thread.

    Attributes:
        task_id: Its task.
        begun: The newest step that has begun.
        readings: Its iterators.
        are_watched: Whether turns wait for the readers.
        is_stopping: Whether a stop is in transit to the task.
        is_over: Whether no one awaits the run any more.
    """

    def __init__(self, task_id: str, of: LocalTurns | None = None) -> None:
        """Know of no reader and no turn."""
        self.task_id = task_id
        self.begun = Place(0, 0)
        self.readings: list[Reading] = []
        self.are_watched = False
        self.is_stopping = False
        self.is_over = False
        self._all = of or local_turns

    def watch(self) -> None:
        """Let turns wait for the readers and the stops of the run."""
        self.are_watched = True
        self._all.add(self)

    def read(self) -> Reading:
        """Begin to read."""
        reading = Reading(self)
        self.readings = [*self.readings, reading]
        return reading

    def forget(self, reading: Reading) -> None:
        """Let no turn wait for an iterator any more."""
        self.readings = [each for each in self.readings if each is not reading]
        self.changed()

    def stop(self) -> None:
        """Let no turn begin until it is known whether the task takes the stop."""
        self.is_stopping = True

    def stopped(self, *, is_taken: bool) -> None:
        """Note whether the task has taken the stop: a turn that waits does not begin then."""
        self._all.stopped(self, is_taken=is_taken)

    def end(self) -> None:
        """Note that no one awaits the run any more."""
        self.is_over = True
        self._all.drop(self)

    def changed(self) -> None:
        """Let turns that wait look again."""
        self._all.wake(self.task_id)


class _Stop:
    """A stop that a task has taken.

    Attributes:
        begun: The newest step that had begun by then; it is finished.
        end: When it does not hold any more, by the monotonic clock.
        held: The steps that did not begin because of it: they begin when they are wanted again.
    """

    def __init__(self, begun: Place, end: float) -> None:
        self.begun = begun
        self.end = end
        self.held: set[Place] = set()


class LocalTurns:
    """The turns of all streamed runs of one process.

    Attributes:
        patience: How long a turn waits, in seconds.
    """

    def __init__(self, hub: LocalHub = local_hub) -> None:
        """Know no run.

        Args:
            hub: Where readers listen.
        """
        self.patience = PATIENCE_SECONDS
        self._hub = hub
        self._lock = threading.Lock()
        self._gates = Listeners()
        self._runs: dict[str, tuple[StreamedTurns, ...]] = {}
        self._stops: dict[str, _Stop] = {}

    def add(self, turns: StreamedTurns) -> None:
        """Let turns wait for the readers of a run."""
        with self._lock:
            now = time.monotonic()
            self._stops = {id: each for id, each in self._stops.items() if each.end > now}
            self._runs[turns.task_id] = (*self._runs.get(turns.task_id, ()), turns)

    def drop(self, turns: StreamedTurns) -> None:
        """Forget a run, unless a stop of it is on its way."""
        with self._lock:
            if turns.is_stopping:
                return
            left = tuple(e for e in self._runs.pop(turns.task_id, ()) if e is not turns)
            if left:
                self._runs[turns.task_id] = left
        self.wake(turns.task_id)

    def stopped(self, turns: StreamedTurns, *, is_taken: bool) -> None:
        """Note whether a task has taken the stop of a run."""
        with self._lock:
            turns.is_stopping = False
            if is_taken:
                end = time.monotonic() + self.patience
                self._stops[turns.task_id] = _Stop(turns.begun, end)
        if turns.is_over:
            self.drop(turns)
        self.wake(turns.task_id)

    def resume(self, task_id: str) -> None:
        """Forget that a task was stopped: it is about to go on."""
        with self._lock:
            self._stops.pop(task_id, None)

    def wake(self, task_id: str) -> None:
        """Let turns of a task that wait look again."""
        self._gates.wake(task_id)

    async def may_begin(self, task_id: str, place: Place) -> bool:
        """Wait until a step may begin; return whether it may, or was stopped before.

        Args:
            task_id: Its task.
            place: The step.
        """
        loop, seen = asyncio.get_running_loop(), set[str]()
        give_up = loop.time() + self.patience
        with self._gates.listening(task_id) as news:
            while (answer := self._answer(task_id, place)) not in ("begin", "stop"):
                if answer not in seen and answer == "stopping":
                    give_up = loop.time() + self.patience
                elif answer not in seen:
                    self._hub.hurry(task_id)  # else readers look a little later
                seen.add(answer)
                try:
                    async with asyncio.timeout_at(give_up):
                        await news.wait()
                except TimeoutError:
                    self._go_on(task_id, place)
                    return True
                news.clear()
        return answer == "begin"

    def _answer(
        self, task_id: str, place: Place
    ) -> Literal["begin", "stop", "stopping", "reading"]:
        """Return whether a step may begin, or what it waits for."""
        with self._lock:
            stop, runs = self._stops.get(task_id), self._runs.get(task_id, ())
            if stop is not None and time.monotonic() < stop.end and place > stop.begun:
                if place not in stop.held:
                    stop.held.add(place)
                    return "stop"
                return self._begin(runs, place)
            if all(place <= run.begun for run in runs):  # it is tried again, or nobody streams
                return "begin"
            if any(run.is_stopping for run in runs):
                return "stopping"
            first, readings = place.n == 1, [each for run in runs for each in run.readings]
            if not first and any(each.counts and each.turn < place.n for each in readings):
                return "reading"
            return self._begin(runs, place)

    @staticmethod
    def _begin(runs: tuple[StreamedTurns, ...], place: Place) -> Literal["begin"]:
        for run in runs:
            run.begun = max(run.begun, place)
        return "begin"

    def _go_on(self, task_id: str, place: Place) -> None:
        """Begin a step without those who are late; until they come back, no other one waits."""
        with self._lock:
            runs = self._runs.get(task_id, ())
            for each in (reading for run in runs for reading in run.readings):
                each.counts = each.counts and each.turn >= place.n
            self._begin(runs, place)


local_turns = LocalTurns()
"""The turns of this process."""
