"""MCP servers over stdio, server-sent events and streamable HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from holdfast.mcp.connection import needing_mcp
from holdfast.mcp.server import ClientServer
from holdfast.mcp.tools import (
    MCPServerSseParams,
    MCPServerStdioParams,
    MCPServerStreamableHttpParams,
)

_SESSION, _UNKNOWN = "mcp-session-id", 404
"""The header that names the session in each request of it, and the status if it is not known."""


class MCPServerStdio(ClientServer[MCPServerStdioParams]):
    """A server that is started as a process of its own on the worker's machine.

    It ends with the process that started it, and is started again when it died.
    """

    def _default_name(self) -> str:
        return f"stdio: {self.params['command']}"

    def _connector(self) -> Any:
        with needing_mcp():
            from mcp import StdioServerParameters
        return StdioServerParameters.model_validate(self.params)


class MCPServerSse(ClientServer[MCPServerSseParams]):
    """A server over HTTP with server-sent events; newer servers use streamable HTTP."""

    def _default_name(self) -> str:
        return f"sse: {shown_url(self.params['url'])}"

    def _connector(self) -> Any:
        with needing_mcp():
            from mcp.client.sse import sse_client
        given: dict[str, Any] = {**self.params}
        if given.get("httpx_client_factory") is None:
            given.pop("httpx_client_factory", None)
        return sse_client(**given)


class MCPServerStreamableHttp(ClientServer[MCPServerStreamableHttpParams]):
    """A server that is reached over streamable HTTP."""

    def _default_name(self) -> str:
        return f"streamable_http: {shown_url(self.params['url'])}"

    def _connector(self) -> Any:
        return _over_http(self.params)


def shown_url(url: str) -> str:
    """Return a URL without what may be secret: name and password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "<invalid-url>"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@asynccontextmanager
async def _over_http(params: MCPServerStreamableHttpParams) -> AsyncGenerator[Any]:
    """Open a transport over streamable HTTP, with a client of its own."""
    with needing_mcp():
        import httpx2
        from mcp.client.streamable_http import streamable_http_client
    timeout = httpx2.Timeout(params.get("timeout", 5), read=params.get("sse_read_timeout", 300))
    factory: Any = params.get("httpx_client_factory") or httpx2.AsyncClient
    client = factory(headers=params.get("headers"), timeout=timeout, auth=params.get("auth"))
    client.event_hooks["response"].append(_show_ended_session)
    ends = params.get("terminate_on_close", True)
    transport = streamable_http_client(
        params["url"],
        http_client=client,
        terminate_on_close=ends,
        max_sse_event_size=None,  # as for answers in JSON: large results go to the archive
    )
    async with client, transport as streams:
        yield streams


async def _show_ended_session(response: Any) -> None:
    """Let the client of the package tell by the status that the server does not know the session.

    It prefers the error in a body of JSON, whose words differ from server to server, and which
    looks like an answer to the request.
    """
    if response.status_code == _UNKNOWN and _SESSION in response.request.headers:
        response.headers["content-type"] = "text/plain"
