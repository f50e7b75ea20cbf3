"""Context variables in tools: each run sees those of its own caller."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Runner, tool
from holdfast.testing import FakeOpenAI
from tests.support.rig import Rig

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


@tool(effect="read")
async def whose() -> str:
    """Say whose run this is."""
    return tenant.get()


@tool(effect="read")
def whose_in_a_thread() -> str:
    """Say whose run this is."""
    return tenant.get()


@pytest.fixture(autouse=True)
def _own_api(model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests-1")


def agent_with(*tools: Any, name: str = "agent") -> Agent:
    return Agent(name=name, model="gpt-5-mini", tools=tools)


@pytest.fixture
async def embedded() -> AsyncGenerator[AgentRunner]:
    tenant.set("the engine's starter")
    async with AgentRunner.local(agent_with(whose, whose_in_a_thread), data_dir=None) as runner:
        yield runner


async def run_as(name: str, runner: AgentRunner, agent: Any) -> str:
    tenant.set(name)
    return str((await Runner.run(agent, "whose?", runner=runner)).final_output)


@pytest.mark.parametrize("called", ["whose", "whose_in_a_thread"])
async def test_each_run_sees_the_variables_of_its_own_caller(
    embedded: AgentRunner, model: FakeOpenAI, called: str
) -> None:
    agent = agent_with(whose, whose_in_a_thread)
    for name in ("a", "b", "c"):
        model.call(called)
        model.reply("done")
        await asyncio.create_task(run_as(name, embedded, agent))
        assert list(model.requests[-1].results.values()) == [name]


async def test_a_task_sees_the_variables_of_the_one_who_created_it(
    embedded: AgentRunner, model: FakeOpenAI
) -> None:
    model.call("whose")
    model.reply("done")
    tenant.set("creator")
    task = await embedded.create_task("whose?")
    tenant.set("another")
    await embedded.run_task(task)
    assert list(model.requests[-1].results.values()) == ["creator"]


async def test_an_agent_as_a_tool_sees_the_variables_of_the_run_that_called_it(
    model: FakeOpenAI,
) -> None:
    inner = agent_with(whose, name="inner")
    ask = inner.as_tool(tool_name="ask", tool_description="Ask.")
    async with AgentRunner.local(agent_with(ask), data_dir=None) as runner:
        model.call("ask", {"input": "whose?"})
        model.call("whose")
        model.reply("inner is done")
        model.reply("done")
        tenant.set("caller")
        task = await runner.create_task("whose?")
        tenant.set("another")
        await runner.run_task(task)
        assert list(model.requests[2].results.values()) == ["caller"]


async def test_a_worker_that_did_not_start_the_run_shows_its_tools_no_variables(
    rig: Rig, model: FakeOpenAI
) -> None:
    await rig.serve(agent_with(whose), own_loop=True)
    model.call("whose")
    model.reply("done")
    tenant.set("caller")
    await rig.runner().chat("whose?")
    assert list(model.requests[-1].results.values()) == ["none"]
