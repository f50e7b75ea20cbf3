"""One call of a tool at a server: its rounds of questions, and repetitions where they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import ValidationError

from holdfast.agents.local.base import UnusableResultError
from holdfast.agents.tools.foreign.servers import QuestionAskedError, ServerTool
from holdfast.errors import MCPConnectionError, OutcomeUnknownError, UserError
from holdfast.mcp.connection import Connection, is_loss, is_unsent, told
from holdfast.mcp.questions import (
    Inquiries,
    Inquiry,
    Pending,
    asked_for,
    is_state_refused,
    urls_of,
)
from holdfast.mcp.results import read_call_result
from holdfast.task.data.calls import Asks
from holdfast.values.base import Json
from holdfast.values.pauses import pause_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, InputRequiredResult

T = TypeVar("T")

MOST_ROUNDS, ROUND_SECONDS = 10, 0.05
"""Rounds of one attempt of a call, each with answers that are known, and the pause before each."""

LEAST_REPEATS = 2
"""How often a call that may be repeated is made again, at least, when its server was lost in it."""


async def called(
    connection: Connection,
    request: Callable[[Client], Awaitable[T]],
    *,
    ready: Callable[[], Awaitable[Client]],
    what: str,
    repeatable: bool,
    repeats: int,
) -> T:
    """Make a call; after a loss of the connection, make it again if that is safe.

    Args:
        connection: The connection.
        request: Makes the call.
        ready: Returns the client for a call; an error of it says that the call was not made.
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
        client = await ready()
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


@dataclass(frozen=True, kw_only=True)
class ServerCall:
    """One attempt of a task's call, with the answers to questions of the attempts before.

    What a server wanted back is of no use once it was started again: then the call begins from
    nothing, and a question that was answered before gets its answer again.

    Attributes:
        connection: The connection of the server.
        ready: See `called`.
        inquiries: The calls on it that may be asked in their middle.
        tool: The tool.
        arguments: The arguments.
        meta: What is sent next to them.
        answers: Key of a question to its answer.
        resume: What the attempt before has left, see `Pending`.
        repeats: How often the user wants the call repeated; -1 for without end.
        structured: Whether structured content goes instead of the rest.
    """

    connection: Connection
    ready: Callable[[], Awaitable[Client]]
    inquiries: Inquiries
    tool: ServerTool
    arguments: dict[str, Any]
    meta: dict[str, Any] | None
    answers: Mapping[str, Json]
    resume: str
    repeats: int
    structured: bool

    async def result(self) -> CallToolResult:
        """Make the call.

        Raises:
            QuestionAskedError: The server wants to know more.
            UserError: It wants something that is refused, or asks the same again and again.
            Exception: As for `called`.
        """
        from mcp.types import CallToolResult

        pending = Pending.read(self.resume)
        for _ in range(MOST_ROUNDS):
            try:
                found = await self._round(pending)
            except Exception as error:
                if pending is not None and is_state_refused(error):
                    pending = None
                    continue
                asks = urls_of(error)
                if asks is None or self.answers:
                    raise
                raise QuestionAskedError(asks) from error
            if isinstance(found, CallToolResult):
                return found
            pending, asks = asked_for(found)
            if pending.responses(self.answers) is None:
                raise QuestionAskedError(asks)
            await asyncio.sleep(ROUND_SECONDS)
        name = self.connection.name
        msg = f"MCP server {name!r} asks the same again and again. The call was given up."
        raise UserError(msg)

    async def _round(self, pending: Pending | None) -> CallToolResult | InputRequiredResult:
        """Make the request once; again if its server was lost in it and that is safe."""
        from mcp.types import CallToolResult

        responses: Any = (pending.responses(self.answers) or None) if pending else None
        state = pending.state or None if pending else None

        async def request(client: Client) -> CallToolResult | InputRequiredResult:
            inquiry = Inquiry(self.answers)
            async with self.inquiries.during(inquiry):
                session = client.session  # raises when the client was closed in the meantime
                with self._reading():
                    found = await session.call_tool(
                        self.tool.served.name,
                        self.arguments,
                        input_responses=responses,
                        request_state=state,
                        meta=cast("Any", self.meta),
                        allow_input_required=True,
                    )
            if inquiry.asked and isinstance(found, CallToolResult):
                asks = Asks(questions=tuple(inquiry.asked), repeats=True)
                after = read_call_result(found, structured=self.structured)
                raise QuestionAskedError(asks, after.value if found.is_error else after)
            return found

        return await called(
            self.connection,
            request,
            ready=self.ready,
            what=f"tool {self.tool.served.name!r} of MCP server {self.connection.name!r}",
            repeatable=not self.tool.policy().may_have_happened,
            repeats=self.repeats,
        )

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Tell an answer that cannot be used from a call that failed: the tool has run.

        Raises:
            UnusableResultError: The server has answered with what is no result, or with data that
                do not fit what it says of them.
        """
        try:
            yield
        except (ValidationError, RuntimeError) as error:
            if isinstance(error, ValidationError) and error.title == "CallToolRequestParams":
                raise  # nothing was sent
            why = f"MCP server {self.connection.name!r} answered with {_flaw(error)}"
            raise UnusableResultError(self.tool.name, None, why) from error


def _flaw(error: ValidationError | RuntimeError) -> str:
    """Say in a few words what is wrong with an answer."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        return f"what is not the result of a call: {place}: {first['msg']}"
    return f"data that do not fit: {told(error).splitlines()[0]}"
