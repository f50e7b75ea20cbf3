"""MCP servers that end sessions, or answer with what is not MCP: model and audit say what it is."""

import json
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent
from holdfast.engine.dev_server.process import free_port
from holdfast.errors import StepFailedError, UserError
from holdfast.mcp import (
    MCPServerManager,
    MCPServerSse,
    MCPServerStdio,
    MCPServerStreamableHttp,
    create_static_tool_filter,
)
from holdfast.testing import FakeOpenAI
from tests.live.test_mcp import THING, Serve, place, serve
from tests.support import forked, mcp_raw_server
from tests.support.hostile import Bytes, hostile_server, sent
from tests.support.mcp_raw_server import BEGINNING, TOOL
from tests.support.rig import run_a_task, step_a_task, until
from tests.support.scale import all_of
from tests.support.tool_servers import PROGRAM, Place

__all__ = ["place", "serve"]

ENDLESS = {"result": {"tools": [TOOL], "nextCursor": "next"}}
FITS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
"""The form of a tool's structured content."""
ENDED = {"code": -32603, "message": "Session terminated before the request completed"}
"""The error of a server of the `mcp` package that ends a session, for requests in progress."""
EVENTS = "text/event-stream"


def answering(answers: dict[str, Any], **options: Any) -> MCPServerStdio:
    """Describe a server that answers so."""
    command, *args = forked.command(str(Path(mcp_raw_server.__file__)), json.dumps(answers))
    params: Any = {"command": command, "args": args}
    return MCPServerStdio(params, name="raw", client_session_timeout_seconds=60, **options)


def listing(*tools: dict[str, Any]) -> dict[str, Any]:
    """Let a server list these tools."""
    return {"tools/list": {"result": {"tools": tools}}}


@pytest.mark.parametrize(
    ("tool", "result", "said"),
    [
        (TOOL, {}, "not the result of a call: content: Field required"),
        (TOOL | {"outputSchema": FITS}, {"content": []}, "did not return structured content"),
    ],
)
async def test_a_call_whose_result_cannot_be_used_has_been_made(
    serve: Serve, model: FakeOpenAI, tool: dict[str, Any], result: dict[str, Any], said: str
) -> None:
    undone: list[str] = []

    def take_back(effect: Any) -> None:
        """Take it back."""
        undone.append(effect.tool)

    options: Any = {"go": {"effect": "reversible", "undo": take_back}}
    answers = listing(tool) | {"tools/call": {"result": result}}
    runner = await serve(answering(answers, tool_options=options))
    model.call("go", THING)
    model.reply("done")
    task = await run_a_task(runner)
    assert model.requests[1].holds("Tool 'go' ran, but its result cannot be used")
    assert model.requests[1].holds(said)
    [call] = [entry for entry in await runner.audit(task) if entry.tool == "go"]
    assert call.status == "done"
    await runner.undo_step(task)
    await runner.undo_step(task)
    assert undone == ["go"]


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"error": {"code": -32601, "message": "Method not found"}}, "Method not found"),
        ({"result": {"tools": [{"name": "go"}]}}, "inputSchema"),
        (ENDLESS, "lists its tools without end"),
    ],
)
async def test_a_server_without_a_list_that_can_be_read_is_named(
    serve: Serve, listed: dict[str, Any], said: str
) -> None:
    runner = await serve(answering({"tools/list": listed, "tools/list next": listed}))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="MCP server 'raw'") as caught:
        await runner.run_task(task)
    assert said in str(caught.value)


async def test_a_call_on_a_new_connection_is_not_made_where_its_tool_is_gone(
    serve: Serve, model: FakeOpenAI
) -> None:
    async def replaced(_: Any) -> None:
        """Start the server anew, between the look at its tools and the call."""
        server.params = answering(listing()).params
        await server.cleanup()

    server = answering({}, tool_meta_resolver=replaced)
    runner = await serve(server)
    model.call("go", THING)
    model.reply("done")
    await runner.run_task(await runner.create_task("q"))
    assert model.requests[1].holds("is gone since this task began")


async def test_tools_of_one_name_of_one_server_are_refused_with_what_helps(serve: Serve) -> None:
    listed = listing(TOOL, {**TOOL, "name": "on"}, {**TOOL, "description": "Stop."})
    runner = await serve(answering(listed))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=r"'raw'.* lists 2 tools named 'go'") as caught:
        await runner.run_task(task)
    assert "names of their own at the server" in str(caught.value)
    assert repr(["go"]) in str(caught.value)
    filtered = create_static_tool_filter(blocked_tool_names=["go"])  # as the error says
    async with answering(listed, tool_filter=filtered) as server:
        agent = Agent(name="agent", mcp_servers=[server])
        assert [tool.name for tool in await agent.get_mcp_tools()] == ["on"]


