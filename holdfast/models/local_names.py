"""Names of the tools that calls without a name are for."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.models.base import ModelAnswer, ToolSpec
from holdfast.models.openai.local_items import SPEC_KINDS
from holdfast.values.messages import ToolCall


def named(answer: ModelAnswer, tools: Sequence[ToolSpec]) -> ModelAnswer:
    """Give calls of a shell or patch tool the name that the agent's tool has."""
    if not any(call.kind for call in answer.message.calls):
        return answer
    names = {SPEC_KINDS.get(str((tool.hosted or {}).get("type")), ""): tool.name for tool in tools}
    calls = tuple(_named(call, names.get(call.kind, "")) for call in answer.message.calls)
    message = answer.message.model_copy(update={"calls": calls})
    return answer.model_copy(update={"message": message})


def _named(call: ToolCall, name: str) -> ToolCall:
    return call.model_copy(update={"name": name}) if call.kind and name else call
