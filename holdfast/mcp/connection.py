"""The connection of an MCP server: opened when it is needed, kept, and opened again after its loss.

All connections of a process live on a loop of their own, whatever loops use them: the program that
made the server, and the worker that runs tasks in the same process.

Its lists are read with all their pages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.agents.tools.foreign.servers import QuestionAskedError
from holdfast.engine.loop import LoopOfProcess, close_at_exit, keep_at_exit
from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    MCPConnectionError,
    UserError,
    WrongTypeError,
)
from holdfast.values.base import pause_of
from holdfast.values.code.extras import needing
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import ToolResultError

if TYPE_CHECKING:
    from mcp import Client


T = TypeVar("T")

CONNECT_SECONDS = 60.0
"""How long a server may take to start and to answer its first request."""

LONGEST_PAUSE = 30.0
"""No pause before another attempt to connect is longer, in seconds, unless the server says so."""

CLOSE_SECONDS = 10.0

_LOST = ("Connection closed", "SSE stream")
"""How the texts of the `mcp` package begin when a connection ended before the answer came; the
code of such an error is also used by servers for errors of their own."""

_TIMED_OUT = "Request "
"""How its text begins when a server has not answered in time."""

_HTTP_ERROR = "Server returned an error response"
"""Text of the `mcp` package for an HTTP status of 400 or above, of the server or a proxy."""

_GARBLED = (
    "Failed to parse JSON response",
    "Failed to parse SSE message",
    "Unexpected content type",
    "server answered a request with 202",
)
"""How its texts begin for an HTTP answer, of server or proxy, that does not fit the request."""

_SESSION_ENDED = "Session terminated"
"""Text of the `mcp` package when a server that was restarted does not know the session. Texts that
begin so are of servers that have ended the session while the request was carried out."""


_loop = LoopOfProcess("holdfast-mcp")


async def on_loop(coro: Coroutine[Any, Any, T]) -> T:
    """Await, from any loop, a coroutine that uses connections."""
    return await _loop.get().wrap(coro)


def needing_mcp() -> AbstractContextManager[None]:
    """Import the `mcp` package in a `with` block.

    Raises:
        ModuleNotFoundError: It is not installed; the text names the extra.
    """
    return needing("mcp", "An MCP server")


class Connection:
    """The connection of one server. Its methods are called on the loop of all connections.

    Attributes:
        name: Name of the server, for messages.
        pauses: The first and the longest pause between attempts, in seconds.
    """

    def __init__(
        self,
        name: str,
        connector: Callable[[], Any],
        options: Callable[[], dict[str, Any]],
        *,
        first_pause: float,
        longest_pause: float | None,
    ) -> None:
        """Describe a connection; it is opened by `client`.

        Args:
            name: See above.
            connector: Makes the transport, as `mcp.Client` takes it.
            options: Makes other arguments of `mcp.Client`.
            first_pause: Seconds before the second attempt to connect in a row.
            longest_pause: The longest such pause; None for the usual one.
        """
        self.name = name
        self._connector = connector
        self._options = options
        self.pauses = (max(first_pause, 0.001), max(longest_pause or LONGEST_PAUSE, 0.001))
        self._lock: asyncio.Lock | None = None
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self._failures = 0
        self._not_before = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that is not known to be lost."""
        return self._client is not None and self._holder is not None and not self._holder.done()

    async def client(self) -> Client:
        """Return the client, connected.

        Raises:
            MCPConnectionError: The server cannot be reached now.
            UserError: It cannot be started as it is described.
        """
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if not self.is_open or self._client is None:
                await self._close()
                await asyncio.sleep(max(self._not_before - time.monotonic(), 0))
                self._client = await self._open()
            return self._client

    def works(self) -> None:
        """Note that the server has answered: the next loss is followed by no pause."""
        self._failures = 0

    def lost(self, client: Client) -> None:
        """Note that a connection is lost; the next use opens another one."""
        if self._client is client:
            self._client = None
            self._count()
            if self._stop is not None:
                self._stop.set()

    def _count(self) -> None:
        """Count a failure: from the second in a row on, the next attempt waits."""
        self._failures += 1
        if self._failures > 1:
            self._not_before = time.monotonic() + pause_of(self._failures - 2, *self.pauses)

    async def _open(self) -> Client:
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        hold = self._hold(ready, self._stop)
        # The transport's tasks must not live in the context of the call that came first.
        self._holder = asyncio.get_running_loop().create_task(hold, context=Context())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                client = await ready
        except TimeoutError:
            await self._close()
            self._count()
            msg = f"MCP server {self.name!r} did not answer within {CONNECT_SECONDS:g} seconds."
            raise MCPConnectionError(msg) from None
        except (Exception, asyncio.CancelledError):
            await self._close()
            self._count()
            raise
        close_at_exit(self.close_from_outside)
        return client

    async def _hold(self, ready: asyncio.Future[Client], stop: asyncio.Event) -> None:
        """Keep a connection open until it is to stop: it must end in the task in which it began."""
        try:
            with needing_mcp():
                from mcp import Client
            async with Client(self._connector(), cache=None, **self._options()) as client:
                if ready.done():
                    return
                ready.set_result(client)
                await stop.wait()
        except asyncio.CancelledError:
            if not ready.done():
                ready.cancel()
        except Exception as error:  # noqa: BLE001  handed to who waits, else logged
            if ready.done():
                log.warning("The connection of MCP server %r ended: %s", self.name, told(error))
                self._client = None if self._stop is stop else self._client
            else:
                ready.set_exception(cannot_connect(self.name, error))

    async def close_from_outside(self) -> None:
        """Close the connection, from any loop."""
        await on_loop(self.close())

    async def close(self) -> None:
        """Close the connection; a server that was started as a process ends."""
        await self._close()
        self._failures, self._not_before = 0, 0.0

    async def _close(self) -> None:
        holder, stop = self._holder, self._stop
        self._client = self._holder = self._stop = None
        keep_at_exit(self.close_from_outside)
        if holder is None or stop is None:
            return
        stop.set()
        done, _ = await asyncio.wait([holder], timeout=CLOSE_SECONDS)
        if not done:
            holder.cancel()
            await asyncio.wait([holder], timeout=CLOSE_SECONDS)


