"""What the routes of the API share: the runner, who asks, and answers without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import JSONResponse

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.identity.guard import Guard
from holdfast.desk.identity.identities import READ, Identity, Verb
from holdfast.desk.identity.protection import VISITOR
from holdfast.desk.views.words import without_secrets
from holdfast.values.steps import Task

RUN_SECONDS = 10.0
"""How long a request waits for the run that it has begun."""

_running: set[asyncio.Task[object]] = set()


class CleanJSON(JSONResponse):
    """JSON without secrets: keys and tokens are replaced in every text."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return super().render(without_secrets(content))


class Access:
    """A request's way to the tasks.

    Attributes:
        runner: Reads and steers the tasks.
        visitor: Who sends the request.
    """

    def __init__(self, request: Request) -> None:
        """Take them from the application and from the request, which is authenticated."""
        self.runner: AgentRunner = request.app.state.runner
        self.visitor: Identity = request.scope[VISITOR]
        self._guard: Guard = request.app.state.guard
        self._request = request

    async def may(self, verb: Verb, subject: str) -> str:
        """Return the name to be recorded as `by`, if the visitor may do this.

        Raises:
            NotAllowedError: They may not.
        """
        await self._guard.ensure(self.visitor, verb, subject)
        return self.visitor.name

    async def check(self) -> None:
        """Return if the sender may still read: a token can be revoked while a stream is open.

        Raises:
            NotAuthenticatedError: They are no longer known.
            NotAllowedError: They may no longer read.
        """
        visitor = await self._guard.visitor(self._request)
        await self._guard.ensure(visitor, READ, "")

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


Asked = Annotated[Access, Depends(Access)]
"""Parameter of a route."""
