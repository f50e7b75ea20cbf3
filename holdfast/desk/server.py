"""Serves the desk in the present event loop, alone or next to a worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.app import desk_app, desk_url
from holdfast.desk.identity.guard import is_loopback
from holdfast.desk.identity.tokens import LocalTokens, Tokens
from holdfast.engine.listening import listening_socket
from holdfast.errors import InvalidArgumentError, ServerStartError

HOST = "127.0.0.1"
PORT = 8400
GRACE_SECONDS = 2
MOST_TRIED = 20


class _Server(uvicorn.Server):
    """A server that leaves signals to the command that it runs in."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def desk_served(
    runner: AgentRunner, *, tokens: Path, host: str = HOST, port: int = PORT, any_port: bool = False
) -> AsyncGenerator[str]:
    """Serve the desk while the block runs.

    Args:
        runner: Reads and steers the tasks.
        tokens: File of the tokens. While it has none, only this machine's user is served, by a
            token in a file next to it.
        host: Address to listen at.
        port: Port to listen at; 0 for any.
        any_port: Whether another port will do when that one is taken: the next that is free.

    Yields:
        The URL of the desk; where it serves this machine's user, it signs them in.

    Raises:
        InvalidArgumentError: Others could reach it, and there are no tokens.
        ServerStartError: It cannot listen there.
    """
    known = Tokens(tokens)
    is_guarded = bool(known.list())
    if not is_guarded and not is_loopback(host):
        msg = (
            f"Others could reach the desk at {host}, and {str(tokens)!r} has no token: no one could"
            " sign in. Make one with `holdfast desk token make NAME --role operator`."
        )
        raise InvalidArgumentError(msg)
    bound = _listen(host, port, any_port=any_port)
    app = desk_app(runner, tokens=known if is_guarded else LocalTokens(tokens.parent, known))
    shown = f"[{host}]" if ":" in host else host
    try:
        async with _serving(app, bound):
            yield desk_url(app, f"http://{shown}:{bound.getsockname()[1]}")
    finally:
        bound.close()


@asynccontextmanager
async def _serving(app: FastAPI, bound: socket.socket) -> AsyncGenerator[None]:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        log_config=None,  # as the process logs
        server_header=False,
        proxy_headers=False,  # a header must not say from where a request comes
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="websockets-sansio",
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([bound]))
    up = asyncio.create_task(server.is_up.wait())
    await asyncio.wait((serving, up), return_when=asyncio.FIRST_COMPLETED)
    up.cancel()
    try:
        if not server.started:
            msg = "The desk did not start; the log above says why."
            raise ServerStartError(msg)
        yield
    finally:
        server.should_exit = True
        await serving


def _listen(host: str, port: int, *, any_port: bool) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ServerStartError: The address is not one of this machine, or the port is taken.
    """
    why = ""
    for tried in range(port, port + (MOST_TRIED if any_port else 1)):
        try:
            return listening_socket(host, tried)
        except OSError as error:
            why = why or f"{error.strerror}"
    msg = f"The desk cannot listen at {host}:{port}: {why}. Give another --port."
    raise ServerStartError(msg)
