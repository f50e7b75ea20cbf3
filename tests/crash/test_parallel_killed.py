"""A worker process is killed while steps run side by side; only what was not done is done again."""

from __future__ import annotations

import asyncio

import pytest

from tests.crash.lab import Lab
from tests.support.rig import until


@pytest.mark.exhaustive
async def test_killed_with_three_of_five_branches_done(lab: Lab) -> None:
    lab.hold("look")
    worker = await lab.serve(agent="fan")
    task = await lab.create("charge:a look:b charge:c look:d charge:e")
    running = asyncio.create_task(lab.runner.run_task(task))

    async def three_are_done() -> bool:
        return bool((await lab.runner.get_task(task)).steps == 4)

    await until(three_are_done)
    await lab.until_event("start", thing="b")
    await lab.until_event("start", thing="d")
    asked = len(lab.requests)
    await lab.kill(worker)
    lab.let_go("look")
    lab.start(agent="fan")
    assert (await running).output == "charge(a) look(b) charge(c) look(d) charge(e)"
    assert lab.starts == {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}
    assert lab.ends == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}
    assert len(lab.requests) == asked == 5
    steps = await lab.runner.get_completed_steps(task)
    assert {step.task_step.step_id for step in steps[1:4]} == {"a", "c", "e"}
