"""Steps of an activity that the task was told of before the activity's end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentRunner, Task, ToolContext, tool
from holdfast.activities.steps import further
from holdfast.cli.following.history import TaskHistory
from holdfast.errors import HoldfastError
from holdfast.testing import FakeOpenAI, call, hang, reply
from holdfast.workers import FunctionCallingAgentWorker, driver
from holdfast.workflows import agent_task
from tests.support.fast_steps import count_as_fast, look, looks
from tests.support.rig import (
    MakeAgent,
    MakeRunner,
    Rig,
    activities_of,
    assert_replays,
    until,
)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every step as fast, on a machine of any speed, and report soon."""
    count_as_fast(monkeypatch, report_seconds=0.5)


async def until_reported(runner: AgentRunner, task: Task) -> None:
    """Wait until the task knows the two steps before the one that is held."""

    async def condition() -> bool:
        return len(await runner.get_completed_steps(task)) == 2

    await until(condition)


async def test_a_cost_that_was_reported_is_counted_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    seen: list[int] = []

    @tool(effect="read")
    def count(ctx: ToolContext) -> str:
        """Count."""
        seen.append(ctx.usage.requests)
        return "counted"

    runner = await make_runner(count)
    model.call("count")
    model.call("count")
    model.add(hang(call("count")))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()

    await until_reported(runner, task)
    model.release()
    await running
    assert seen == [0, 1, 2]


async def test_an_activity_that_outlives_its_undo_does_not_hold_up_what_follows(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "STOP_SECONDS", 60)  # as if its worker had been lost
    monkeypatch.setattr(agent_task, "CANCEL_GRACE_SECONDS", 0.1)
    starts, is_free = 0, asyncio.Event()

    async def delay_cancellation(ctx: Any, agent: Any) -> str:
        nonlocal starts
        starts += 1
        if starts == 3:
            try:
                await asyncio.Event().wait()
            finally:
                await is_free.wait()
        return "Help."

    await rig.serve(make_agent(look, instructions=delay_cancellation))
    runner = rig.runner()
    model.add(looks("a"), looks("b"))
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))

    await until_reported(runner, task)
    try:
        await runner.undo_step(task, by="ann")
        with pytest.raises(HoldfastError, match="was undone"):
            await running
        model.add(looks("c"), hang(looks("d")))
        model.reply("done")
        running = asyncio.create_task(runner.run_task(task))
        await asyncio.wait_for(model.until_held(), 30)
    finally:
        is_free.set()
    model.release()
    assert str(await running) == "done"
    assert len(await runner.get_completed_steps(task)) == 5
    await runner.finalize_response(task)
    assert await runner.verify(task) == []
    await assert_replays(runner, task)


async def lines(runner: AgentRunner, task: Task) -> list[tuple[str, int, str, str]]:
    """Return what the command line shows of a task up to now."""
    history = TaskHistory(runner.client, task.task_id)
    return [(e.kind, e.step, e.name, e.text) async for e in history.read(wait=False)]


async def test_the_command_line_shows_further_steps_as_any_others(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(further, "REPORT_SECONDS", 60.0)
    shown: list[list[tuple[str, int, str, str]]] = []
    for most in (1, 8):
        runner = await make_runner(look, worker=FunctionCallingAgentWorker(steps_per_activity=most))
        for what in "ab":
            model.call("look", {"what": what})
        model.reply("done")
        task = await runner.create_task("q")
        await runner.run_task(task)
        shown.append(await lines(runner, task))
    assert shown[0] == shown[1]
    assert [each[:3] for each in shown[0]] == [
        each
        for n in (1, 2)
        for each in (
            ("asking", n, "model"),
            ("answered", n, "model"),
            ("calling", n, "look"),
            ("returned", n, "look"),
        )
    ] + [("asking", 3, "model"), ("answered", 3, "model")]


async def test_the_command_line_shows_reported_steps_once(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(further, "REPORT_SECONDS", 1.0)
    runner = await make_runner(look)
    model.call("look", {"what": "a"})
    model.add(hang(reply("done")))
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()

    async def is_shown() -> bool:
        return ("asking", 2, "model", "") in await lines(runner, task)

    await until(is_shown)
    model.release()
    await running
    found = [each[:2] for each in await lines(runner, task)]
    assert found == [
        *[(kind, 1) for kind in ("asking", "answered", "calling", "returned")],
        ("asking", 2),
        ("answered", 2),
    ]


async def test_the_command_line_names_the_step_whose_model_call_is_made_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(looks("a"), looks("b"))
    model.fail(500, retry_after=0.01)
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert await activities_of(runner.client, task.task_id) == ["describe", "step"]
    found = [each[:3] for each in await lines(runner, task) if each[0] == "retried"]
    assert found == [("retried", 3, "model")]
