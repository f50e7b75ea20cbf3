"""A process that serves an agent finds out, before it starts a task, what `describe` would."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Tool, tool
from holdfast.activities.data.registry import Registry
from holdfast.errors import ConnectError
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.rig import activities_of, histories
from tests.support.tool_servers import Place
from tests.support.workers import Forking

LOOKS = ToolCall(id="", name="look", arguments="{}")
SINGLE = FunctionCallingAgentWorker(steps_per_activity=1)
ASKS = ToolCall(id="", name="ask", arguments='{"input": "x"}')


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def agent(name: str, *script: ToolCall | str, tools: tuple[Tool, ...] = (), **more: Any) -> Agent:
    return Agent(name=name, model=ScriptedModel(script or ("done",)), tools=list(tools), **more)


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncGenerator[AgentRunner]:
    ask = agent("inner").as_tool(tool_name="ask", tool_description="Ask.")
    agents = (
        agent("plain", LOOKS, "done", "done", tools=(look,), worker=SINGLE),
        agent("nesting", ASKS, "done", tools=(ask,)),
        agent("forking", worker=Forking({}, last="start")),
        agent("served", mcp_servers=[Place(tmp_path).stdio()]),
        agent("long", *[LOOKS] * 20, "done", tools=(look,)),
    )
    async with AgentRunner.local(*agents, data_dir=None, roll_events=30) as made:
        yield made


async def ran(runner: AgentRunner, name: str, **options: Any) -> list[str]:
    """Run a task of an agent, whose id is the agent's name; return the types of its activities."""
    task = await runner.create_task("q", agent=name, task_id=name, **options)
    assert (await runner.run_task(task)).output in ("done", "start")
    assert await runner.verify(task) == []
    return await activities_of(runner.client, name)


async def test_a_task_begins_with_its_first_step(runner: AgentRunner) -> None:
    assert await ran(runner, "plain") == ["step", "step"]


async def test_so_does_a_child_task(runner: AgentRunner) -> None:
    assert await ran(runner, "nesting") == ["step", "nest", "tool", "step"]
    assert await activities_of(runner.client, "nesting~0.1.0.0") == ["step"]


async def test_so_does_a_fork(runner: AgentRunner) -> None:
    await ran(runner, "plain")
    fork = await runner.fork("plain", at="s1", input="go on")
    await runner.run_task(fork)
    assert "describe" not in await activities_of(runner.client, fork.task_id)
    assert (await runner.get_task(fork)).agent == "plain"


@pytest.mark.parametrize(
    ("name", "options"), [("forking", {}), ("served", {}), ("plain", {"session": "s"})]
)
async def test_what_only_an_activity_can_find_out_is_left_to_it(
    runner: AgentRunner, name: str, options: dict[str, str]
) -> None:
    assert (await ran(runner, name, **options))[0] == "describe"


async def test_a_task_that_continues_as_new_does_not_carry_it_twice(runner: AgentRunner) -> None:
    assert "describe" not in await ran(runner, "long")
    first, *others = await histories(runner.client, "long")
    assert others
    for history in (first, *others):
        [given] = history.events[0].workflow_execution_started_event_attributes.input.payloads
        assert given.data.count(b'"snapshot"') == 1


async def test_when_it_fails_ahead_the_activity_tries_it(
    runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, failed = Registry.publish, list[str]()

    async def fail_once(registry: Registry, name: str) -> AgentSnapshot:
        if not failed:
            failed.append(name)
            msg = "The archive is away."
            raise ConnectError(msg)
        return await publish(registry, name)

    monkeypatch.setattr(Registry, "publish", fail_once)
    assert await ran(runner, "plain") == ["describe", "step", "step"]
    assert failed == ["plain"]
