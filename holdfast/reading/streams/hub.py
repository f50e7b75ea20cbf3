"""What a model says, and the turns of a streamed run, between a worker and readers in its process.

A heartbeat says of an unfinished answer what readers in other processes get.

A reader may stop its run in reaction to an event. So the next turn begins once the consumers have
come back for the event after the last one of the turn before. Nothing of it is durable: a run goes
on without its readers, and one in another process is not waited for.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Literal, NamedTuple

from holdfast.models.base import Delta
from holdfast.models.draft import Draft, Frame
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_array, is_object

MOST_UNITS = 100_000
"""Most characters of answers that are over which a hub keeps for its readers."""

MOST_ASKED = 10_000
"""Most tasks that a hub remembers as read by other processes."""


class StreamKey(NamedTuple):
    """Names one model call of one task.

    Attributes:
        task_id: The task.
        n: Number under which the step was opened.
        answer: How many answers the step had before.
    """

    task_id: str
    n: int
    answer: int


class News(asyncio.Event):
    """Set when there is something new of a task.

    Attributes:
        is_recorded: Whether it is in the task's record already.
    """

    is_recorded = False

    def set_recorded(self) -> None:
        """Say that there is something new in the record."""
        self.is_recorded = True
        self.set()


class Listeners:
    """Those who wait for news of tasks, in any threads and loops."""

    def __init__(self) -> None:
        """Begin with no one."""
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, News]]] = {}

    @contextmanager
    def listening(self, task_id: str) -> Generator[News]:
        """Yield what is set, in the running loop, when there is something new of a task."""
        mine = (asyncio.get_running_loop(), News())
        with self._lock:
            self._waiting.setdefault(task_id, []).append(mine)
        try:
            yield mine[1]
        finally:
            with self._lock:
                self._waiting[task_id].remove(mine)
                if not self._waiting[task_id]:
                    del self._waiting[task_id]

    def has(self, task_id: str) -> bool:
        """Whether someone waits for news of a task."""
        return task_id in self._waiting

    def wake(self, task_id: str, *, is_recorded: bool = False) -> None:
        """Say that there is something new of a task."""
        with self._lock:
            waiting = tuple(self._waiting.get(task_id, ()))
        for loop, news in waiting:
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(news.set_recorded if is_recorded else news.set)


class LocalHub:
    """A hub within one process; publisher and readers may be in different threads and loops."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._drafts: dict[StreamKey, Draft] = {}
        self._over: dict[StreamKey, Draft] = {}
        self._kept = 0
        self._readers = Listeners()
        self._name = secrets.token_hex(4)
        self._asked: dict[str, bool] = {}

    @property
    def name(self) -> str:
        """What tells this hub from those of other processes, of a forked one as well."""
        return f"{self._name}-{os.getpid()}"

    def asked(self, task_id: str, reader: str) -> None:
        """Note that a reader asks a task for its record; readers do at each news of it.

        Args:
            task_id: The task.
            reader: Name of the reader's hub; empty for one that wants no unfinished answers.
        """
        if not reader or reader == self.name:
            return
        with self._lock:
            self._asked.pop(task_id, None)
            self._asked[task_id] = True
            if len(self._asked) > MOST_ASKED:
                del self._asked[next(iter(self._asked))]

    def is_read_elsewhere(self, task_id: str) -> bool:
        """Whether a reader in another process may want a task's unfinished answer.

        It does if it has asked since the answer before. A task that no one has asked here may be
        asked in a worker process that has its workflow; but hardly when a reader is here.
        """
        return self._asked.get(task_id, not self._readers.has(task_id))

    def begin(self, key: StreamKey, attempt: int) -> Draft:
        """Begin an attempt, which voids the deltas of earlier ones; return its draft."""
        with self._lock:
            draft = self._drafts[key] = Draft(attempt)
            self._readers.wake(key.task_id)
        return draft

    def publish(self, key: StreamKey, draft: Draft, delta: Delta) -> None:
        """Publish one delta of an attempt, unless a later one has begun."""
        with self._lock:
            if self._drafts.get(key) is draft:
                draft.add(delta)
                self._readers.wake(key.task_id)

    def end(self, key: StreamKey, draft: Draft) -> None:
        """Drop the draft of an attempt that is over, unless a later one has begun."""
        with self._lock:
            if key.task_id in self._asked:
                self._asked[key.task_id] = False
            if self._drafts.get(key) is draft:
                del self._drafts[key]
                if draft.units:
                    self._keep(key, draft)
                self._readers.wake(key.task_id)

    def _keep(self, key: StreamKey, draft: Draft) -> None:
        """Keep the newest drafts that are over, as many as there is room for."""
        before = self._over.pop(key, None)
        self._over[key] = draft
        self._kept += draft.units - (before.units if before is not None else 0)
        while self._kept > MOST_UNITS:
            oldest = next(iter(self._over))
            self._kept -= self._over.pop(oldest).units

    def pieces(self, key: StreamKey) -> tuple[Delta, ...]:
        """Return the pieces in which an answer came that is over; nothing if they are not kept."""
        with self._lock:
            draft = self._over.get(key)
            return () if draft is None else draft.frame().deltas

    def read(self, key: StreamKey, since: int = 0) -> Frame | None:
        """Return the newest attempt's draft from a place on; None when no attempt is running."""
        with self._lock:
            draft = self._drafts.get(key)
            return None if draft is None else draft.frame(since if since <= draft.units else 0)

    def listening(self, task_id: str) -> AbstractContextManager[News]:
        """Yield an event that is set, in the running loop, at each change of a task's drafts."""
        return self._readers.listening(task_id)

    def hurry(self, task_id: str) -> None:
        """Let the readers of a task look at its record at once."""
        self._readers.wake(task_id, is_recorded=True)


