"""Serves the desk in the present event loop, alone or next to a worker."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.routing import Match

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.api.events import events
from holdfast.desk.api.hooks import SECRETS_VARIABLE, hooks, secrets_of
from holdfast.desk.api.reads import reads
from holdfast.desk.api.writes import writes
from holdfast.desk.identity.guard import Guard, Proxy, is_loopback
from holdfast.desk.identity.login import login
from holdfast.desk.identity.problems import MEDIA_TYPE, Problem, answer_problems
from holdfast.desk.identity.protection import HOOKS, LOGIN, Limits, Protection, Rates
from holdfast.desk.identity.tenants import tenant_of
from holdfast.desk.identity.tokens import LocalTokens, May, Tokens
from holdfast.desk.pages.feed import Desk, Feed
from holdfast.desk.pages.mount import mount_pages
from holdfast.engine.listening import listening_socket
from holdfast.errors import InvalidArgumentError, ServerStartError
from holdfast.values.version import __version__

if TYPE_CHECKING:
    from holdfast.desk.identity.oidc import OIDC

API = "/api/v1"

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        401: "No one is known to have sent the request.",
        403: "The sender may not do this, or the request comes from another site.",
        404: "There is no such task, step, approval or session.",
        405: "The address, with the ids in it, is not one of this method.",
        409: "It was refused: decided already, closed, or in the way of another request.",
        413: "The body is too large.",
        422: "The request does not fit.",
        429: "Too many requests.",
        503: "The server, a worker process or the archive does not answer; nothing is lost.",
    }.items()
}

_ROUTERS = (events, reads, writes)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


async def _nothing_here(request: Request, path: str) -> None:
    """Answer what the API does not have; without this, the pages would."""
    within = {**request.scope, "path": path.removeprefix("v1"), "root_path": ""}
    known = [route for router in _ROUTERS for route in router.routes]
    fitting = [each for each in known if each.matches(within)[0] is Match.PARTIAL]
    if methods := sorted({each for route in fitting for each in getattr(route, "methods", ())}):
        msg = f"/api/{path} takes {' and '.join(methods)}, not {request.method}."
        raise HTTPException(405, msg, {"Allow": ", ".join(methods)})
    raise HTTPException(404, f"The API has nothing at /api/{path}. {API}/openapi.json lists it.")


def _describe(app: FastAPI) -> None:
    """Have the description say that errors are problem details, and how senders are known."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        found = described()
        for methods in found["paths"].values():
            for facts in methods.values():
                for status, answer in facts["responses"].items():
                    content = answer.get("content", {})
                    if int(status) in _REFUSALS and "application/json" in content:
                        content[MEDIA_TYPE] = content.pop("application/json")
        bearer = {"type": "http", "scheme": "bearer", "description": "`holdfast desk token make`"}
        found["components"]["securitySchemes"] = {"token": bearer}
        found["security"] = [{"token": []}, {}]
        return found

    app.openapi = openapi  # type: ignore[method-assign]


