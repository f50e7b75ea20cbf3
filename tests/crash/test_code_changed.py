"""A worker comes back with other code, another prompt or other tools while tasks are under way."""

import asyncio

import pytest

from holdfast.errors import StepCodeChangedError
from holdfast.testing import hang
from tests.crash.lab import Lab


async def test_the_next_step_runs_new_code_with_the_snapshot_of_the_task(lab: Lab) -> None:
    worker = lab.start(agent="signing", version="v1")
    task = await lab.create("look:a look:b")
    first = await lab.runner.run_step(task)
    await lab.kill(worker)
    lab.start(agent="signing", version="v2")
    last = await lab.runner.run_task(task)
    assert str(first).startswith("v1: ")
    assert last.output == "v2: final look(a) look(b)"
    assert lab.asked == [0, 1, 2]
    assert lab.starts == {"a": 1, "b": 1}
    prompts = [request.instructions for request in lab.api.requests]
    tools = [request.tools[0].description for request in lab.api.requests]
    assert prompts == ["Prompt v1."] * 3
    assert tools == ["Look at a thing, v1."] * 3
    # A new task begins with what the agent is now.
    await lab.runner.run_step(await lab.create("look:c"))
    assert lab.api.requests[-1].instructions == "Prompt v2."
    assert lab.api.requests[-1].tools[0].description == "Look at a thing, v2."


async def stop_in_mid_step(lab: Lab) -> tuple[str, asyncio.Task[object]]:
    """Kill a worker of version 1 after the first of the two calls of a step was answered."""
    lab.api.when(lambda request: request.last_user.endswith("second"), hang(), times=1)
    worker = await lab.serve(agent="two", version="v1")
    task = await lab.runner.create_task(f"ask {lab.job.app} now")
    running: asyncio.Task[object] = asyncio.create_task(lab.runner.run_step(task))
    await lab.api.until_held()
    await lab.kill(worker)
    return task.task_id, running


async def test_code_that_changed_in_mid_step_stops_the_step(lab: Lab) -> None:
    task, running = await stop_in_mid_step(lab)
    lab.start(agent="two", version="v2")
    with pytest.raises(StepCodeChangedError, match="in mid-step"):
        await running
    assert (await lab.runner.get_task(task)).status == "needs_attention"
    with pytest.raises(StepCodeChangedError):
        await lab.runner.run_step(task)
    ask = f"ask {lab.job.app} now"
    assert lab.questions == [f"{ask} first v1", f"{ask} second"]
    output = await lab.runner.run_step(task, restart="step")
    assert output.is_last
    assert output.output == f"<{ask} first v2> + <{ask} second>"
    assert lab.questions[2:] == [f"{ask} first v2", f"{ask} second"]
    assert (await lab.runner.get_task(task)).status == "answered"
