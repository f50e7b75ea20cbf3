"""A worker is lost while its activity runs a step after the first one."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tests.crash.lab import Lab
from tests.support.rig import activities_of, assert_replays


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_lost_in_the_model_call_of_a_further_step(lab: Lab, number: int) -> None:
    lab.hold_model(2)
    worker = await lab.serve(fast=True)
    task = await lab.create("look:a look:b look:c")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.until_steps_kept(task, 2)
    await lab.kill(worker, number)
    lab.start()
    assert (await running).output == "final look(a) look(b) look(c)"
    assert lab.asked == [0, 1, 2, 2, 3]  # only the call in flight was made again
    assert lab.starts == {"a": 1, "b": 1, "c": 1}
    assert len(await lab.runner.get_completed_steps(task)) == 4
    await lab.runner.finalize_response(task)
    assert await lab.runner.verify(task) == []
    await assert_replays(lab.runner, task)


async def test_lost_in_the_tool_of_a_further_step(lab: Lab) -> None:
    lab.hold_model(1)
    worker = await lab.serve(fast=True)
    task = await lab.create("look:a look:b look:c")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    lab.hold("look")
    lab.api.release()
    await lab.until_event("start", thing="b")
    await lab.kill(worker)
    lab.let_go("look")
    lab.start()
    assert (await running).output == "final look(a) look(b) look(c)"
    assert lab.asked == [0, 1, 2, 3]
    assert lab.starts == {"a": 1, "b": 2, "c": 1}
    assert "tool" in await activities_of(lab.runner.client, task.task_id)
    await assert_replays(lab.runner, task)


async def test_lost_when_all_steps_are_done_and_before_the_result_is_recorded(lab: Lab) -> None:
    worker = lab.start(die=(("end:step", 1),), fast=True)
    task = await lab.create("look:a look:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_dead(worker)
    lab.start()
    assert (await running).output == "final look(a) look(b)"
    # The answers that called tools were handed over before these; the last one was not.
    assert lab.asked == [0, 1, 2, 2]
    assert len(await lab.runner.get_completed_steps(task)) == 3
    await assert_replays(lab.runner, task)


async def test_steps_of_a_lost_worker_keep_their_times(lab: Lab) -> None:
    lab.hold_model(2)
    worker = await lab.serve(mute=True)  # what it has told the task is unknown to the next one
    task = await lab.create("look:a look:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)
    killed = time.time()
    lab.start()
    await running
    times = [each.time for each in await lab.runner.audit(task) if each.kind == "step"]
    assert len(times) == 3
    assert times[1] < killed < times[2]