def desk_app(
    runner: AgentRunner,
    *,
    tokens: Tokens | Path | str | None = None,
    proxy: Proxy | None = None,
    may: May | None = None,
    limits: Limits | None = None,
    oidc: OIDC | None = None,
) -> FastAPI:
    """Make the desk of a runner: pages for people and an API for programs.

    It is an ASGI application: serve it alone, or mount it into one of FastAPI or Starlette
    (`app.mount("/desk", desk_app(runner))`). Without tokens and without a proxy it serves only the
    person who is logged in at this machine: by a token of theirs, which `desk_url` has.

    Args:
        runner: Reads and steers the tasks. One that is not started is started with the
            application, and closed with it; mounted into another application, it must be started.
        tokens: Tokens that are accepted, or their file. By default that of the local user, in
            `desk-local-token` in the data directory of the runner. A runner that has none gets a
            token for the time of this process.
        proxy: A reverse proxy that names who sends a request.
        may: Decides besides the roles: called with the identity, the verb and the id of the task,
            approval or session, which has its `tenant`. Reading is asked for as a whole, with the
            verb "read" and no id, and for each page and route of one of these, with its id. Lists
            are not filtered by it.
        limits: How much a sender may ask for.
        oidc: An OpenID provider whose people may sign in; it needs a file of tokens, which has
            their sessions as well.

    Raises:
        InvalidArgumentError: There is a provider, and no such file; or a webhook secret is wrong.
    """
    known = Tokens(Path(tokens)) if isinstance(tokens, str | Path) else tokens
    if oidc is not None and (known is None or isinstance(known, LocalTokens)):
        msg = "A desk with an OpenID provider keeps sessions in a file: desk_app(tokens=FILE)."
        raise InvalidArgumentError(msg)
    if known is None and proxy is None:
        known = LocalTokens(runner.data_dir)
    list(secrets_of("", os.environ.get(SECRETS_VARIABLE, "")))  # each must be one
    limits = limits or Limits()
    rates = Rates(limits.writes_per_second, limits.burst)
    guard = Guard(known, proxy, may, partial(tenant_of, runner))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        if runner.is_started:
            yield
            return
        async with runner:
            yield

    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description="Tasks of durable agents: read them, decide for them, steer them.",
        lifespan=lifespan,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses=_REFUSALS,
    )
    desk = Desk(runner, guard, Feed(runner))
    app.state.desk = desk
    app.state.guard = guard
    app.state.rates = rates
    answer_problems(app)
    for router in _ROUTERS:
        app.include_router(router, prefix=API)
    app.add_api_route(
        "/api/{path:path}", _nothing_here, methods=[*_METHODS], include_in_schema=False
    )
    _describe(app)
    app.include_router(login)
    app.include_router(hooks, prefix=HOOKS.rstrip("/"))
    if oidc is not None:
        from holdfast.desk.identity import oidc as sign_in

        app.state.provider = sign_in.Provider(oidc)
        assert known is not None  # noqa: S101  it was checked above
        known.provider = oidc.named
        app.include_router(sign_in.oidc)
    app.add_middleware(Protection, guard=guard, limits=limits, rates=rates)
    mount_pages(app, desk)
    return app


def desk_url(app: FastAPI, base: str) -> str:
    """Return the address by which a person opens a desk.

    Where the desk serves the local user alone, it signs them in: print it for them, and show it to
    no other person.

    Args:
        app: The desk.
        base: Where it is served, as `http://127.0.0.1:8000/desk`.
    """
    tokens = app.state.guard.tokens
    if not isinstance(tokens, LocalTokens):
        return base
    return f"{base.rstrip('/')}{LOGIN}#token={tokens.own()}"


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
    runner: AgentRunner,
    *,
    tokens: Path,
    host: str = HOST,
    port: int = PORT,
    any_port: bool = False,
    oidc: OIDC | None = None,
) -> AsyncGenerator[str]:
    """Serve the desk while the block runs.

    Args:
        runner: Reads and steers the tasks.
        tokens: File of the tokens. While it has none, only this machine's user is served, by a
            token in a file next to it.
        host: Address to listen at.
        port: Port to listen at; 0 for any.
        any_port: Whether another port will do when that one is taken: the next that is free.
        oidc: An OpenID provider whose people may sign in.

    Yields:
        The URL of the desk; where it serves this machine's user, it signs them in.

    Raises:
        InvalidArgumentError: Others could reach it, and there are no tokens.
        ServerStartError: It cannot listen there.
    """
    known = Tokens(tokens)
    is_guarded = oidc is not None or bool(known.list())
    if not is_guarded and not is_loopback(host):
        raise InvalidArgumentError(
            f"Others could reach the desk at {host}, and {str(tokens)!r} has no token: no one could"
            " sign in. Make one with `holdfast desk token make NAME --role operator`."
        )
    bound = _listen(host, port, any_port=any_port)
    app = desk_app(
        runner, tokens=known if is_guarded else LocalTokens(tokens.parent, known), oidc=oidc
    )
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
            raise ServerStartError("The desk did not start; the log above says why.")
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
    raise ServerStartError(f"The desk cannot listen at {host}:{port}: {why}. Give another --port.")
