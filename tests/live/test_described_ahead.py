"""A process that serves an agent finds out, before it starts a task, what `describe` would."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, tool
from holdfast.agents_sdk import Tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.rig import activities_of, histories
from tests.support.tool_servers import Place
from tests.support.workers import Forking

LOOKS = ToolCall(id="", name="look", arguments="{}")
ASKS = ToolCall(id="", name="ask", arguments='{"input": "x"}')


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def looks_once(request: ModelRequest) -> ToolCall | str:
    return "done" if any(each.role == "tool" for each in request.messages) else LOOKS


def agent(name: str, script: Any = ("done",), *tools: Tool, **more: Any) -> Agent:
    return Agent(name=name, model=ScriptedModel(script), tools=list(tools), **more)


@pytest.fixture(scope="module")
async def runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[AgentRunner]:
    ask = agent("inner").as_tool(tool_name="ask", tool_description="Ask.")
    patient = FunctionCallingAgentWorker(max_repeats=None)
    agents = (
        agent("plain", looks_once, look),
        agent("nesting", [ASKS, "done"], ask),
        agent("forking", worker=Forking({}, last="start")),
        agent("served", mcp_servers=[Place(tmp_path_factory.mktemp("place")).stdio()]),
        agent("long", [*[LOOKS] * 20, "done"], look, worker=patient),
    )
    async with AgentRunner.local(*agents, data_dir=None, roll_events=30) as made:
        yield made


async def ran(runner: AgentRunner, name: str, task_id: str = "", **options: Any) -> list[str]:
    """Run a task of an agent; return the types of its activities."""
    task = await runner.create_task("q", agent=name, task_id=task_id or name, **options)
    assert (await runner.run_task(task)).output in ("done", "start")
    assert await runner.verify(task) == []
    return await activities_of(runner.client, task.task_id)


async def test_a_task_begins_with_its_first_step_and_so_do_its_forks_and_children(
    runner: AgentRunner,
) -> None:
    assert await ran(runner, "plain") == ["step", "step"]
    fork = await runner.fork("plain", at="s1", input="go on")
    await runner.run_task(fork)
    assert "describe" not in await activities_of(runner.client, fork.task_id)
    assert (await runner.get_task(fork)).agent == "plain"
    assert await ran(runner, "nesting") == ["step", "nest", "tool", "step"]
    assert await activities_of(runner.client, "nesting~0.1.0.0") == ["step"]


async def test_what_only_an_activity_can_find_out_is_left_to_it(runner: AgentRunner) -> None:
    assert (await ran(runner, "forking"))[0] == "describe"
    assert (await ran(runner, "served"))[0] == "describe"
    assert (await ran(runner, "plain", "of a session", session="s"))[0] == "describe"


async def test_a_task_that_continues_as_new_does_not_carry_it_twice(runner: AgentRunner) -> None:
    assert "describe" not in await ran(runner, "long")
    first, *others = await histories(runner.client, "long")
    assert others
    for history in (first, *others):
        [given] = history.events[0].workflow_execution_started_event_attributes.input.payloads
        assert given.data.count(b'"snapshot"') == 1
