"""What a run leaves with an error."""

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import MaxTurnsExceeded, tool
from holdfast.agents.tools.context import ToolContext
from tests.support.runs import Runs


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
    assert [each.type for each in data.new_items] == ["tool_call_item", "tool_call_output_item"]
    assert (data.input, data.last_agent.name, len(data.raw_responses)) == ("q", "agent", 1)
    assert data.context_wrapper.context is context
    assert context.n == 1
