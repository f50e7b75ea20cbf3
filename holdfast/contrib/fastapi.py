"""The desk's HTTP API in your own FastAPI app, for the people that your app knows.

    app.include_router(tasks_router(runner, identity=current_user), prefix="/agents")

`current_user` is a dependency of your app: it returns the `Identity` of who sends the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from holdfast.values.code.extras import needing

with needing("fastapi", "holdfast.contrib.fastapi"):
    from fastapi import APIRouter, Depends, Request
    from starlette.requests import HTTPConnection

    from holdfast.desk.api.access import DESK
    from holdfast.desk.api.events import events
    from holdfast.desk.api.reads import reads
    from holdfast.desk.api.writes import writes
    from holdfast.desk.identity.guard import Guard
    from holdfast.desk.identity.protection import VISITOR
    from holdfast.desk.identity.tenants import tenant_of
    from holdfast.desk.identity.tokens import READ, Identity, May
    from holdfast.desk.pages.feed import Desk, Feed

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import UserError
from holdfast.values.text.shown import shown

__all__ = ["Identity", "tasks_router"]


class _Told(Guard):
    """Decides who may do what; who sends a request, the app has said."""

    async def visitor(self, request: HTTPConnection) -> Identity:
        known: Identity = request.scope[VISITOR]
        return known


def known_by(
    runner: AgentRunner, identity: Callable[..., Any], may: May | None
) -> Callable[..., Awaitable[None]]:
    """Make the dependency that routes of the API need.

    Args:
        runner: Reads and steers the tasks.
        identity: As for `tasks_router`.
        may: Likewise.
    """
    guard = _Told(may=may, tenant_of=partial(tenant_of, runner))
    desk = Desk(runner, guard, Feed(runner))

    async def known(request: Request, visitor: Any = Depends(identity)) -> None:  # noqa: B008  FastAPI's way
        if not isinstance(visitor, Identity):
            msg = (
                "identity= is a dependency that returns an Identity, or raises an HTTPException;"
                f" it returned {shown(visitor)}."
            )
            raise UserError(msg)
        request.scope[VISITOR], request.scope[DESK] = visitor, desk
        await guard.ensure(visitor, READ, "")

    return known


def tasks_router(
    runner: AgentRunner, *, identity: Callable[..., Any], may: May | None = None
) -> APIRouter:
    """Make a router with the routes of the desk's API, as the site's reference lists them.

    Requests that other sites send, their size and their number are your app's to check. `identity`
    is asked once for each request, `may` for each event of a stream as well: only `may` ends the
    streams of someone who has signed out.

    Args:
        runner: Reads and steers the tasks. Your app starts and closes it.
        identity: A dependency of your app that returns the `Identity` of who sends a request, and
            raises an HTTPException for others. Its roles say what they may do, its tenant what they
            see.
        may: Decides besides the roles, as for `desk_app`.
    """
    router = APIRouter(dependencies=[Depends(known_by(runner, identity, may))])
    for each in (events, reads, writes):
        router.include_router(each)
    return router
