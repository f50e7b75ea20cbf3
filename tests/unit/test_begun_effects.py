"""A task with one payment, whose database goes back in time at any moment, and whose store fails.

No payment is made twice without a person's word.
"""

import asyncio
import copy
import dataclasses
import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryResponse
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from holdfast.activities.heartbeat import NotOursError
from holdfast.activities.tools.lookup import (
    Begun,
    _ends,  # pyright: ignore[reportPrivateUsage]
    begin_effect,
    end_effect,
    read_mark,
)
from holdfast.errors import ArchiveError, OutcomeUnknownError
from tests.simulation.clock import Clock
from tests.simulation.run import CONVERTER
from tests.simulation.server import Server
from tests.simulation.service import Service
from tests.simulation.worker import MemoryStore, memory_archive
from tests.support.scale import times

T = TypeVar("T")
RUN, LOST, BACKUP, RESTORE, SWAP, AGAIN = "run", "lost", "backup", "restore", "swap", "again"
MOVES = st.sampled_from([RUN, LOST, BACKUP, RESTORE, SWAP, AGAIN]) | st.integers(0, 5)
"""What happens next; a number is a run whose store fails at that request, before or after it. With
a swap the old database goes on, or the restored one."""


@dataclass
class Database:
    """What Temporal knows: the history, the activity that is to run, and what follows."""

    events: list[HistoryEvent] = field(default_factory=list[HistoryEvent])
    waits: HistoryEvent | None = None
    asks: bool = False
    is_done: bool = False

    def add(self, at: int) -> HistoryEvent:
        """Add an event to the history."""
        event = HistoryEvent(event_id=len(self.events) + 1)
        event.event_time.FromSeconds(at)
        self.events.append(event)
        return event


class Play(Service):
    """The moves of one example; and Temporal's service, as far as marks ask for histories.

    Attributes:
        paid: How often the payment was made.
        words: How often a person has said that it is to be made again.
    """

    def __init__(self) -> None:
        super().__init__(Server(Clock()))
        self.paid = self.words = self.time = 0
        self.database, self.backup = Database(), Database()
        self.archive = memory_archive()

    async def _rpc_call(self, *_given: Any, **_options: Any) -> Any:
        found = GetWorkflowExecutionHistoryResponse()
        found.history.events.extend(self.database.events)
        return found

    async def move(self, move: str | int) -> None:
        self.time += 1
        if move == BACKUP:
            self.backup = copy.deepcopy(self.database)
        elif move == RESTORE:
            self.database = copy.deepcopy(self.backup)
        elif move == SWAP:
            self.database, self.backup = self.backup, self.database
        elif self.database.asks:
            self.words += move == AGAIN
            self.database.asks = move != AGAIN
        elif not self.database.is_done and move != AGAIN:
            await self.run(move)

    def activity(self, sent: HistoryEvent) -> ActivityEnvironment:
        """Return the environment of the activity that an event has scheduled."""
        environment = ActivityEnvironment(Client(self, data_converter=CONVERTER))
        environment.info = dataclasses.replace(
            environment.info,
            activity_id=sent.activity_task_scheduled_event_attributes.activity_id,
            scheduled_time=dt.datetime.fromtimestamp(sent.event_time.seconds, dt.UTC),
            started_time=dt.datetime.fromtimestamp(self.time, dt.UTC),
        )
        return environment

    async def run(self, move: str | int) -> None:
        """Run the activity that waits, or schedule one first."""
        now = self.database
        if now.waits is None:
            now.waits = now.add(self.time)
            now.waits.activity_task_scheduled_event_attributes.activity_id = str(len(now.events))
            return
        sent, now.waits = now.waits, None
        environment = self.activity(sent)
        vars(self.archive)["_store"].fails = move if isinstance(move, int) else -1
        kind = ""
        try:
            await environment.run(begin_effect, self.archive, "0.1.0.0", "pay")
        except (OutcomeUnknownError, ArchiveError) as error:
            kind = type(error).__name__
        taken = now.add(self.time).activity_task_started_event_attributes  # not before its end
        taken.scheduled_event_id = sent.event_id
        if kind:
            failed = now.add(self.time).activity_task_failed_event_attributes
            failed.scheduled_event_id = sent.event_id
            failed.failure.application_failure_info.type = kind
        now.asks = move == LOST if not kind else kind == OutcomeUnknownError.__name__
        now.is_done = not (kind or now.asks)
        self.paid += not kind


