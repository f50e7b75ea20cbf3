"""Calls whose id an earlier turn of the run has used, where the model gives each call its own."""

import json
from typing import Any

import pytest

from holdfast import RunHooks, Runner, RunState, Usage, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.agents_sdk import (
    HostedMCPTool,
    MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest,
    Model,
    ModelResponse,
)
from holdfast.errors import UnfitAnswerError
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import ToolCall
from tests.support.runs import Runs

ID = "call_7"
SEAT = {"seat": "1A"}


class Booking:
    """A tool that books, and what it has booked."""

    def __init__(self, **options: Any) -> None:
        self.booked: list[str] = []

        @tool(effect="irreversible", **options)
        def book(seat: str) -> str:
            """Book a seat."""
            self.booked.append(seat)
            return f"booked {seat}"

        self.tool: Tool = book


@tool(effect="read")
def look(seat: str) -> str:
    """Look at a seat."""
    return f"{seat} is free"


def called(name: str, arguments: Any, id: str) -> dict[str, Any]:
    """Make the item of a call."""
    made = {"name": name, "arguments": json.dumps(arguments), "call_id": id}
    return {"type": "function_call", "id": f"fc_{name}", "status": "completed", **made}


def answer(*output: dict[str, Any]) -> dict[str, Any]:
    """Make the body of an answer."""
    head = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5-mini"}
    return {**head, "output": list(output)}


@pytest.fixture
def booking() -> Booking:
    return Booking()


def sent(model: FakeOpenAI) -> list[str]:
    """List the kinds of items that the newest call was made with."""
    return [item.get("type") or item["role"] for item in model.requests[-1].body["input"]]


async def test_a_call_that_is_made_once_more_has_its_result_already(
    run: Runs, booking: Booking
) -> None:
    run.model.call("book", SEAT, id=ID)
    run.model.call("book", '{ "seat" : "1A" }', id=ID, reasoning="Did I book?")
    run.model.reply("done")
    result = await run("q", booking.tool)
    assert result.final_output == "done"
    assert booking.booked == ["1A"]
    assert sent(run.model) == ["user", "function_call", "function_call_output"]
    kinds = [item.type for item in result.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert len(result.raw_responses) == 3
    assert await run.runner.verify(result.task_id) == []


async def test_a_run_waits_after_another_call_of_the_id(run: Runs, booking: Booking) -> None:
    ended: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            ended.append("answered")

    run.model.call("book", SEAT, id=ID)
    run.model.raw(answer(called("look", SEAT, ID)))
    with pytest.raises(UnfitAnswerError, match="unique call ID"):
        await run("q", booking.tool, look, hooks=Hooks())
    assert booking.booked == ["1A"]
    assert ended == ["answered"]


async def test_an_approval_holds_for_the_call_that_it_was_given_for(run: Runs) -> None:
    booking = Booking(needs_approval=True)
    run.model.call("book", SEAT, id=ID)
    run.model.call("book", SEAT, id=ID)
    run.model.call("book", {"seat": "2B"}, id=ID)
    first = await run("q", booking.tool)
    state = await RunState.from_json(first.last_agent, first.to_state().to_json())
    state.approve(state.get_interruptions()[0], always_approve=True)
    with pytest.raises(UnfitAnswerError, match="unique call ID"):
        await Runner.run(first.last_agent, state, runner=run.runner)
    assert booking.booked == ["1A"]


class Scripted(Model):
    """A model with the methods of the Agents SDK, which answers with what it was given."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        return ModelResponse(output=[self.answers.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


DONE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}


async def test_a_provider_that_counts_the_calls_of_each_answer_makes_new_ones(
    run: Runs, booking: Booking
) -> None:
    seats = ("1A", "1A", "2B")
    calls = [ToolCall(id=ID, name="book", arguments=json.dumps({"seat": s})) for s in seats]
    await run("q", booking.tool, of={"model": ScriptedModel([*calls, "done"])})
    assert booking.booked == ["1A", "1A", "2B"]


async def test_a_request_of_a_server_that_was_answered_is_answered_once(
    run: Runs, booking: Booking
) -> None:
    asked: list[str] = []

    def answer_it(request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
        asked.append(request.data.id)
        return {"approve": True}

    config: Any = {"type": "mcp", "server_label": "docs", "server_url": "https://docs.example"}
    hosted = HostedMCPTool(tool_config=config, on_approval_request=answer_it)
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "find"}
    request |= {"server_label": "docs", "arguments": '{"what": "x"}'}
    again = {**request, "arguments": '{ "what":"x" }'}
    result = await run("q", hosted, of={"model": Scripted(request, again, DONE)})
    assert result.final_output == "ok"
    assert asked == ["mcpr_1"]
    kinds = [item.type for item in result.new_items]
    assert kinds == [
        "mcp_approval_request_item",
        "mcp_approval_response_item",
        "message_output_item",
    ]
