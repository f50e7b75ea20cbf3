"""Turns of streamed runs: what they wait for, and what becomes of a stop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable

import pytest

from holdfast.reading.streams.hub import LocalHub, LocalTurns, Place, StreamedTurns

NEVER = 1000.0


class Gates:
    """One streamed run, and the steps that want to begin."""

    def __init__(self) -> None:
        self.hub = LocalHub()
        self.all = LocalTurns(self.hub)
        self.all.patience = NEVER
        self.run = self.more()

    def more(self) -> StreamedTurns:
        made = StreamedTurns("task", self.all)
        made.watch()
        return made

    def step(self, n: int, *, branch: int = 0) -> asyncio.Task[bool]:
        return asyncio.create_task(self.all.may_begin("task", Place(branch, n)))


@pytest.fixture
async def gates() -> AsyncGenerator[Gates]:
    async with asyncio.timeout(100):
        yield Gates()


async def waits(step: asyncio.Task[bool]) -> bool:
    """Return whether a step still waits once all that is ready has run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not step.done()


async def begins(step: Awaitable[bool]) -> bool:
    return await step


async def test_a_turn_begins_when_all_readers_have_come_back(gates: Gates) -> None:
    one, two = gates.run.read(), gates.run.read()
    step = gates.step(2)
    one.came_back(2)
    two.came_back(1)
    assert await waits(step)
    two.came_back(2)
    assert await begins(step)


async def test_neither_the_first_turn_waits_nor_one_that_is_tried_again(gates: Gates) -> None:
    reading = gates.run.read()
    assert await gates.step(1)
    reading.came_back(2)
    assert await gates.step(2)
    reading.came_back(1)
    assert await gates.step(2)
    again = gates.step(2, branch=1)
    assert await waits(again)
    again.cancel()


async def test_a_turn_waits_for_nobody_who_has_ended(gates: Gates) -> None:
    reading = gates.run.read()
    step = gates.step(2)
    assert await waits(step)
    reading.end()
    assert await begins(step)
    assert await gates.all.may_begin("another", Place(0, 2))


@pytest.mark.parametrize("fails", [True, False])
async def test_a_consumer_counts_while_it_may_come_back(gates: Gates, fails: bool) -> None:
    reading = gates.run.read()

    async def consume() -> None:
        reading.hand_over()
        if fails:
            raise RuntimeError("the consumer is broken")

    await asyncio.gather(asyncio.create_task(consume()), return_exceptions=True)
    step = gates.step(2)
    assert await waits(step) is not fails
    reading.came_back(2)
    assert await begins(step)
    later = gates.step(3)
    assert await waits(later)
    later.cancel()


async def test_a_late_reader_holds_up_one_turn_until_it_has_come_back(gates: Gates) -> None:
    reading = gates.run.read()
    gates.all.patience = 0.01
    assert await gates.step(2)
    gates.all.patience = NEVER
    assert await gates.step(3)
    reading.came_back(3)
    step = gates.step(4)
    assert await waits(step)
    step.cancel()


async def test_a_stop_that_is_taken_keeps_what_has_not_begun_once(gates: Gates) -> None:
    gates.run.read().came_back(9)
    assert await gates.step(2)
    gates.run.stop()
    assert await gates.step(2)
    step = gates.step(3)
    assert await waits(step)
    gates.run.end()
    gates.run.stopped(is_taken=True)
    assert not await step
    assert not await gates.step(4)  # it was on its way when the run was over for its caller
    assert await gates.step(3)  # the task wants it again: it was resumed


@pytest.mark.parametrize("how", ["resumed", "late"])
async def test_a_stop_holds_until_the_task_goes_on(gates: Gates, how: str) -> None:
    if how == "late":
        gates.all.patience = 0.0
    gates.run.stop()
    gates.run.stopped(is_taken=True)
    gates.run.end()
    gates.all.patience = NEVER
    if how == "resumed":
        gates.all.resume("task")
    assert await gates.step(2)
