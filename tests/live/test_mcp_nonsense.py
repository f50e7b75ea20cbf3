"""MCP servers that answer with what is not MCP: task, model and audit say what it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentRunner
from holdfast.errors import StepFailedError, UserError
from holdfast.mcp import MCPServerStdio
from holdfast.testing import FakeOpenAI
from tests.support import mcp_raw_server
from tests.support.mcp_raw_server import TOOL
from tests.support.rig import MakeAgent, Rig

ENDLESS = {"result": {"tools": [TOOL], "nextCursor": "next"}}
FITS = {
    "outputSchema": {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    }
}
"""The form of a tool's structured content."""

Serve = Callable[..., Awaitable[AgentRunner]]


def answering(answers: dict[str, Any], **options: Any) -> MCPServerStdio:
    """Describe a server that answers so."""
    args = [str(Path(mcp_raw_server.__file__)), json.dumps(answers)]
    return MCPServerStdio(
        {"command": sys.executable, "args": args},
        name="raw",
        client_session_timeout_seconds=60,
        **options,
    )


@pytest.fixture
async def serve(rig: Rig, make_agent: MakeAgent) -> Any:
    """Serve an agent with such a server, and end it after the test."""
    used: list[MCPServerStdio] = []

    async def made(answers: dict[str, Any], **options: Any) -> AgentRunner:
        used.append(answering(answers, **options))
        await rig.serve(make_agent(mcp_servers=used))
        return rig.runner()

    yield made
    await rig.stop()
    for server in used:
        await server.cleanup()


@pytest.mark.parametrize(
    ("tool", "result", "said"),
    [
        (TOOL, {}, "no result of a call: content: Field required"),
        (TOOL, {"content": [{"type": "video", "data": "x"}]}, "no result of a call: content.0"),
        (TOOL | FITS, {"content": [], "structuredContent": {"n": "one"}}, "'one' is not of type"),
        (TOOL | FITS, {"content": []}, "did not return structured content"),
    ],
)
async def test_a_call_whose_result_cannot_be_used_has_been_made(
    serve: Serve, model: FakeOpenAI, tool: dict[str, Any], result: dict[str, Any], said: str
) -> None:
    undone: list[str] = []

    def take_back(effect: Any) -> None:
        """Take it back."""
        undone.append(effect.tool)

    runner = await serve(
        {"tools/list": {"result": {"tools": [tool]}}, "tools/call": {"result": result}},
        tool_options={"go": {"effect": "reversible", "undo": take_back}},
    )
    model.call("go", {"thing": "x"})
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert model.requests[1].holds("Tool 'go' ran, but its result cannot be used")
    assert model.requests[1].holds(said)
    [call] = [entry for entry in await runner.audit(task) if entry.tool == "go"]
    assert call.status == "done"
    assert await runner.verify(task) == []
    await runner.undo_step(task)
    await runner.undo_step(task)
    assert undone == ["go"]


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"error": {"code": -32601, "message": "Method not found"}}, "Method not found"),
        ({"result": {"tools": "none"}}, "Input should be a valid list"),
        ({"result": {"tools": [{"name": "go"}]}}, "inputSchema"),
        (ENDLESS, "lists its tools without end"),
    ],
)
async def test_a_server_without_a_list_that_can_be_read_is_named(
    serve: Serve, listed: dict[str, Any], said: str
) -> None:
    runner = await serve({"tools/list": listed, "tools/list next": listed})
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="MCP server 'raw'") as caught:
        await runner.run_task(task)
    assert said in str(caught.value)


async def test_an_empty_cursor_ends_a_list() -> None:
    pages: dict[str, Any] = {}
    for kind, one in (("tools", TOOL), ("prompts", {"name": "go"})):
        pages[f"{kind}/list"] = {"result": {kind: [one], "nextCursor": "next"}}
        pages[f"{kind}/list next"] = {"result": {kind: [{**one, "name": "on"}], "nextCursor": ""}}
    async with answering(pages) as server:
        assert [tool.name for tool in await server.list_tools()] == ["go", "on"]
        listed = await server.list_prompts()
        assert [prompt.name for prompt in listed.prompts] == ["go", "on"]
        assert listed.next_cursor is None


async def test_prompts_without_end_are_refused_and_not_cut_off() -> None:
    listed = {"result": {"prompts": [{"name": "go"}], "nextCursor": "next"}}
    async with answering({"prompts/list": listed, "prompts/list next": listed}) as server:
        with pytest.raises(UserError, match="lists its prompts without end"):
            await server.list_prompts()
