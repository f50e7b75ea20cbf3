"""Elicitation: questions of a server in a call, asked of a person and answered in a later attempt.

Since its version of 2026 the protocol ends a call that needs an answer with the question, and the
client calls again with the answer: such a call can wait for days. Servers of earlier versions ask
in the middle of the call. They are told that no one has answered yet; a person sees what the call
came to, and with an answer it is made again, where the same question gets it at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import UserError
from holdfast.task.data.calls import Asks, Question
from holdfast.values.base import Json, canonical, digest
from holdfast.values.text.logs import log

if TYPE_CHECKING:
    from mcp.types import (
        ElicitRequestParams,
        ElicitResult,
        InputRequiredResult,
    )

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
    """The calls in progress on a connection, one of which a question in the middle belongs to.

    Attributes:
        one_at_a_time: Whether calls must not overlap, because the server asks in the middle of them
            and the protocol does not say in which.
    """

    def __init__(self) -> None:
        """Begin without calls."""
        self.one_at_a_time = False
        self._lock = asyncio.Lock()
        self._open: list[Inquiry] = []

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
                "A server asked %r while %d calls ran, and nobody can tell in which: it is"
                " told that nobody answers; from now on its calls run one at a time",
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
