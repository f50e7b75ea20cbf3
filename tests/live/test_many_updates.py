"""Very many requests to one task: the server takes only so many in one run of a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Task, TaskStep, TaskStepOutput, tool
from holdfast.activities import long_calls
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.engine.dev_server import command
from holdfast.engine.dev_server.ephemeral import ephemeral_server
from holdfast.values.messages import ToolCall
from holdfast.workers import StepContext
from holdfast.workflows.requests import updates
from tests.support.rig import (
    Engine,
    MakeAgent,
    MakeRunner,
    Rig,
    histories,
    make_engine,
    until,
    until_status,
)
from tests.support.workers import Counting, Doing

LIMIT = 10


@pytest.fixture
async def strict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncGenerator[Engine]:
    """Run a server that takes few updates in one run of a workflow."""
    limits = {**command.DYNAMIC_CONFIG, "history.maxTotalUpdates": str(LIMIT)}
    monkeypatch.setattr(command, "DYNAMIC_CONFIG", limits)
    async with await ephemeral_server() as running:
        yield await make_engine(running.info, tmp_path)


@pytest.fixture
async def few(strict: Engine) -> AsyncGenerator[Rig]:
    """Serve tasks on that server."""
    rig = Rig(strict)
    yield rig
    await rig.stop()
    await rig.assert_replays()


async def runs(runner: AgentRunner, task: Task) -> int:
    return len(await histories(runner.client, task.task_id))


async def test_a_task_takes_more_requests_than_one_run_of_a_workflow_while_a_tool_runs(
    few: Rig, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = list[str](), asyncio.Event()

    @tool(effect="irreversible")
    async def dig() -> str:
        """Dig."""
        begun.append("dig")
        await let_go.wait()
        return "found"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        output: Any = ctx.n
        if step.input == "dig":
            [result] = await ctx.call_tools([ToolCall(id="c", name="dig", arguments="{}")])
            output = result.content
        return TaskStepOutput(output=output, task_step=step, next_steps=(step.get_next_step(),))

    monkeypatch.setattr(long_calls, "LONG_SECONDS", 0.0)
    await few.serve(make_agent(dig, worker=Doing(body)))
    runner = few.runner()
    task = await runner.create_task("q")
    ids = [f"r{k}" for k in range(LIMIT + 5)]
    async with asyncio.timeout(60):
        outputs = [(await runner.run_step(task, request_id=id)).output for id in ids]
        assert outputs == list(range(1, LIMIT + 6))
        assert await runs(runner, task) > 1
        digging = asyncio.create_task(runner.run_step(task, input="dig"))

        async def digs() -> bool:
            return bool(begun)

        await until(digs)
        before = await runs(runner, task)
        again = [(await runner.run_step(task, request_id=id)).output for id in ids]
        assert again == list(range(1, LIMIT + 6))
        assert await runs(runner, task) > before
        let_go.set()
        assert (await digging).output == "found"
    assert begun == ["dig"]


async def test_requests_beyond_what_a_run_takes_are_answered_by_the_next(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "MOST_UPDATES", 5)
    runner = await make_runner(worker=Counting(100), roll_events=60)
    task = await runner.create_task("q")
    async with asyncio.timeout(100):
        outputs = [(await runner.run_step(task)).output["count"] for _ in range(5)]
        sixth = asyncio.create_task(runner.run_step(task))
        handle = runner.client.get_workflow_handle(task.task_id)
        for _ in range(60):
            await handle.signal("drop_step", {"step": "none"})
        outputs.append((await sixth).output["count"])
    assert outputs == list(range(1, 7))
    assert await runs(runner, task) > 1
    await runner.abandon(task, by="ann", reason="enough")
    await until_status(runner, task, "abandoned")
