"""A worker is killed while a task is finalized: its session has the turn exactly once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import StepFailedError
from holdfast.task.data.state import MOST_LOST
from tests.crash.lab import Lab
from tests.support.rig import assert_replays, read_record


@pytest.mark.parametrize(
    "point", [pytest.param("begin:close_here", marks=pytest.mark.exhaustive), "end:close_here"]
)
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


@pytest.mark.exhaustive
async def test_an_abandoned_task_leaves_nothing_in_the_session(lab: Lab) -> None:
    worker = lab.start(die=(("begin:close_here", 1),))
    task = await lab.create("look:a look:b", session="alice")
    await lab.runner.run_step(task)
    await lab.runner.abandon(task, reason="not needed", by="anna")
    await lab.until_dead(worker)
    lab.start()
    await lab.until_status(task, "abandoned")
    assert await lab.runner.session("alice").chat_history() == []


@pytest.mark.exhaustive
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
