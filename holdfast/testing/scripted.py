"""A model in this process that follows a script, for unit tests and benchmarks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

from holdfast.errors import InvalidArgumentError, ModelRequestError
from holdfast.models.base import ModelAnswer, ModelRequest, Tell
from holdfast.models.draft import deltas_of
from holdfast.values.messages import Message, ToolCall, Usage
from holdfast.values.text.shown import shown

Scripted = str | ToolCall | tuple[ToolCall, ...] | ModelAnswer | Exception
Script = Iterable[Scripted] | Callable[[ModelRequest], Scripted]

PIECE = 8
"""Characters of a delta."""


class ScriptedModel:
    """Answers by a script, in order.

    In the script, a text is a final answer, a ToolCall or a tuple of them is called, an exception
    is raised, a ModelAnswer is returned as it is. A call with an empty id gets "call_1", "call_2",
    ... Each answer without usage of its own costs one request and no tokens.

    Args:
        script: The answers, one entry per call; or a function of the request, for any number of
            calls.
        name: Model name.

    Attributes:
        requests: Every request so far, oldest first.
    """

    serves_hosted = True
    """It stands for models of any kind, those with tools and prompts of their provider included."""

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        """Take the script.

        Raises:
            InvalidArgumentError: It is neither a function nor a list of answers.
        """
        given = cast("object", script)
        if isinstance(given, str) or not (callable(given) or isinstance(given, Iterable)):
            raise InvalidArgumentError(
                f"A script is a list of answers or a function of the request; got {shown(script)}."
            )
        self._name = name
        self._answer = script if callable(script) else None
        self._left = deque[Scripted](() if callable(script) else map(_checked, script))
        self._call_ids = 0
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        """Model name."""
        return self._name

    @property
    def calls(self) -> int:
        """How often the model was called."""
        return len(self.requests)

    @property
    def left(self) -> int:
        """Entries of the script that were not used."""
        return len(self._left)

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Return the next answer.

        Raises:
            ModelRequestError: The script is exhausted. The error is not retried, so that no test
                waits.
            InvalidArgumentError: What the script's function has returned is not an answer.
        """
        self.requests.append(request)
        if self._answer is not None:
            return self._made(_checked(self._answer(request)))
        if not self._left:
            raise ModelRequestError(
                f"The script of model {self._name!r} is exhausted: call {self.calls} has no entry."
            )
        return self._made(self._left.popleft())

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Return the next answer, after sending it in pieces of a few characters.

        Raises:
            ModelRequestError: The script is exhausted.
        """
        answer = await self.respond(request)
        for delta in deltas_of(answer, size=PIECE):
            tell(delta)
            await asyncio.sleep(0)
        return answer

    def _made(self, entry: Scripted) -> ModelAnswer:
        match entry:
            case Exception():
                raise entry
            case ModelAnswer():
                return entry
            case str(text):
                message = Message(role="assistant", content=text)
            case ToolCall():
                message = Message(role="assistant", calls=(self._with_id(entry),))
            case calls:
                message = Message(role="assistant", calls=tuple(map(self._with_id, calls)))
        return ModelAnswer(
            message=message,
            usage=Usage(requests=1),
            model=self._name,
            response_id=f"{self._name}_{self.calls}",
            finish="tool_calls" if message.calls else "stop",
        )

    def _with_id(self, call: ToolCall) -> ToolCall:
        if call.id:
            return call
        self._call_ids += 1
        return call.model_copy(update={"id": f"call_{self._call_ids}"})


def _checked(entry: Scripted) -> Scripted:
    """Return an entry of a script.

    Raises:
        InvalidArgumentError: It is not an answer.
    """
    given = cast("object", entry)
    calls = cast("Iterable[object]", given) if isinstance(given, list | tuple) else (None,)
    is_answer = isinstance(given, str | ToolCall | ModelAnswer | Exception)
    if not is_answer and not all(isinstance(each, ToolCall) for each in calls):
        raise InvalidArgumentError(
            "An answer of a script is a text, a ToolCall or a tuple of them, a ModelAnswer or an"
            f" exception; got {shown(entry)}.",
            remedy="A function that answers is given in place of the list: ScriptedModel(function)."
            " reply(), call() and their like are for FakeOpenAI, which is asked by HTTP.",
        )
    return entry
