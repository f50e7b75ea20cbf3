"""A worker is killed while a task is finalized: its session has the turn exactly once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import StepFailedError
from holdfast.task.data.state import MOST_LOST
from tests.crash.lab import Lab, Labs
from tests.support.rig import assert_replays, read_record

POINTS = {
    "before the task closes": ("schedule:close", 1),
    "before the archive": ("begin:close", 1),
    "after the archive, before it was reported": ("end:close", 1),
    "before the commit": ("signal:commit", 1),
    "after the commit": ("signalled:commit", 1),
}


async def test_the_session_has_the_turn_once(labs: Labs) -> None:
    async with asyncio.TaskGroup() as group:
        for name, point in POINTS.items():
            group.create_task(kill_while_closing(labs, name, point))


async def kill_while_closing(labs: Labs, name: str, point: tuple[str, int]) -> None:
    async with labs.named(name) as lab:
        worker = lab.start(die=(point,))
        task = await lab.create("charge:a", session="alice")
        await lab.runner.run_task(task)
        finalizing = asyncio.create_task(lab.runner.finalize_response(task))
        await lab.until_dead(worker)
        lab.start()
        response = await finalizing
        assert str(response) == "final charge(a)"
        assert lab.asked == [0, 1]
        assert lab.starts == {"a": 1}
        roles = ["user", "assistant", "tool", "assistant"]
        history = await lab.runner.session("alice").chat_history()
        assert [message.role for message in history] == roles
        # Finalized again, by anybody, it gives the same and commits nothing.
        assert await lab.runner.finalize_response(task) == response
        second = await lab.create("look:b", session="alice")
        await lab.runner.run_task(second)
        assert len(lab.requests[-1].messages) == 4 + 3
        await lab.runner.finalize_response(second)
        history = await lab.runner.session("alice").chat_history()
        assert [message.role for message in history] == roles * 2


@pytest.mark.parametrize("point", ["begin:close_here", "end:close_here"])
async def test_a_task_is_closed_once_in_the_workflow_task_that_ends_it(
    lab: Lab, point: str
) -> None:
    worker = lab.start(die=((point, 1),))
    task = await lab.create("charge:a")
    await lab.runner.run_task(task)
    finalizing = asyncio.create_task(lab.runner.finalize_response(task))
    await lab.until_dead(worker)
    prepared = await read_record(lab.runner.archive, task.task_id)
    assert (prepared is not None) is (point == "end:close_here")
    assert await lab.runner.reader.records.read(task.task_id) is None
    lab.start()
    assert str(await finalizing) == "final charge(a)"
    assert lab.starts == {"a": 1}
    assert await lab.runner.reader.records.read(task.task_id) is not None
    assert await lab.runner.verify(task) == []
    await assert_replays(lab.runner, task)


async def test_an_abandoned_task_leaves_nothing_in_the_session(lab: Lab) -> None:
    worker = lab.start(die=(("begin:close_here", 1),))
    task = await lab.create("look:a look:b", session="alice")
    await lab.runner.run_step(task)
    await lab.runner.abandon(task, reason="not needed", by="anna")
    await lab.until_dead(worker)
    lab.start()
    await lab.until_status(task, "abandoned")
    assert await lab.runner.session("alice").chat_history() == []


async def test_a_finalize_that_no_worker_survives_leaves_nothing_after_an_abandon(lab: Lab) -> None:
    worker = lab.start(die=(("end:close", 1),))
    task = await lab.create("charge:a", session="alice")
    await lab.runner.run_task(task)
    finalizing = asyncio.create_task(lab.runner.finalize_response(task))
    for _ in range(MOST_LOST - 1):
        await lab.until_dead(worker)
        worker = lab.start(die=(("end:close", 1),))
    await lab.until_dead(worker)
    worker = lab.start(die=(("schedule:close", 1),))  # it dies as it is about to try again
    with pytest.raises(StepFailedError, match="could not be closed"):
        await finalizing
    await lab.until_dead(worker)
    await lab.runner.abandon(task, reason="not needed", by="anna")
    lab.start()
    await lab.until_status(task, "abandoned")
    assert await lab.runner.session("alice").chat_history() == []
    assert await lab.runner.verify(task) == []
