"""What a run gives back, and what it leaves with an error."""

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import MaxTurnsExceeded, tool
from holdfast.agents.tools.context import ToolContext
from holdfast.client.runner.runner import ItemHelpers
from tests.support.runs import Runs, look


def types(data: Any) -> list[str]:
    return [item.type for item in data.new_items]


async def test_a_result_has_its_items_responses_and_agent(run: Runs) -> None:
    run.model.call("look", {"where": "there"})
    run.model.reply("done")
    result = await run("q", look)
    assert types(result) == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    call, output, message = result.new_items
    assert (call.raw_item.name, call.raw_item.call_id) == ("look", output.call_id)
    assert output.output == "seen there"
    assert ItemHelpers.text_message_outputs(result.new_items) == "done"
    assert ItemHelpers.extract_last_text(message.raw_item) == "done"
    assert result.last_agent is run.agent
    assert {item.agent.name for item in result.new_items} == {"agent"}
    assert [len(each.output) for each in result.raw_responses] == [1, 1]
    assert result.last_response_id == result.raw_responses[-1].response_id is not None
    spent = [each.usage.total_tokens for each in result.raw_responses]
    assert (result.usage.requests, result.usage.total_tokens) == (2, sum(spent))
    assert [each.total_tokens for each in result.usage.request_usage_entries] == spent
    assert result.interruptions == []


@dataclass
class Counted:
    """A context."""

    n: int = 0


@tool(effect="read")
def count(ctx: ToolContext[Any]) -> str:
    """Count."""
    ctx.context.n += 1
    return str(ctx.context.n)


async def test_an_error_has_what_the_run_had_made_and_the_context_too(run: Runs) -> None:
    run.model.call("count")
    context = Counted()
    with pytest.raises(MaxTurnsExceeded) as caught:
        await run("q", count, context=context, max_turns=1)
    data = caught.value.run_data
    assert types(data) == ["tool_call_item", "tool_call_output_item"]
    assert (data.input, data.last_agent.name, len(data.raw_responses)) == ("q", "agent", 1)
    assert data.context_wrapper.context is context
    assert context.n == 1
