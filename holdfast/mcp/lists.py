"""Lists of a server: all their pages, and errors that name the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

from holdfast.errors import HoldfastError, InvalidArgumentError, UserError, WrongTypeError
from holdfast.mcp.connection import told
from holdfast.values.text.shown import shown

MOST_PAGES = 1000
"""Pages of a list after which a server is taken to list without end."""


class Page(Protocol):
    """A page of a list."""

    @property
    def next_cursor(self) -> str | None:
        """Where the next page begins; none, and for some servers empty, after the last one."""
        ...


PageT = TypeVar("PageT", bound=Page)


async def pages(
    ask: Callable[[str | None], Awaitable[PageT]], what: str, most: int | None = None
) -> AsyncIterator[PageT]:
    """Yield the pages of a list.

    Args:
        ask: Returns the page that begins at a cursor.
        what: Who lists what, for the error.
        most: Most pages that the list may have; None for MOST_PAGES.

    Raises:
        UserError: There are more, or there is no end to them.
        Exception: What `ask` raises.
    """
    cursor: str | None = None
    for _ in range(most or MOST_PAGES):
        page = await ask(cursor)
        yield page
        cursor = page.next_cursor
        if not cursor:
            return
    if most is None:
        raise UserError(f"{what} without end.")
    msg = f"{what} on more pages: it has exceeded max_list_pages={most}."
    raise UserError(msg, remedy="Increase max_list_pages, or correct the server's list.")


def checked_pages(most: int | None) -> int | None:
    """Return a limit of pages.

    Raises:
        WrongTypeError: It is neither a whole number nor None.
        InvalidArgumentError: It is below 1.
    """
    if most is None:
        return None
    if isinstance(most, bool) or not isinstance(cast("object", most), int):
        msg = f"max_list_pages must be a positive integer or None; it was {shown(most)}."
        raise WrongTypeError(msg)
    if most < 1:
        msg = f"max_list_pages must be a positive integer or None; it was {most}."
        raise InvalidArgumentError(msg)
    return most


@contextmanager
def listing(server: str) -> Generator[None]:
    """Name the server in what it answers instead of a list, or in a list that cannot be read.

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
