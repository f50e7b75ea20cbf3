"""MCP servers over HTTP: sessions that end, and results of any size."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from holdfast.engine.dev_server.process import free_port
from holdfast.mcp import MCPServerStreamableHttp
from holdfast.testing import FakeOpenAI
from tests.live.test_mcp import THING, Serve, place, serve
from tests.live.test_mcp_nonsense import over_http
from tests.support import forked
from tests.support.rig import MakeAgent, Rig, until
from tests.support.tool_servers import PROGRAM, Place

__all__ = ["place", "serve"]

ENDED = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": -32603, "message": "Session terminated before the request completed"},
}
"""What a server of the `mcp` package answers to the requests in progress when it ends a session."""


@asynccontextmanager
async def started(place: Place, port: int) -> AsyncGenerator[None]:
    """Start the server of the tests at a port; it is killed at the end."""
    before = len(place.pids)
    with subprocess.Popen(
        forked.command(str(PROGRAM), str(place.path), "streamable-http", str(port))
    ) as process:

        async def is_up() -> bool:
            return len(place.pids) > before

        try:
            await until(is_up)
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_that_was_started_anew_does_not_know_the_session(
    serve: Serve, model: FakeOpenAI, place: Place, mode: Literal["auto", "legacy"]
) -> None:
    port = free_port()
    server = MCPServerStreamableHttp(
        {"url": f"http://127.0.0.1:{port}/mcp"}, name="test", protocol_mode=mode
    )
    runner = await serve(server)
    model.call("look", THING)
    model.call("book", THING)
    model.reply("done")
    async with started(place, port):
        task = await runner.create_task("q")
        await runner.run_step(task)
    async with started(place, port):
        assert (await runner.run_task(task)).output == "done"
    assert place.calls == {"look:x": 1, "book:x": 1}


async def call_once(
    rig: Rig, make_agent: MakeAgent, answer: tuple[int, str, bytes]
) -> tuple[list[str], list[str]]:
    """Run a task whose server answers so; return the calls and the kinds of what waits."""
    calls: list[str] = []
    with over_http(answer, calls) as url:
        params: Any = {"url": url}
        server = MCPServerStreamableHttp(params, name="raw", client_session_timeout_seconds=60)
        await rig.serve(make_agent(mcp_servers=[server]))
        runner = rig.runner()
        task = await runner.create_task("q")
        await runner.run_task(task)
        asked = await runner.pending_approvals(task)
        await rig.stop()
        await server.cleanup()
    return calls, [approval.kind for approval in asked]


async def test_a_session_that_ends_in_a_call_leaves_it_unknown(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    model.call("go", THING)
    answer = (500, "application/json", json.dumps(ENDED).encode())
    assert await call_once(rig, make_agent, answer) == (["go"], ["unknown"])


async def test_a_large_result_in_an_event_is_read(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    text = {"type": "text", "text": "x" * (3 << 20)}
    message = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {"content": [text]}})
    model.call("go", THING)
    model.reply("done")
    answer = (200, "text/event-stream", f"event: message\ndata: {message}\n\n".encode())
    assert await call_once(rig, make_agent, answer) == (["go"], [])
    assert model.requests[1].holds("its result of 3145728 bytes is over the limit")
