"""Models that change what another model reads or answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from holdfast.models.base import ModelAnswer, ModelRequest, Tell, streamed
from holdfast.models.libraries.llama_index import as_model
from holdfast.models.resolve import resolve_model
from holdfast.values.messages import Message, ToolCall
from holdfast.values.text.logs import log

CallParser = Callable[[Any], Mapping[str, Any]]
"""Returns the arguments of a call of OpenAI's API, or raises one of UNREADABLE."""

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)
"""What a parser raises for a text that it does not expect; that of a search without a find, too."""


class PrefixedModel:
    """A model that reads some messages before each conversation, as examples for it.

    Attributes:
        prefix: The messages.
    """

    def __init__(self, model: Any, prefix: Sequence[Message]) -> None:
        """Take a model, its name or None, and the messages."""
        self._model = resolve_model(as_model(model))
        self.prefix = tuple(prefix)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request."""
        return await self._model.respond(self._asked(request))

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request, in pieces if the model can."""
        return await streamed(self._model, self._asked(request), tell)

    def _asked(self, request: ModelRequest) -> ModelRequest:
        return request.model_copy(update={"messages": (*self.prefix, *request.messages)})


class CallParsingModel:
    """A model whose calls are read by a function, for arguments that are no JSON."""

    def __init__(self, model: Any, parser: CallParser) -> None:
        """Take a model, its name or None, and the function."""
        self._model = resolve_model(as_model(model))
        self._parser = parser

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request."""
        return self._read(await self._model.respond(request))

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request, in pieces if the model can."""
        return self._read(await streamed(self._model, request, tell))

    def _read(self, answer: ModelAnswer) -> ModelAnswer:
        calls = tuple(self._call(each) for each in answer.message.calls)
        message = answer.message.model_copy(update={"calls": calls})
        return answer.model_copy(update={"message": message})

    def _call(self, call: ToolCall) -> ToolCall:
        """Write the arguments as JSON; those that cannot be read stay, and the model is told.

        Nothing else knows them: the items of a message leave the arguments of calls out.
        """
        function = SimpleNamespace(name=call.name, arguments=call.arguments)
        try:
            read = self._parser(SimpleNamespace(id=call.id, type="function", function=function))
            arguments = json.dumps(dict(read), ensure_ascii=False)
        except UNREADABLE as error:
            log.warning("tool_call_parser could not read a call of %s: %r", call.name, error)
            return call
        return call.model_copy(update={"arguments": arguments})
