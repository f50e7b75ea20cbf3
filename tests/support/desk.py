"""The desk's pages for tests: served in the test's own process, opened in a real browser."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from playwright.async_api import Browser, BrowserContext, Page, Request

from holdfast import AgentRunner
from holdfast.desk import Tokens, desk_app
from holdfast.desk.identity.guard import COOKIE
from holdfast.engine.dev_server.process import free_port

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
SETTLED = """async () => {
    const all = document.getAnimations().filter(each => each instanceof CSSTransition);
    await Promise.allSettled(all.map(each => each.finished));
}"""
"""Waits until nothing moves on a page."""


class People:
    """Whoever has a browser may do everything, unless a test gives them other roles.

    Attributes:
        tokens: With them they sign in.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._made: dict[str, str] = {}

    def token(self, name: str, roles: Sequence[str] = ("operator", "approver")) -> str:
        """Return the token of somebody."""
        if name not in self._made:
            self._made[name] = self.tokens.make(name, roles)
        return self._made[name]


@dataclass(frozen=True)
class Served:
    """A desk that is up.

    Attributes:
        url: Where.
        people: Who may do what.
        contexts: The browser of each who has one: the first page in a browser of its own costs
            five times as much as another one.
    """

    url: str
    people: People
    contexts: dict[str, BrowserContext] = field(default_factory=dict[str, BrowserContext])

    def cookies(self, name: str) -> list[Any]:
        """Return the cookies of a browser in which somebody has signed in."""
        session = self.people.tokens.begin_session(self.people.token(name))
        made = {"name": COOKIE, "value": session, "url": self.url}
        return [{**made, "httpOnly": True, "sameSite": "Lax"}]


@asynccontextmanager
async def serve_desk(
    runner: AgentRunner, port: int = 0, prefix: str = "", tokens: Path | None = None
) -> AsyncGenerator[Served]:
    """Serve the desk as it is in production, until the block ends.

    Args:
        runner: Reads and steers the tasks.
        port: Where; 0 for any.
        prefix: Path at which it is mounted in another application; empty for none.
        tokens: File of the tokens, for a desk that is started again.
    """
    with tempfile.TemporaryDirectory() as directory:
        people = People(Tokens(tokens or Path(directory) / "tokens.json"))
        app = desk_app(runner, tokens=people.tokens)
        if prefix:
            outer = FastAPI()
            outer.mount(prefix, app)
            app = outer
        async with serve_app(app, port) as url:
            served = Served(f"{url}{prefix}", people)
            yield served
            for context in served.contexts.values():
                await context.close()


@asynccontextmanager
async def serve_app(app: FastAPI, port: int = 0) -> AsyncGenerator[str]:
    """Serve an application, until the block ends; give its address."""
    port = port or free_port()
    config = uvicorn.Config(
        app, port=port, log_level="error", timeout_graceful_shutdown=1, ws="websockets-sansio"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def person(
    browser: Browser, desk: Served, name: str = "ann", *, width: int = 1280, scheme: Any = "light"
) -> AsyncGenerator[Page]:
    """Open a page of a person; at its end, it has asked no other host, and had no error."""
    url = desk.url
    if name not in desk.contexts:
        desk.contexts[name] = await browser.new_context()
        await desk.contexts[name].add_cookies(desk.cookies(name))
    page = await desk.contexts[name].new_page()
    await page.set_viewport_size({"width": width, "height": 900})
    await page.emulate_media(color_scheme=scheme)
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []

    def asked(request: Request) -> None:
        if not request.url.startswith((url, "data:", "blob:")):
            wrong.append(f"asked {request.url}")

    page.on("request", asked)
    page.on("pageerror", lambda error: wrong.append(f"error {error}"))
    page.on("dialog", lambda shown: wrong.append(f"dialog {shown.message}"))
    try:
        yield page
    finally:
        await page.close()
    assert wrong == []
