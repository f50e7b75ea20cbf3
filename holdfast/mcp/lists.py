"""Lists of a server: all their pages, and errors that name the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from holdfast.errors import HoldfastError, UserError
from holdfast.mcp.connection import told

MOST_PAGES = 1000
"""Pages of a list after which a server is taken to list without end."""


class Page(Protocol):
    """A page of a list."""

    @property
    def next_cursor(self) -> str | None:
        """Where the next page begins; none, and for some servers empty, after the last one."""
        ...


PageT = TypeVar("PageT", bound=Page)


async def pages(ask: Callable[[str | None], Awaitable[PageT]], what: str) -> AsyncIterator[PageT]:
    """Yield the pages of a list.

    Args:
        ask: Returns the page that begins at a cursor.
        what: Who lists what, for the error.

    Raises:
        UserError: There is no end to them.
        Exception: What `ask` raises.
    """
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await ask(cursor)
        yield page
        cursor = page.next_cursor
        if not cursor:
            return
    raise UserError(f"{what} without end.")


@contextmanager
def listing(server: str) -> Generator[None]:
    """Name the server in what it answers in the place of a list, or in a list that cannot be read.

    Raises:
        UserError: That answer.
        HoldfastError: As it was raised.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        msg = f"MCP server {server!r} gave no list of tools that can be read: {told(error)}."
        remedy = "Correct the server, or leave it out of mcp_servers: it may have no tools."
        raise UserError(msg, remedy=remedy) from error
