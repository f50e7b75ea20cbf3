"""One call of a tool at a server: its rounds of questions, and repetitions where they are safe.

A question of the server in a call (an elicitation) is asked of a person, and answered in a later
attempt. Since its version of 2026 the protocol ends a call that needs an answer with the question,
and the client calls again with the answer: such a call can wait for days. Servers of earlier
versions ask in the middle of the call. They get the reply that no one has answered yet. A person
sees the result of the call. With an answer the call is made again, and the same question gets the
answer at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from pydantic import ValidationError

from holdfast.agents.local.base import UnusableResultError
from holdfast.agents.tools.foreign.servers import QuestionAskedError, ServerTool
from holdfast.errors import MCPConnectionError, OutcomeUnknownError, UserError
from holdfast.mcp.connection import Connection, is_loss, is_unsent, told
from holdfast.mcp.results import read_call_result
from holdfast.task.data.calls import Asks, Question
from holdfast.values.base import Json, canonical, digest, pause_of
from holdfast.values.text.logs import log

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, InputRequiredResult


LONGEST_STATE = 65_536
"""Most characters of what a server wants back with the answers; the task records it."""


def question_of(params: ElicitRequestParams) -> Question:
    """Return a question of a server; its key is made of it, so an equal question has the same."""
    data: dict[str, Any] = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields: dict[str, Json] = data.get("requestedSchema") or {}
    url = str(data.get("url") or "")
    key = digest(canonical([params.message, fields, url]))
    return Question(key=key, message=params.message, fields=fields, url=url)


class Pending(NamedTuple):
    """A call that its server has ended with questions.

    Attributes:
        state: What the server wants back with the answers.
        keys: Key of a question of ours to the server's.
    """

    state: str
    keys: dict[str, str]

    @property
    def text(self) -> str:
        """This, as the task records it."""
        return json.dumps([self.state, self.keys], separators=(",", ":"))

    @staticmethod
    def read(text: str) -> Pending | None:
        """Read what the task has recorded; None when that is nothing."""
        return Pending(*json.loads(text)) if text else None

    def responses(self, answers: Mapping[str, Json]) -> dict[str, ElicitResult] | None:
        """Return the answers as the server wants them; None when one is missing."""
        if not self.keys.keys() <= answers.keys():
            return None
        return {key: answer_of(answers[ours]) for ours, key in self.keys.items()}


def answer_of(given: Json) -> ElicitResult:
    """Return an answer that the task has recorded, as the server gets it."""
    from mcp.types import ElicitResult

    return ElicitResult.model_validate(given)


def asked_for(result: InputRequiredResult) -> tuple[Pending, Asks]:
    """Return the questions with which a server has ended a call, and how it goes on with answers.

    Raises:
        UserError: It wants something else than an answer of a person, or too much must be kept.
    """
    from mcp.types import ElicitRequest

    questions: list[Question] = []
    keys: dict[str, str] = {}
    for key, request in (result.input_requests or {}).items():
        if not isinstance(request, ElicitRequest):
            msg = f"The server asks for {request.method}, which Holdfast refuses: only questions to"
            raise UserError(f"{msg} people are answered. The call was not completed.")
        questions.append(question_of(request.params))
        keys[questions[-1].key] = key
    state = result.request_state or ""
    if len(state) > LONGEST_STATE:
        msg = f"The server wants {len(state)} characters back with the answers to its questions;"
        raise UserError(f"{msg} {LONGEST_STATE} are the most. The call was not completed.")
    pending = Pending(state, keys)
    return pending, Asks(questions=tuple(questions), state=pending.text)


class Inquiry:
    """The questions that one attempt of a call is asked in its middle.

    Attributes:
        asked: Those without an answer.
    """

    def __init__(self, answers: Mapping[str, Json]) -> None:
        """Take the answers that are known."""
        self._answers = answers
        self.asked: list[Question] = []

    def answer(self, params: ElicitRequestParams) -> ElicitResult:
        """Answer a question, or note it and say that no one has answered."""
        question = question_of(params)
        known = self._answers.get(question.key)
        if known is not None:
            return answer_of(known)
        self.asked.append(question)
        return answer_of({"action": "cancel"})


class Inquiries:
    """The calls in progress on a connection; a question in the middle belongs to one of them.

    Attributes:
        one_at_a_time: Whether calls must not overlap, because the server asks in the middle of them
            and the protocol does not say in which.
    """

    def __init__(self) -> None:
        """Begin without calls."""
        self.one_at_a_time = False
        self._lock = asyncio.Lock()
        self._open: list[Inquiry] = []

    @property
    def is_busy(self) -> bool:
        """Whether there is a call."""
        return bool(self._open)

    @asynccontextmanager
    async def during(self, inquiry: Inquiry) -> AsyncGenerator[None]:
        """Take questions for a call while it runs; it may have to wait until no other one runs."""
        async with self._lock if self.one_at_a_time else nullcontext():
            self._open.append(inquiry)
            try:
                yield
            finally:
                self._open.remove(inquiry)

    async def elicited(self, _context: Any, params: ElicitRequestParams) -> ElicitResult:
        """Answer a question that came in the middle of a call."""
        self.one_at_a_time = True
        if len(self._open) != 1:
            log.warning(
                "A server asked %r while %d calls ran, and does not say in which: it gets no"
                " answer now; from now on its calls run one at a time",
                params.message,
                len(self._open),
            )
            return answer_of({"action": "cancel"})
        return self._open[0].answer(params)


def is_state_refused(error: Exception) -> bool:
    """Whether a server does not take back what it wanted back, as after its restart.

    It has not looked at the call then.
    """
    from mcp.shared.exceptions import MCPError

    return isinstance(error, MCPError) and "requestState" in error.message


def urls_of(error: Exception) -> Asks | None:
    """Return the pages that a person must open before a call, if an error says that; else None."""
    from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
    from mcp.types import URL_ELICITATION_REQUIRED

    if not isinstance(error, MCPError) or error.code != URL_ELICITATION_REQUIRED:
        return None
    found = UrlElicitationRequiredError.from_error(error.error).elicitations
    questions = tuple(question_of(params) for params in found)
    return Asks(questions=questions) if questions else None


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

    A server that was restarted does not know what it wanted back: then the call begins from
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
            UnusableResultError: The server's answer is not a result, or has data that do not fit
                their description.
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
