"""Calls of the tools of MCP servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import Client

from holdfast.mcp import calls
from holdfast.mcp.calls import ServerCall
from holdfast.mcp.questions import Inquiries


async def test_a_call_that_finds_its_client_closed_has_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another call of the server has lost the connection while this one waited for its turn."""

    async def called(_: Any, request: Callable[[Client], Awaitable[Any]], **__: Any) -> Any:
        return await request(Client("http://127.0.0.1:1/mcp"))

    monkeypatch.setattr(calls, "called", called)
    policy = SimpleNamespace(may_have_happened=True)
    served = SimpleNamespace(name="pay")
    tool: Any = SimpleNamespace(name="pay", served=served, policy=lambda: policy)
    connection: Any = SimpleNamespace(name="Bank")
    call = ServerCall(
        connection=connection,
        ready=lambda: connection,
        inquiries=Inquiries(),
        tool=tool,
        arguments={},
        meta=None,
        answers={},
        resume="",
        repeats=0,
        structured=False,
    )
    with pytest.raises(RuntimeError, match="context manager"):
        await call.result()
