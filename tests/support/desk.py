"""The desk's pages for tests: served in the test's own process, opened in a real browser."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI
from playwright.async_api import Browser, Page, Request
from starlette.requests import Request as Asked

from holdfast import AgentRunner
from holdfast.desk.pages.access import Desk
from holdfast.desk.pages.feed import Feed
from holdfast.desk.pages.mount import mount_pages

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


@dataclass(frozen=True)
class Person:
    """Somebody at a browser, who says by a cookie who they are."""

    name: str


class People:
    """Lets everybody do everything, but for the verbs that a test forbids."""

    def __init__(self) -> None:
        self.forbidden: set[str] = set()

    async def visitor(self, request: Asked) -> Person:
        return Person(request.cookies.get("who", "ann"))

    async def allows(self, visitor: Any, verb: str, subject: str) -> bool:
        return verb not in self.forbidden


@dataclass(frozen=True)
class Served:
    """A desk that is up.

    Attributes:
        url: Where.
        people: Who may do what.
    """

    url: str
    people: People


@asynccontextmanager
async def serve_desk(
    runner: AgentRunner, port: int = 0, prefix: str = ""
) -> AsyncGenerator[Served]:
    """Serve the pages, until the block ends; with a prefix, from within another application."""
    people = People()
    app = FastAPI()
    mount_pages(app, Desk(runner, people, Feed(runner)))
    if prefix:
        outer = FastAPI()
        outer.mount(prefix, app)
        app = outer
    port = port or free_port()
    config = uvicorn.Config(
        app, port=port, log_level="error", timeout_graceful_shutdown=1, ws="websockets-sansio"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.02)
    try:
        yield Served(f"http://127.0.0.1:{port}{prefix}", people)
    finally:
        server.should_exit = True
        await serving


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def person(
    browser: Browser, url: str, name: str = "ann", *, width: int = 1280, scheme: Any = "light"
) -> AsyncGenerator[Page]:
    """Open a browser of a person; at its end, it has asked no other host, and had no error."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    await context.add_cookies([{"name": "who", "value": name, "url": url}])
    page = await context.new_page()
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
        await context.close()
    assert wrong == []
