"""What a run gives back, and what it leaves with an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import MaxTurnsExceeded, tool
from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.client.runner.runner import ItemHelpers
from holdfast.testing import FakeOpenAI
from holdfast.workers import ReActAgentWorker
from tests.support.runs import Runs, look


def types(data: Any) -> list[str]:
    return [item.type for item in data.new_items]


async def test_a_result_has_its_items_responses_and_agent(run: Runs, model: FakeOpenAI) -> None:
    model.call("look", {"where": "there"})
    model.reply("done")
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


async def test_inner_words_of_react_are_no_user_items(run: Runs, model: FakeOpenAI) -> None:
    await run.serve(look, worker=ReActAgentWorker())
    model.reply('Thought: I must look.\nAction: look\nAction Input: {"where": "there"}')
    model.reply("Thought: I can answer without using any more tools.\nAnswer: it is there")
    result = await run("q")
    assert types(result) == [
        "message_output_item",
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]
    assert result.final_output == "it is there"
    assert [item.get("role") for item in result.to_input_list()].count("user") == 1


@dataclass
class Counted:
    """A context."""

    n: int = 0


@tool(effect="read")
def count(ctx: ToolContext[Any]) -> str:
    """Count."""
    ctx.context.n += 1
    return str(ctx.context.n)


async def test_the_caller_s_context_is_what_the_run_has_made_of_it(
    run: Runs, model: FakeOpenAI
) -> None:
    model.call("count")
    model.reply("done")
    context = Counted()
    result = await run("q", count, context=context)
    assert context.n == 1
    assert result.context_wrapper.context is context


async def test_an_error_has_what_the_run_had_made_and_the_context_too(
    run: Runs, model: FakeOpenAI
) -> None:
    model.call("count")
    context = Counted()
    with pytest.raises(MaxTurnsExceeded) as caught:
        await run("q", count, context=context, max_turns=1)
    data = caught.value.run_data
    assert types(data) == ["tool_call_item", "tool_call_output_item"]
    assert (data.input, data.last_agent.name, len(data.raw_responses)) == ("q", "agent", 1)
    assert data.context_wrapper.context is context
    assert context.n == 1


async def test_predicate_and_undo_of_a_tool_are_given_the_context_object_and_the_usage(
    run: Runs, model: FakeOpenAI
) -> None:
    seen: list[tuple[str, Any, int]] = []

    def is_asked(ctx: ToolContext[Any], arguments: dict[str, Any]) -> bool:
        seen.append(("asked", ctx.context, ctx.usage.requests))
        return bool(ctx.context.n)

    def take_back(ctx: ToolContext[Any], effect: Effect) -> None:
        seen.append((f"undo {effect.result}", ctx.context, ctx.usage.requests))

    @tool(needs_approval=is_asked, undo=take_back)
    def pay(ctx: ToolContext[Any], euros: int) -> str:
        """Pay."""
        ctx.context.n += euros
        return f"paid {euros}"

    model.call("pay", {"euros": 5})
    model.call("pay", {"euros": 7})
    result = await run("q", pay, context=Counted())
    assert [each.tool_name for each in result.interruptions] == ["pay"]
    await run.runner.undo_step(result.task_id)  # the step that waits
    await run.runner.undo_step(result.task_id)
    assert seen == [
        ("asked", Counted(0), 1),
        ("asked", Counted(5), 2),
        ("undo paid 5", Counted(5), 2),  # the step that waited is undone; its call stays paid
    ]
