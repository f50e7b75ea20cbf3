"""Results that are read later: after the agent has changed, or the engine is gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Runner, ToolCall
from holdfast.agents.items.run_items import member_of
from holdfast.testing import FakeOpenAI, ScriptedModel
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import Runs, look

KINDS = ["tool_call_item", "tool_call_output_item", "message_output_item"]


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


def is_unread(data: Any) -> bool:
    return {"new_items", "raw_responses"}.isdisjoint(data.__dict__)


def types(data: Any) -> list[str]:
    return [item.type for item in data.new_items]


def change(agent: Agent | None) -> None:
    """Make another one of an agent that has run."""
    assert agent is not None
    agent.name = "another"
    agent.tools.clear()


async def test_items_are_read_after_the_engine_is_closed_and_its_data_are_gone(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([ToolCall(id="", name="look", arguments="{}"), "done"])
    agent = Agent("local", model=model, tools=[look])
    data = tmp_path / "data"
    async with AgentRunner.local(agent, data_dir=data) as runner:
        result = await Runner.run(agent, "q", runner=runner)
    shutil.rmtree(data)
    assert (is_unread(result), result.final_output) == (True, "done")
    assert types(result) == KINDS
    assert len(result.raw_responses) == len(model.requests) == 2
    assert [item.get("type", "input") for item in result.to_input_list()] == [
        "input",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_a_result_is_that_of_the_agent_as_it_was(run: Runs, model: FakeOpenAI) -> None:
    model.call("look", {"where": "there"})
    model.reply("done")
    result = await run("q", look)
    change(run.agent)
    assert is_unread(result)
    assert types(result) == KINDS
    assert {member_of(item) for item in result.new_items} == {result.last_member} == {"agent"}
    assert {item.agent is run.agent is result.last_agent for item in result.new_items} == {True}
    called, output, _ = result.new_items
    assert called.description == "Look somewhere."
    assert called.tool_origin == output.tool_origin is not None
    spent = [each.usage.total_tokens for each in result.raw_responses]
    assert [each.total_tokens for each in result.usage.request_usage_entries] == spent
    assert sum(spent) == result.usage.total_tokens > 0
