"""Clients of the desk's HTTP API: programs, browsers, and those who pretend to be."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from holdfast import AgentRunner
from holdfast.desk import desk_app
from holdfast.desk.identity.tokens import LocalTokens

LOOPBACK = ("127.0.0.1", 50_000)
ELSEWHERE = ("192.0.2.7", 50_000)


@asynccontextmanager
async def client_of(
    app: Any,
    *,
    token: str | None = None,
    peer: tuple[str, int] = LOOPBACK,
    host: str = "localhost:8400",
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[httpx.AsyncClient]:
    """Give a client of an application, which answers also its own errors as it does when served.

    Args:
        app: The application.
        token: Sent with each request; that of the local user by default, where the desk has one.
        peer: The client's address.
        host: The host that is asked.
        headers: Sent with each request.
    """
    sent = {**(headers or {})}
    guard = getattr(app.state, "guard", None)
    if token is None and guard and isinstance(guard.tokens, LocalTokens):
        token = guard.tokens.own()
    if token:
        sent["authorization"] = f"Bearer {token}"
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=peer)
    async with httpx.AsyncClient(
        transport=transport, base_url=f"http://{host}", headers=sent, timeout=60
    ) as client:
        yield client


def guarded(runner: AgentRunner, directory: Path, **options: Any) -> tuple[Any, dict[str, str]]:
    """Make a desk with a token for each role; return both."""
    from holdfast.desk import Tokens

    tokens = Tokens(directory / "tokens.json")
    made = {
        "vic": tokens.make("vic", ["viewer"]),
        "ole": tokens.make("ole", ["operator"]),
        "ada": tokens.make("ada", ["approver"]),
        "cus": tokens.make("cus", ["custodian"]),
    }
    return desk_app(runner, tokens=tokens, **options), made
