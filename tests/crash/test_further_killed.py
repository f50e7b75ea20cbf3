"""A worker is lost while its activity runs a step after the first one."""

from __future__ import annotations

import asyncio

from tests.crash.lab import Lab
from tests.support.rig import assert_replays


async def test_lost_in_the_model_call_of_a_further_step(lab: Lab) -> None:
    lab.hold_model(2)
    worker = await lab.serve(fast=True)
    task = await lab.create("look:a look:b look:c")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.until_steps_kept(task, 2)
    await lab.kill(worker)
    lab.start()
    assert (await running).output == "final look(a) look(b) look(c)"
    assert lab.asked == [0, 1, 2, 2, 3]  # only the call in flight was made again
    assert lab.starts == {"a": 1, "b": 1, "c": 1}
    assert len(await lab.runner.get_completed_steps(task)) == 4
    await lab.runner.finalize_response(task)
    assert await lab.runner.verify(task) == []
    await assert_replays(lab.runner, task)