async def test_lists_have_pages_that_end_and_no_more_of_them_than_the_program_allows() -> None:
    answers: dict[str, Any] = {}
    for kind, one in (("tools", TOOL), ("prompts", {"name": "go"})):
        answers[f"{kind}/list"] = {"result": {kind: [one], "nextCursor": "next"}}
        answers[f"{kind}/list next"] = {"result": {kind: [{**one, "name": "on"}], "nextCursor": ""}}
    async with answering(answers, max_list_pages=2) as server:
        assert [tool.name for tool in await server.list_tools()] == ["go", "on"]
        listed = await server.list_prompts()
        assert [prompt.name for prompt in listed.prompts] == ["go", "on"]
        assert listed.next_cursor is None  # it was empty
    async with answering(answers, max_list_pages=1) as server:
        with pytest.raises(UserError, match=r"its tools on more pages: .* max_list_pages=1"):
            await server.list_tools()
        with pytest.raises(UserError, match=r"its prompts on more pages: .* max_list_pages=1"):
            await server.list_prompts()
    first_pause, pages = "retry_backoff_seconds_base", "a positive integer or None; it was"
    odd: tuple[tuple[str, Any, type[Exception], str], ...] = (
        ("max_list_pages", 0, ValueError, pages),
        ("max_list_pages", True, TypeError, pages),
        (first_pause, -1, ValueError, "a number of seconds, at least 0 and finite, or None; it"),
    )
    for name, limit, expected, said in odd:
        with pytest.raises(expected, match=f"{name} must be {said}"):
            answering({}, **{name: limit})
    unlimited: Any = {"connect_timeout_seconds": 0, "cleanup_timeout_seconds": 0}
    async with MCPServerManager([answering(answers)], **unlimited) as manager:
        assert (len(manager.active_servers), manager.errors) == (1, {})


def giving(answer: Bytes, calls: list[str]) -> Callable[[str, dict[str, Any]], Bytes]:
    """Be an MCP server over HTTP that gives this answer for each call."""
    results = {"initialize": BEGINNING, "tools/list": {"tools": [TOOL]}}

    def give(_path: str, request: dict[str, Any]) -> Bytes:
        if request["method"] == "tools/call":
            calls.append(request["params"]["name"])
            return answer
        if request["method"] in results:
            found = {"id": request["id"], "result": results[request["method"]]}
            return sent({"jsonrpc": "2.0", **found})
        return Bytes(b"", status=404 if "id" in request else 202)

    return give


def message(**members: Any) -> bytes:
    """Return a response of the protocol."""
    return json.dumps({"jsonrpc": "2.0", "id": 0, **members}).encode()


LARGE = message(result={"content": [{"type": "text", "text": "x" * (3 << 20)}]})


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        pytest.param(Bytes(b"<h1>Sign in</h1>", "text/html"), ["unknown"], id="page"),
        pytest.param(Bytes(b"event: message\ndata: {no\n\n", EVENTS), ["unknown"], id="no event"),
        pytest.param(Bytes(b"", status=202), ["unknown"], id="nothing"),
        pytest.param(Bytes(message(error=ENDED), status=500), ["unknown"], id="session ended"),
        pytest.param(Bytes(b"data: " + LARGE + b"\n\n", EVENTS), [], id="large result"),
    ],
)
async def test_a_call_whose_answer_is_none_may_have_been_made(
    serve: Serve, model: FakeOpenAI, answer: Bytes, kinds: list[str]
) -> None:
    calls: list[str] = []
    async with hostile_server(giving(answer, calls)) as http:
        options: Any = {"name": "raw", "client_session_timeout_seconds": 60}
        server = MCPServerStreamableHttp({"url": http.base_url}, **options)
        runner = await serve(server)
        model.call("go", THING)
        if not kinds:
            model.reply("done")
        task = await run_a_task(runner)
        asked = await runner.pending_approvals(task)
        await server.cleanup()
    assert ([approval.kind for approval in asked], calls) == (kinds, ["go"])
    if not kinds:
        assert model.requests[1].holds("its result of 3145728 bytes is over the limit")


@asynccontextmanager
async def started(place: Place, kind: str, port: int) -> AsyncGenerator[None]:
    """Start the server of the tests at a port; it is killed at the end."""
    before = len(place.pids)
    command = forked.command(str(PROGRAM), str(place.path), kind, str(port))
    with subprocess.Popen(command) as process:
        try:
            await until(lambda: len(place.pids) > before)
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ["auto", all_of("legacy"), all_of("sse")])
async def test_a_server_over_http_that_was_started_anew_does_not_know_the_session(
    serve: Serve, model: FakeOpenAI, place: Place, mode: Any
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server: Any
    if mode == "sse":
        server = MCPServerSse({"url": f"{url}/sse"}, name="test")
    else:
        server = MCPServerStreamableHttp({"url": f"{url}/mcp"}, name="test", protocol_mode=mode)
    kind = "sse" if mode == "sse" else "streamable-http"
    runner = await serve(server)
    model.call("look", THING)
    model.call("book", THING)
    model.reply("done")
    async with started(place, kind, port):
        task = await step_a_task(runner)
    async with started(place, kind, port):
        assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"look:x": 1, "book:x": 1}
