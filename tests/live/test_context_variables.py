"""Context variables in tools: each run sees those of its own caller."""

from __future__ import annotations

import asyncio
import contextvars
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


async def run_as(name: str, runner: AgentRunner, agent: Any) -> str:
    tenant.set(name)
    return str((await Runner.run(agent, "whose?", runner=runner)).final_output)


async def test_each_run_and_what_it_calls_see_the_variables_of_its_own_caller_or_creator(
    model: FakeOpenAI,
) -> None:
    ask = agent_with(whose, name="inner").as_tool(tool_name="ask", tool_description="Ask.")
    agent = agent_with(whose, whose_in_a_thread, ask)
    tenant.set("the engine's starter")
    async with AgentRunner.local(agent, data_dir=None) as runner:
        for name in ("a", "b", "c"):
            for called in ("whose", "whose_in_a_thread"):
                model.call(called)
                model.reply("done")
                await asyncio.create_task(run_as(name, runner, agent))
                assert list(model.requests[-1].results.values()) == [name]
        model.call("ask", {"input": "whose?"})
        model.call("whose")
        model.reply("inner is done")
        model.reply("done")
        tenant.set("creator")
        task = await runner.create_task("whose?")
        tenant.set("another")
        await runner.run_task(task)
        assert list(model.requests[-2].results.values()) == ["creator"]


async def test_a_worker_that_did_not_start_the_run_shows_its_tools_no_variables(
    rig: Rig, model: FakeOpenAI
) -> None:
    await rig.serve(agent_with(whose), own_loop=True)
    model.call("whose")
    model.reply("done")
    tenant.set("caller")
    await rig.runner().chat("whose?")
    assert list(model.requests[-1].results.values()) == ["none"]
