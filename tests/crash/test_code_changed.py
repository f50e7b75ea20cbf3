"""A worker comes back with other code, another prompt or other tools while tasks are under way."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StepCodeChangedError, StepFailedError
from holdfast.testing import fail, hang
from tests.crash.lab import Lab
from tests.support.people import asked


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


async def test_the_earlier_code_put_back_pays_nothing_twice(lab: Lab) -> None:
    task, running = await stop_in_mid_step(lab)
    changed = lab.start(agent="two", version="v2")
    with pytest.raises(StepCodeChangedError):
        await running
    await lab.kill(changed)
    lab.start(agent="two", version="v1")
    ask = f"ask {lab.job.app} now"
    output = await lab.runner.run_step(task)
    assert output.output == f"<{ask} first v1> + <{ask} second>"
    assert lab.questions == [f"{ask} first v1", f"{ask} second", f"{ask} second"]


async def test_a_step_that_the_model_refused_runs_again(lab: Lab) -> None:
    lab.api.when(lambda r: len(r.results) == 1, fail(401, message="bad key"), times=1)
    worker = lab.start()
    task = await lab.create("charge:a look:b")
    with pytest.raises(StepFailedError, match="bad key"):
        await lab.runner.run_task(task)
    assert (await lab.runner.get_task(task)).status == "needs_attention"
    await lab.kill(worker)
    lab.start()
    assert (await lab.runner.run_task(task)).output == "final charge(a) look(b)"
    assert lab.asked == [0, 1, 1, 2]
    assert lab.starts == {"a": 1, "b": 1}


async def test_a_step_whose_tool_was_missing_runs_again(lab: Lab) -> None:
    worker = await lab.serve()
    task = await lab.create("look:a,charge:b,book:c look:d")
    lab.hold_model(0)
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.api.until_held()
    await lab.kill(worker)
    poorer = lab.start(agent="without-charge")
    with pytest.raises(StepFailedError, match="charge"):
        await running
    assert (await lab.runner.get_task(task)).status == "needs_attention"
    assert lab.starts == {"a": 1, "c": 1}
    await lab.kill(poorer)
    lab.start()
    assert not (await lab.runner.run_step(task)).is_last
    assert (await lab.runner.run_task(task)).output == "final look(a) charge(b) book(c) look(d)"
    # The first model call was in flight at the kill; the tools that ran did not run again.
    assert lab.asked == [0, 0, 3, 4]
    assert lab.starts == lab.ends == {"a": 1, "b": 1, "c": 1, "d": 1}


async def test_no_approved_call_begins_on_a_worker_that_came_back_without_the_tool_of_another(
    lab: Lab,
) -> None:
    worker = await lab.serve(agent="asking")
    task = await lab.create("book:a,charge:b,look:c")
    assert (await lab.runner.run_step(task)).status == "waiting"
    approvals = await asked(lab.runner, task, 3)
    await lab.kill(worker)
    for approval in approvals:  # recorded by the server: no worker is up
        await lab.runner.approve(approval, "ann")
    poorer = await lab.serve(agent="asking-without-charge")
    await lab.until_status(task, "needs_attention")
    with pytest.raises(StepFailedError, match="Tool charge not found"):
        await lab.runner.run_step(task)
    assert lab.starts == {}
    await lab.kill(poorer)
    await lab.serve(agent="asking")
    assert (await lab.runner.run_task(task)).output == "final book(a) charge(b) look(c)"
    assert lab.starts == lab.ends == {"a": 1, "b": 1, "c": 1}
    assert lab.asked == [0, 3]


@pytest.mark.parametrize("point", ["schedule:find_tools", "begin:find_tools", "end:find_tools"])
async def test_approved_calls_begin_once_when_a_worker_is_lost_while_it_looks_for_their_tools(
    lab: Lab, point: str
) -> None:
    worker = await lab.serve(agent="asking", die=((point, 1),))
    task = await lab.create("book:a,charge:b")
    await lab.runner.run_step(task)
    first, second = await asked(lab.runner, task, 2)
    approving = asyncio.create_task(lab.runner.approve(first, "ann"))
    await lab.until_dead(worker)
    await lab.serve(agent="asking")
    await approving
    await lab.runner.approve(second, "ann")
    assert (await lab.runner.run_task(task)).output == "final book(a) charge(b)"
    assert lab.starts == lab.ends == {"a": 1, "b": 1}