local_hub = LocalHub()
"""The hub of this process."""


def write_progress(key: StreamKey, frame: Frame) -> dict[str, Json]:
    """Write a frame as the details of a heartbeat; the activity itself names the task."""
    return {
        "n": key.n,
        "k": key.answer,
        "a": frame.attempt,
        "at": frame.at,
        "d": [_short(delta) for delta in frame.deltas],
    }


def read_progress(task_id: str, details: Json) -> tuple[StreamKey, Frame] | None:
    """Read the details of a heartbeat; None for one that says nothing of an answer."""
    if not is_object(details) or not is_array(details.get("d")):
        return None
    key = StreamKey(task_id, details["n"], details["k"])
    deltas = tuple(Delta(*told) for told in details["d"])
    return key, Frame(details["a"], details["at"], deltas)


def _short(delta: Delta) -> list[Json]:
    """Leave out at the end what is at its default."""
    told: list[Json] = list(delta)
    while told and not told[-1]:
        told.pop()
    return told


PATIENCE_SECONDS = 5.0
"""How long a turn waits for readers, then for a stop in transit. The time limit of a step's
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
        runs: The streamed runs of each task.
        stops: The stops that tasks have taken just now.
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
        self.runs: dict[str, tuple[StreamedTurns, ...]] = {}
        self.stops: dict[str, _Stop] = {}

    def add(self, turns: StreamedTurns) -> None:
        """Let turns wait for the readers of a run."""
        with self._lock:
            now = time.monotonic()
            self.stops = {id: each for id, each in self.stops.items() if each.end > now}
            self.runs[turns.task_id] = (*self.runs.get(turns.task_id, ()), turns)

    def drop(self, turns: StreamedTurns) -> None:
        """Forget a run, unless a stop of it is in transit."""
        with self._lock:
            if turns.is_stopping:
                return
            left = tuple(e for e in self.runs.pop(turns.task_id, ()) if e is not turns)
            if left:
                self.runs[turns.task_id] = left
        self.wake(turns.task_id)

    def stopped(self, turns: StreamedTurns, *, is_taken: bool) -> None:
        """Note whether a task has taken the stop of a run."""
        with self._lock:
            turns.is_stopping = False
            if is_taken:
                end = time.monotonic() + self.patience
                self.stops[turns.task_id] = _Stop(turns.begun, end)
        if turns.is_over:
            self.drop(turns)
        self.wake(turns.task_id)

    def resume(self, task_id: str) -> None:
        """Forget that a task was stopped: it is about to go on."""
        with self._lock:
            self.stops.pop(task_id, None)

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
            stop, runs = self.stops.get(task_id), self.runs.get(task_id, ())
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
            runs = self.runs.get(task_id, ())
            for each in (reading for run in runs for reading in run.readings):
                each.counts = each.counts and each.turn >= place.n
            self._begin(runs, place)


local_turns = LocalTurns()
"""The turns of this process."""
