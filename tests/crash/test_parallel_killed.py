"""A worker process is killed while steps run side by side; only what was not done is done again."""

from __future__ import annotations

import asyncio

from tests.crash.lab import Lab
from tests.support.rig import until


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


async def test_killed_while_five_model_calls_are_in_flight(lab: Lab) -> None:
    lab.hold_model(0, times=5)
    worker = await lab.serve(agent="fan")
    runner = await lab.client(heartbeat=10)  # a starved process is not a lost one
    task = await runner.create_task(lab.say("look:a look:b look:c look:d look:e"))
    running = asyncio.create_task(lab.runner.run_task(task))

    async def five_are_asked() -> bool:
        return len(lab.requests) == 5

    await until(five_are_asked)
    await lab.kill(worker)
    lab.start(agent="fan")
    assert (await running).output == "look(a) look(b) look(c) look(d) look(e)"
    assert len(lab.requests) == 10  # the five that were lost on their way, once more each
    assert lab.starts == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}
