"""Serves an MCP server over stdio, or over streamable HTTP with a token."""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.engine.listening import listening_socket
from holdfast.errors import HoldfastError, InvalidArgumentError, ServerStartError

if TYPE_CHECKING:
    from holdfast.desk.identity.tokens import Tokens

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
PATH = "/mcp"
TENANT = "holdfast.tenant"
"""Key in a request's scope of the tenant of its sender; empty for all."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve a client at stdin and stdout until it goes away.

    Raises:
        HoldfastError: stdout cannot be written.
    """
    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    except ExceptionGroup as several:
        lost, rest = several.split(OSError)
        if lost is None or rest is not None:
            raise
        cause: Exception = lost
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, BrokenPipeError):  # the client has gone
            return
        msg = f"The MCP client at stdout cannot be answered: {cause}. Tasks that were begun go on."
        raise HoldfastError(msg) from cause


class _Quiet(uvicorn.Server):
    """A server that leaves signals to the command that it runs in."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen(host: str, port: int, token: str, *, by: str = "") -> socket.socket:
    """Return a socket that listens: a client that knows its address can connect, and waits.

    Raises:
        InvalidArgumentError: Others could reach it, or would decide as `by`, and there is no token.
        ServerStartError: It cannot listen there.
    """
    if host not in LOOPBACK and not token:
        raise InvalidArgumentError(
            f"Others could reach the agents at {host}, and no token guards them. Set"
            " HOLDFAST_MCP_TOKEN; clients send it as `Authorization: Bearer ...`."
        )
    if by and not token:
        msg = f"Every program and user of this machine could decide as {by!r}: no token guards the"
        raise InvalidArgumentError(f"{msg} agents. Set HOLDFAST_MCP_TOKEN, or leave --by out.")
    try:
        return listening_socket(host, port)
    except OSError as error:
        msg = f"The agents cannot be served at {host}:{port}: {error.strerror}. Give another port."
        raise ServerStartError(msg) from None


async def serve_http(
    server: Server[Any], bound: socket.socket, host: str, token: str, people: Tokens | None = None
) -> None:
    """Serve clients over streamable HTTP until cancelled.

    Args:
        server: The server.
        bound: Where it listens.
        host: The address of that.
        token: Lets a client pass, and says nothing of who it is.
        people: Tokens that say who their owner is.
    """
    app: Starlette = server.streamable_http_app(streamable_http_path=PATH, host=host)
    app.user_middleware.insert(0, Middleware(_Guard, token=token, people=people))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    made = _Quiet(config)
    serving = asyncio.create_task(made.serve([bound]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        made.should_exit = True  # cancelled itself, it would print a traceback
        await serving
        raise


class _Guard:
    """Lets requests pass that carry the token, or that of a person, whose session it is then."""

    def __init__(self, app: ASGIApp, token: str, people: Tokens | None) -> None:
        self._app = app
        self._token = token.encode()
        self._people = people

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scheme, _, given = Request(scope).headers.get("authorization", "").partition(" ")
            person = self._people.identity(given) if self._people else None
            if person is not None and scheme == "Bearer":
                roles = sorted(person.roles)
                access = AccessToken(token=given, client_id=person.name, scopes=[*roles])
                scope["user"], scope[TENANT] = AuthenticatedUser(access), person.tenant
            elif scheme != "Bearer" or not hmac.compare_digest(given.encode(), self._token):
                refused = PlainTextResponse("A bearer token is needed.", status_code=401)
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)
