"""One call of a tool at a server: made once, or repeated where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import MCPConnectionError, OutcomeUnknownError
from holdfast.mcp.connection import Connection, is_loss, is_unsent, told
from holdfast.values.pauses import pause_of

if TYPE_CHECKING:
    from mcp import Client

T = TypeVar("T")

LEAST_REPEATS = 2
"""How often a call that may be repeated is made again, at least, when its server was lost in it."""


async def called(
    connection: Connection,
    request: Callable[[Client], Awaitable[T]],
    *,
    what: str,
    repeatable: bool,
    repeats: int,
) -> T:
    """Make a call; after a loss of the connection, make it again if that is safe.

    Args:
        connection: The connection.
        request: Makes the call.
        what: What is called, for a person.
        repeatable: Whether two calls do no harm.
        repeats: How often the user wants it repeated; -1 for without end.

    Raises:
        OutcomeUnknownError: The connection was lost, and the call is not repeatable.
        MCPConnectionError: It was lost again and again.
        Exception: What the server answered.
    """
    most = max(repeats, LEAST_REPEATS)
    lost = 0
    while True:
        client = await connection.client()
        try:
            answer = await request(client)
        except Exception as error:
            if not is_loss(error):
                raise
            connection.lost(client)
            lost += 1
            if not repeatable and not is_unsent(error):
                msg = f"The connection was lost while {what} ran: {told(error)}."
                raise OutcomeUnknownError(msg) from error
            if repeats != -1 and lost > most:
                msg = f"The connection was lost {lost} times while {what} ran: {told(error)}."
                raise MCPConnectionError(msg) from error
            await asyncio.sleep(pause_of(lost - 1, *connection.pauses) if lost > 1 else 0)
        else:
            connection.works()
            return answer
