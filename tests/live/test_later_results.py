"""Results that are read later: after the agent has changed, or the engine is gone."""

import shutil
from pathlib import Path
from typing import Any

from holdfast import Agent, AgentRunner, Runner, ToolCall
from holdfast.testing import ScriptedModel
from tests.support.runs import look

KINDS = ["tool_call_item", "tool_call_output_item", "message_output_item"]


def is_unread(data: Any) -> bool:
    return {"new_items", "raw_responses"}.isdisjoint(data.__dict__)


def types(data: Any) -> list[str]:
    return [item.type for item in data.new_items]


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
