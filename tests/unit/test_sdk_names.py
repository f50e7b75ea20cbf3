"""What users of the Agents SDK find under its names."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Agent, ItemHelpers, RunState, Usage, function_tool
from holdfast.agents.items.raw_items import RawItem


def test_a_message_whose_content_is_plain_text_has_that_text() -> None:
    plain = RawItem({"role": "assistant", "content": "yes"})
    assert ItemHelpers.extract_text(plain) == "yes"
    assert ItemHelpers.extract_last_content(plain) == "yes"


def test_the_item_that_answers_a_call_names_it() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "x", "arguments": "{}"}
    assert ItemHelpers.tool_call_output_item(call, "found") == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "found",
    }


def test_usage_shows_its_details_where_the_responses_api_has_them() -> None:
    usage = Usage(input_tokens=9, output_tokens=7, cached_tokens=5, reasoning_tokens=3)
    assert usage.input_tokens_details.cached_tokens == 5
    assert usage.output_tokens_details.reasoning_tokens == 3
    assert "details" not in usage.model_dump_json()


async def test_input_that_was_added_to_a_state_can_be_read_and_taken_back() -> None:
    state = RunState.of("task")
    state.add_input("one")
    state.add_input([{"role": "user", "content": "two"}])
    first = state.added_input
    assert [item["content"] for item in state.pending_input] == ["one", "two"]
    state.clear_pending_input()
    assert (state.pending_input, state.added_input) == ([], [])
    state.add_input("three")
    again = await RunState.from_string(Agent(name="a"), state.to_string())
    assert again.pending_input == [{"role": "user", "content": "three"}]
    assert again.added_input[0][0] not in dict(first)  # what was sent is not taken for this


def test_a_function_tool_takes_strict_mode_and_timeout() -> None:
    @function_tool(strict_mode=True, timeout=2.5)
    def look(where: str) -> str:
        """Look somewhere."""
        return where

    assert (look.strict_json_schema, look.timeout_seconds) == (True, 2.5)
    assert look.params_json_schema["additionalProperties"] is False


def test_a_name_that_nothing_here_raises_is_refused_with_what_happens_instead() -> None:
    said = r"no MCPToolCancellationError: .*docs/mcp.md"
    with pytest.raises(ImportError, match=said):
        exec("from holdfast import MCPToolCancellationError")
    with pytest.raises(AttributeError, match=said):
        _ = getattr(holdfast, "MCPToolCancellationError")  # noqa: B009  no type checker knows it