def cannot_connect(name: str, error: Exception) -> Exception:
    """Return the error of a failed attempt to connect: one that may pass with time, or not."""
    found = first_of(error)
    if isinstance(found, ModuleNotFoundError | UserError):
        return found
    if isinstance(found, FileNotFoundError | PermissionError | NotADirectoryError | ValueError):
        msg = f"MCP server {name!r} cannot be started: {told(found)}."
        return UserError(msg, remedy="Correct its params=, or install the program.")
    return MCPConnectionError(f"MCP server {name!r} cannot be reached: {told(found)}.")


def first_of(error: BaseException) -> BaseException:
    """Return the first error in a group of errors that says something."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return first_of(inner[0]) if inner else error


def told(error: BaseException) -> str:
    """Return the text of an error, without secrets; its class, if it has none."""
    found = first_of(error)
    return redact(str(found)).removesuffix(".") or type(found).__name__


def is_loss(error: BaseException) -> bool:
    """Whether an error says that a request was cut off: it may have been carried out."""
    from mcp.shared.exceptions import MCPError

    if isinstance(error, MCPError):
        return error.message.startswith((*_LOST, _HTTP_ERROR, *_GARBLED, _SESSION_ENDED))
    # The package raises RuntimeError for results that do not fit what the server has declared.
    known = (UserError, QuestionAskedError, ToolResultError, ValueError, TypeError, RuntimeError)
    return not isinstance(error, known)


def is_timeout(error: BaseException) -> bool:
    """Whether an error says that a server has not answered in time."""
    from mcp.shared.exceptions import MCPError
    from mcp.types import REQUEST_TIMEOUT

    is_code = isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT
    return is_code and str(error).startswith(_TIMED_OUT)


def is_unsent(error: BaseException) -> bool:
    """Whether an error says that the server has not looked at the request."""
    return str(error) == _SESSION_ENDED


def timed(
    request: Callable[[Client], Awaitable[T]], seconds: float | None, server: str
) -> Callable[[Client], Awaitable[T]]:
    """Limit the time of a request.

    Args:
        request: Makes the request.
        seconds: Its longest time; None for no limit.
        server: Name of the server.
    """

    async def made(client: Client) -> T:
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await request(client)
        except TimeoutError:
            if not clock.expired():
                raise
            msg = f"MCP server {server!r} did not answer within {seconds:g} seconds."
            raise MCPConnectionError(msg) from None

    return made


async def asked(
    connection: Connection, request: Callable[[Client], Awaitable[T]], *, repeats: int
) -> T:
    """Make a request that may be repeated, on a connection that is opened again if it is lost.

    Args:
        connection: The connection.
        request: Makes the request.
        repeats: How often it is repeated after a failure; -1 for without end.

    Raises:
        MCPConnectionError: The server cannot be reached now, or the connection is lost again.
        MCPError: What the server answered.
        Exception: The answer cannot be read.
    """
    failed, lost = 0, 0
    while True:
        client = await connection.client()
        try:
            answer = await request(client)
        except Exception as error:
            failed += 1
            gone = is_loss(error) or is_timeout(error)
            if gone:
                connection.lost(client)
                lost += 1
            if lost > 1 or not gone:  # after one loss it is always made once more
                if repeats != -1 and failed > repeats + (lost > 0):
                    if gone:
                        msg = f"The connection of MCP server {connection.name!r} was lost"
                        raise MCPConnectionError(f"{msg}: {told(error)}.") from error
                    raise
                await asyncio.sleep(pause_of(failed - 1, *connection.pauses))
        else:
            connection.works()
            return answer


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


def checked(**given: Any) -> Any:
    """Return a limit, which is given by its name: a number of seconds, or of pages; None for none.

    Raises:
        WrongTypeError: It has another type.
        InvalidArgumentError: It is too small, or not finite.
    """
    [(name, limit)] = given.items()
    of_time: Any = (int, float), "a number of seconds, at least 0 and finite,", 0
    kind, wanted, least = of_time if "seconds" in name else (int, "a positive integer", 1)
    msg = f"{name} must be {wanted} or None; it was {shown(limit)}."
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, kind)):
        raise WrongTypeError(msg)
    if limit is not None and not least <= limit < inf:
        raise InvalidArgumentError(msg)
    return limit


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
