"""Names of the tools that calls without a name are for."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.models.base import ModelAnswer, ToolSpec
from holdfast.models.openai.local_items import SPEC_KINDS
from holdfast.values.messages import ToolCall


def named(answer: ModelAnswer, tools: Sequence[ToolSpec]) -> ModelAnswer:
    """Give calls the names that the agent's tools have.

    A shell or patch tool is called without one. Some models write `functions.pay` for `pay`.
    """
    known = {tool.name for tool in tools}
    if all(not call.kind and call.name in known for call in answer.message.calls):
        return answer
    names = {SPEC_KINDS.get(str((tool.hosted or {}).get("type")), ""): tool.name for tool in tools}
    calls = tuple(_named(call, names, known) for call in answer.message.calls)
    message = answer.message.model_copy(update={"calls": calls})
    return answer.model_copy(update={"message": message})


def _named(call: ToolCall, names: dict[str, str], known: set[str]) -> ToolCall:
    if call.kind:
        name = names.get(call.kind, "")
    else:
        meant = call.name.strip().removeprefix("functions.")
        name = "" if call.namespace or call.name in known or meant not in known else meant
    return call.model_copy(update={"name": name}) if name else call
