"""What the routes of the API share: the runner, who asks, and answers without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from holdfast.desk.identity.problems import ANSWERED, answer_of
from holdfast.desk.identity.protection import SAFE, VISITOR
from holdfast.desk.identity.tokens import READ, Identity, Verb
from holdfast.desk.pages.feed import Desk
from holdfast.desk.views.cards import Card, seen_by
from holdfast.desk.views.words import without_secrets
from holdfast.task.people.decisions import Person
from holdfast.values.steps import Task
from holdfast.values.text.decided import covered

DESK = "holdfast.desk"
"""Key in a request's scope of the desk, where another application has its API."""

RUN_SECONDS = 10.0
"""How long a request waits for the run that it has begun."""

_SLASH = "\x1f"
"""Stands for a slash of an id while a route is looked for; no id has it."""

_running: set[asyncio.Task[object]] = set()


class CleanJSON(JSONResponse):
    """JSON without secrets: keys and tokens are replaced in every text."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return super().render(without_secrets(content))


class DecisionJSON(JSONResponse):
    """JSON for decisions: secrets are hidden only where they are plain key material."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return super().render(without_secrets(content, covered))


class IdRoute(APIRoute):
    """A route with an id, which may have slashes.

    A slash sent as `%2F` belongs to the id: `/tasks/x%2Fsteps` is the task `x/steps`, and
    `/tasks/x/steps` the steps of `x`.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Say whether a request is for this route, and what the parts of its address are."""
        raw: bytes = scope.get("raw_path") or b""
        kept = unquote(raw.replace(b"%2F", b"%1F").replace(b"%2f", b"%1f"))
        if _SLASH not in kept or kept.replace(_SLASH, "/") != scope["path"]:
            return super().matches(scope)
        match, found = super().matches({**scope, "path": kept})
        parts = found.get("path_params")
        if parts:
            found["path_params"] = {
                name: part.replace(_SLASH, "/") if isinstance(part, str) else part
                for name, part in parts.items()
            }
        return match, found

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer errors as problem details, whatever application has the route."""
        handle = super().get_route_handler()

        async def handling(request: Request) -> Response:
            try:
                return await handle(request)
            except ANSWERED as error:
                return answer_of(error)

        return handling


class Access:
    """A request's way to the tasks.

    Attributes:
        runner: Reads and steers the tasks.
        visitor: Who sends the request.
        reads: What is read, and the sender must be allowed to: by default what the address names.
    """

    def __init__(self, request: Request) -> None:
        """Take them from the application and from the request, which is authenticated.

        The runner sees what the visitor may.
        """
        self.visitor: Identity = request.scope[VISITOR]
        self.reads: Sequence[str] = [*request.path_params.values()]
        desk: Desk = request.scope.get(DESK) or request.app.state.desk
        self.runner = desk.of(self.visitor).runner
        self._guard = desk.guard
        self._request = request

    @property
    def person(self) -> Person:
        """The visitor as the rules of tools see them."""
        return self._guard.person(self.visitor, self.runner)

    async def seen(self, card: Card) -> Card:
        """Return a card whose buttons say why the visitor may not press them."""
        return await seen_by(self.person, card, partial(self._guard.barred, self.visitor))

    async def may(self, verb: Verb, subject: str) -> str:
        """Return the name to be recorded as `by`, if the visitor may do this.

        Raises:
            NotAllowedError: They may not.
        """
        await self._guard.ensure(self.visitor, verb, subject)
        return self.visitor.name

    async def allows(self, verb: Verb, subject: str) -> bool:
        """Whether the visitor may do this."""
        return await self._guard.allows(self.visitor, verb, subject)

    async def check(self, reads: Sequence[str]) -> None:
        """Return if the sender may still read this: a token can be revoked while a stream is open.

        Raises:
            NotAuthenticatedError: They are no longer known.
            NotAllowedError: They may no longer read.
        """
        visitor = await self._guard.visitor(self._request)
        for subject in ("", *reads):
            await self._guard.ensure(visitor, READ, subject)

    async def begun(self, task_id: str, running: Coroutine[Any, Any, object]) -> Task:
        """Wait for a run to end, though not for long, and return its task as it is then.

        Raises:
            HoldfastError: The run could not begin, or has failed meanwhile.
        """
        task = asyncio.create_task(running)
        _running.add(task)  # the loop itself would forget it
        task.add_done_callback(_forget)
        await asyncio.wait((task,), timeout=RUN_SECONDS)
        if task.done():
            await task
        return await self.runner.get_task(task_id)


def _forget(task: asyncio.Task[object]) -> None:
    """Forget a run; how it has failed is recorded in its task."""
    _running.discard(task)
    if not task.cancelled():
        task.exception()


async def unread(request: Request) -> Access:
    """Return a request's way to the tasks, where its address names none that it reads."""
    return Access(request)


async def _asked(request: Request) -> Access:
    made = Access(request)
    if request.method in SAFE and request.path_params:
        await made.check(made.reads)
    return made


Asked = Annotated[Access, Depends(_asked)]
"""Parameter of a route."""
