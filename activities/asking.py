"""The model calls of a step: what is sent, who is told of it, and what comes back."""

from __future__ import annotations

from holdfast.activities.agent_code import RegisteredCode
from holdfast.activities.source import Source
from holdfast.activities.spans import answered, model_call
from holdfast.models.base import Model, ModelAnswer, ModelRequest
from holdfast.records import TaskHead
from holdfast.values import Json
from holdfast.wire import AdvanceInput


class Asking:
    """Asks an agent's model in one run of a step."""

    def __init__(
        self,
        model: Model,
        code: RegisteredCode,
        source: Source,
        *,
        head: TaskHead,
        given: AdvanceInput,
        state: dict[str, Json],
    ) -> None:
        """Ask this model; the agent's code has a say in what is sent."""
        self._model = model
        self._code = code
        self._source = source
        self._head = head
        self._given = given
        self._state = state

    async def __call__(self, request: ModelRequest) -> ModelAnswer:
        """Make one model call; only the model gets the bytes of images."""
        sent = await self._code.sent(request, self._state)
        with model_call(self._head, self._given, self._code.agent.name, self._model, sent) as span:
            messages = [await self._source.rehydrate(message) for message in sent.messages]
            answer = await self._respond(sent.model_copy(update={"messages": tuple(messages)}))
            answered(span, answer)
        return answer

    async def _respond(self, request: ModelRequest) -> ModelAnswer:
        return await self._model.respond(request)
