"""Puts the pages into a web application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from nicegui import Client, ui
from nicegui import app as nicegui_app
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.desk.identity.tokens import Identity
from holdfast.desk.pages import parts
from holdfast.desk.pages.charts import Charts
from holdfast.desk.pages.compare import Compare
from holdfast.desk.pages.feed import Desk
from holdfast.desk.pages.frame import Frame, frame
from holdfast.desk.pages.inbox.page import Inbox
from holdfast.desk.pages.inbox.rules import Rules, Schedules
from holdfast.desk.pages.sessions import Sessions
from holdfast.desk.pages.task.page import TaskPage
from holdfast.desk.pages.tasks import Tasks
from holdfast.desk.pages.workers import Workers
from holdfast.desk.views.tasks import TaskFilter
from holdfast.reading.inbox import InboxFilter

KEY = "holdfast.desk"
"""Key in a request's scope of the desk that it is for: a process may have several."""


class _Library:
    """The pages' library, which a process has once, for all of its desks.

    Attributes:
        app: The application that it lives in.
    """

    def __init__(self) -> None:
        self.app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        # A bar for each request of the library would be noise, also to a screen reader.
        config: Any = nicegui_app.config
        config.quasar_config["loadingBar"]["skipHijack"] = True
        run_with: Any = getattr(ui, "run_with")  # noqa: B009  its type names a type without arguments
        run_with(
            self.app,
            title="Holdfast",
            dark=None,
            language="en-US",
            reconnect_timeout=60.0,
            show_welcome_message=False,
        )
        self._users = 0
        self._running: Any = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run it as long as one desk does."""
        self._users += 1
        await self.start()
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                ended, self._running = self._running, None
                await ended.__aexit__(None, None, None)

    async def start(self) -> None:
        """Start it, unless it runs."""
        if self._running is not None:
            return
        async with self._lock:
            if self._running is None:
                starting = self.app.router.lifespan_context(self.app)
                await starting.__aenter__()
                self._running = starting


class _Bound:
    """Gives each request the desk that it is for."""

    def __init__(self, library: _Library, desk: Desk) -> None:
        self._library, self._desk = library, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._library.start()
        scope[KEY] = self._desk
        app: ASGIApp = self._library.app
        await app(scope, receive, send)


_library: list[_Library] = []


def mount_pages(app: FastAPI, desk: Desk) -> None:
    """Serve the pages from an application; routes that it has already come first.

    Args:
        app: The application; its lifespan runs the pages' library. That of one which is mounted
            in another is not called: the library then starts with the first request, and runs as
            long as the process does.
        desk: What the pages show.
    """
    if not _library:
        _library.append(_Library())
        _routes()
    library = _library[0]
    app.mount("/", _Bound(library, desk))
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(of: Any) -> AsyncGenerator[Any]:
        async with library.running(), inner(of) as state:
            yield state

    app.router.lifespan_context = lifespan


async def _opened(request: Request) -> tuple[Desk, Identity]:
    desk: Desk = request.scope[KEY]
    visitor = await desk.guard.visitor(request)
    return desk.of(visitor), visitor


def _routes() -> None:
    """Make the addresses of the pages, and the answer at any other."""
    _page("/", "inbox", lambda page, ask: Inbox(page, InboxFilter.read(ask), ask.get("card", "")))
    _page("/tasks", "tasks", lambda page, ask: Tasks(page, TaskFilter.read(ask)))
    _page("/tasks/{task_id:path}", "task", _task)
    _page("/compare", "compare", Compare)
    _page("/sessions", "sessions", lambda page, ask: Sessions(page, ask.get("name", "")))
    _page("/rules", "standing rules", lambda page, _: Rules(page))
    _page("/schedules", "schedules", lambda page, _: Schedules(page))
    _page("/charts", "charts", lambda page, ask: Charts(page, ask.get("of", "")))
    _page("/workers", "workers", lambda page, _: Workers(page))

    @nicegui_app.get("/{path:path}", include_in_schema=False)
    async def missing(request: Request, path: str) -> Response:
        desk, visitor = await _opened(request)
        at = ui.page("", title="Not found · Holdfast")
        with Client(at, request=request) as client:
            with frame(desk, visitor, request, "") as shown:
                parts.empty("search_off", "There is no such page", f"/{path}")
                parts.link("Go to the inbox", "/", "self-center")
            shown.loaded()
        return client.build_response(request, 404)


def _page(path: str, name: str, draw: Callable[[Frame, dict[str, str]], object]) -> None:
    """Make a page; `draw` is given the query of its address."""

    @ui.page(path, title=f"{name.capitalize()} · Holdfast")
    async def drawn(request: Request) -> None:
        desk, visitor = await _opened(request)
        with frame(desk, visitor, request, name) as page:
            draw(page, dict(request.query_params))


def _task(page: Frame, ask: dict[str, str]) -> None:
    task_id: str = page.request.path_params["task_id"]
    TaskPage(page, task_id, tab=ask.get("tab", ""), step=ask.get("step", ""))
