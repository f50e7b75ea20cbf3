"""MCP servers that answer with what is not MCP: task, model and audit say what it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner
from holdfast.errors import StepFailedError, UserError
from holdfast.mcp import MCPServerStdio, MCPServerStreamableHttp, create_static_tool_filter
from holdfast.testing import FakeOpenAI
from tests.support import forked, mcp_raw_server
from tests.support.mcp_raw_server import BEGINNING, TOOL
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


def answering(
    answers: dict[str, Any], *, asked: Path | None = None, **options: Any
) -> MCPServerStdio:
    """Describe a server that answers so, and writes into a file what it was asked for."""
    files = [] if asked is None else [str(asked)]
    program = str(Path(mcp_raw_server.__file__))
    command, *args = forked.command(program, json.dumps(answers), *files)
    return MCPServerStdio(
        {"command": command, "args": args},
        name="raw",
        client_session_timeout_seconds=60,
        **options,
    )


@pytest.fixture
async def serve(rig: Rig, make_agent: MakeAgent) -> Any:
    """Serve an agent with such a server, and end it after the test."""
    used: list[MCPServerStdio] = []

    async def made(
        answers: dict[str, Any], servers: list[MCPServerStdio] | None = None, **options: Any
    ) -> AgentRunner:
        used.append(answering(answers, **options))
        if servers is not None:
            servers += used
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


@pytest.mark.parametrize(
    ("listed", "asked", "status", "said"),
    [
        ({"tools": [TOOL]}, ["tools/list", "tools/call"], "done", "gone"),
        ({"tools": "none"}, ["tools/list"], "failed", "gave no list of tools"),
        ({"tools": []}, ["tools/list"], "failed", "is gone since this task began"),
    ],
)
async def test_a_call_on_a_new_connection_is_made_once_the_tools_are_listed_on_it(
    serve: Serve,
    model: FakeOpenAI,
    tmp_path: Path,
    *,
    listed: dict[str, Any],
    asked: list[str],
    status: str,
    said: str,
) -> None:
    file = tmp_path / "asked"
    called = {"result": {"content": [{"type": "text", "text": "gone"}]}}
    answers = {"tools/list": {"result": listed}, "tools/call": called}
    used: list[MCPServerStdio] = []

    async def replaced(_: Any) -> None:
        """Start the server anew, between the look at its tools and the call."""
        used[0].params = answering(answers, asked=file).params
        await used[0].cleanup()

    runner = await serve({}, servers=used, tool_meta_resolver=replaced)
    model.call("go", {"thing": "x"})
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    [call] = [entry for entry in await runner.audit(task) if entry.tool == "go"]
    assert call.status == status
    assert model.requests[1].holds(said)
    requests = [line for line in file.read_text().splitlines() if line.startswith("tools/")]
    assert requests[: len(asked)] == asked
    assert requests.count("tools/call") == asked.count("tools/call")


async def test_tools_of_one_name_of_one_server_are_refused_with_what_helps(
    serve: Serve, model: FakeOpenAI
) -> None:
    on = {**TOOL, "name": "on"}
    listed = {"tools/list": {"result": {"tools": [TOOL, on, {**TOOL, "description": "Stop."}]}}}
    runner = await serve(listed)
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=r"'raw'.* lists 2 tools named 'go'") as caught:
        await runner.run_task(task)
    assert "names of their own at the server" in str(caught.value)
    assert "include_server_in_tool_names" not in str(caught.value)
    filtered = create_static_tool_filter(blocked_tool_names=["go"])  # as the error says
    assert repr(["go"]) in str(caught.value)
    async with answering(listed, tool_filter=filtered) as server:
        agent = Agent(name="agent", mcp_servers=[server])
        assert [tool.name for tool in await agent.get_mcp_tools()] == ["on"]


async def test_lists_have_pages_that_end_and_no_more_of_them_than_the_program_allows() -> None:
    answers, endless = dict[str, Any](), dict[str, Any]()
    for kind, one in (("tools", TOOL), ("prompts", {"name": "go"})):
        answers[f"{kind}/list"] = {"result": {kind: [one], "nextCursor": "next"}}
        answers[f"{kind}/list next"] = {"result": {kind: [{**one, "name": "on"}], "nextCursor": ""}}
        endless |= dict.fromkeys((f"{kind}/list", f"{kind}/list next"), answers[f"{kind}/list"])
    async with answering(answers, max_list_pages=2) as server:
        assert [tool.name for tool in await server.list_tools()] == ["go", "on"]
        listed = await server.list_prompts()
        assert [prompt.name for prompt in listed.prompts] == ["go", "on"]
        assert listed.next_cursor is None  # it was empty
    async with answering(answers, max_list_pages=1) as server:
        with pytest.raises(UserError, match=r"its tools on more pages: .* max_list_pages=1"):
            await server.list_tools()
        assert server.cached_tools is None
        with pytest.raises(UserError, match=r"its prompts on more pages: .* max_list_pages=1"):
            await server.list_prompts()
    async with answering(endless) as server:
        with pytest.raises(UserError, match="lists its prompts without end"):
            await server.list_prompts()


@pytest.mark.parametrize(("most", "kind"), [(0, ValueError), (True, TypeError), ("9", TypeError)])
def test_a_number_of_pages_is_a_positive_integer(most: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="must be a positive integer or None"):
        MCPServerStdio({"command": "x"}, max_list_pages=most)


@contextmanager
def over_http(answer: tuple[int, str, bytes], calls: list[str]) -> Generator[str]:
    """Serve over HTTP, with that status, type and body for each call; give the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(405, "", b"")

        def do_DELETE(self) -> None:
            self._send(405, "", b"")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            results = {"initialize": BEGINNING, "tools/list": {"tools": [TOOL]}}
            if request["method"] == "tools/call":
                calls.append(request["params"]["name"])
                self._send(*answer)
            elif request["method"] in results:
                found = {"id": request["id"], "result": results[request["method"]]}
                self._send(
                    200, "application/json", json.dumps({"jsonrpc": "2.0", **found}).encode()
                )
            elif "id" in request:
                self._send(404, "", b"")
            else:
                self._send(202, "", b"")

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        (200, "text/html", b"<h1>Sign in</h1>"),
        (200, "text/event-stream", b"event: message\ndata: {no\n\n"),
        (202, "", b""),
    ],
)
async def test_a_call_whose_answer_is_none_may_have_been_made(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, answer: tuple[int, str, bytes]
) -> None:
    calls: list[str] = []
    with over_http(answer, calls) as url:
        server = MCPServerStreamableHttp(
            {"url": url}, name="raw", client_session_timeout_seconds=60
        )
        await rig.serve(make_agent(mcp_servers=[server]))
        runner = rig.runner()
        model.call("go", {"thing": "x"})
        task = await runner.create_task("q")
        await runner.run_task(task)
        [approval] = await runner.pending_approvals(task)
        await rig.stop()
        await server.cleanup()
    assert approval.kind == "unknown"
    assert calls == ["go"]