class FailingStore(MemoryStore):
    """Fails at one request; it has been done or not, as the number is odd or even."""

    fails = -1

    def _at(self, call: Callable[..., T], *given: object) -> T:
        self.fails -= 2
        if self.fails == -2:
            raise OSError("no answer")
        found = call(*given)
        if self.fails == -1:
            raise OSError("no answer")
        return found

    def read(self, path: str) -> bytes:
        return self._at(super().read, path)

    def write(self, path: str, data: bytes, *, forced: bool = True) -> None:
        self._at(super().write, path, data)

    def create(self, path: str, data: bytes, *, exclusively: bool = False) -> bool:
        return self._at(super().create, path, data)


@given(st.lists(MOVES, max_size=40))
@example([RUN, BACKUP, RUN, RESTORE, RUN])
@example([RUN, BACKUP, RUN, RESTORE, 0, RUN, RUN])
@example([RUN, RUN, RESTORE, RUN, 3, RUN, RUN])
@settings(max_examples=times(100, 5000))
def test_no_payment_is_made_twice_without_a_persons_word(moves: list[str | int]) -> None:
    async def play() -> None:
        it = Play()
        vars(it.archive)["_store"] = FailingStore()
        for move in moves:
            await it.move(move)
            assert it.paid <= 1 + it.words
        while not it.database.is_done:  # every question can be answered
            await it.move(AGAIN if it.database.asks else RUN)

    asyncio.run(play())


async def begun_again(it: Play) -> ActivityEnvironment:
    """Schedule an activity; return its environment, once it is in the history that it runs."""
    await it.move(RUN)
    sent, it.database.waits = it.database.waits, None
    assert sent is not None
    taken = it.database.add(it.time).activity_task_started_event_attributes
    taken.scheduled_event_id = sent.event_id
    return it.activity(sent)


async def test_an_activity_that_was_given_up_does_not_replace_the_mark_of_a_later_one() -> None:
    it = Play()
    first = await begun_again(it)
    given_up = await first.run(begin_effect, it.archive, "0.1.0.0", "pay")
    later = await begun_again(it)
    begun = await later.run(begin_effect, it.archive, "0.1.0.0", "pay")
    with pytest.raises(NotOursError):
        await first.run(begin_effect, it.archive, "0.1.0.0", "pay")

    async def end(each: Begun) -> None:
        end_effect(it.archive, each, "done")
        await asyncio.gather(*_ends)

    await first.run(end, given_up)
    assert await read_mark(it.archive, begun.name) == begun.mark
    await later.run(end, begun)
    ended = await read_mark(it.archive, begun.name)
    assert ended is not None
    assert (ended.activity, ended.status) == (begun.mark.activity, "done")


async def test_of_two_databases_that_know_the_same_marks_one_begins_the_call() -> None:
    it = Play()
    await (await begun_again(it)).run(begin_effect, it.archive, "0.1.0.0", "pay")
    both = [copy.deepcopy(it.database) for _ in range(2)]
    store, here, first = FailingStore(), threading.Barrier(2), iter((True, True))
    old: MemoryStore = vars(it.archive)["_store"]
    vars(store).update(vars(old))
    vars(it.archive)["_store"] = store

    def create(path: str, data: bytes, *, exclusively: bool = False) -> bool:
        if next(first, False):  # both have seen what there was before
            here.wait(100)
        return FailingStore.create(store, path, data, exclusively=exclusively)

    vars(store)["create"] = create

    async def begin(database: Database) -> bool:
        own = Play()
        own.archive, own.database, own.time = it.archive, database, it.time + both.index(database)
        environment = await begun_again(own)
        try:
            await environment.run(begin_effect, own.archive, "0.1.0.0", "pay")
        except OutcomeUnknownError:
            return False
        return True

    both[1].add(it.time)  # the histories went on differently
    async with asyncio.timeout(100):
        assert sorted(await asyncio.gather(*map(begin, both))) == [False, True]
