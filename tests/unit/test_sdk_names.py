"""What users of the Agents SDK find under its names."""

import pytest

import holdfast
from holdfast import Agent, RunState


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


def test_a_name_that_nothing_here_raises_is_refused_with_what_happens_instead() -> None:
    said = r"no MCPToolCancellationError: .*docs/mcp.md"
    with pytest.raises(ImportError, match=said):
        exec("from holdfast import MCPToolCancellationError")
    with pytest.raises(AttributeError, match=said):
        _ = getattr(holdfast, "MCPToolCancellationError")  # noqa: B009  no type checker knows it
