"""`RunConfig.call_model_input_filter`, which edits the input of each model call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from holdfast.agents.items.run_items import plain
from holdfast.errors import UserError
from holdfast.models.base import ModelRequest
from holdfast.models.openai.items import from_response_items, shown_items
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_text
from holdfast.values.code.user_calls import invoke, naming
from holdfast.values.messages import Message
from holdfast.values.runs.run_context import ContextT

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent


@dataclass
class ModelInputData:
    """The input of a model call.

    Attributes:
        input: The conversation, as items of the Responses API.
        instructions: The system prompt, or None.
    """

    input: list[dict[str, Json]]
    instructions: str | None = None


@dataclass
class CallModelData(Generic[ContextT]):
    """Argument of a `call_model_input_filter`.

    Attributes:
        model_data: The input of the model call.
        agent: The agent whose turn it is.
        context: The run's context object.
    """

    model_data: ModelInputData
    agent: Agent[ContextT]
    context: ContextT | None = None


CallModelInputFilter = Callable[[CallModelData[Any]], ModelInputData | Awaitable[ModelInputData]]
"""Edits the input of a model call: see `RunConfig.call_model_input_filter`."""


async def filtered(
    filter_: CallModelInputFilter, request: ModelRequest, agent: Agent, context: Any
) -> ModelRequest:
    """Return a request with the input that a filter returns.

    Raises:
        UserError: The filter returned something else than a ModelInputData.
        InvalidArgumentError: It returned items that cannot be read.
        Exception: An error that the filter raised.
    """
    items = shown_items(request.messages)
    data = ModelInputData(input=items, instructions=request.instructions or None)
    with naming("call_model_input_filter of the run", filter_):
        edited = await invoke(filter_, CallModelData(data, agent, context))
    if not (hasattr(edited, "input") and hasattr(edited, "instructions")):  # the SDK's own serves
        raise UserError(
            "call_model_input_filter must return a ModelInputData; it returned a"
            f" {type(edited).__name__}."
        )
    messages = from_response_items(once_each(edited.input, shown_items(request.messages)))
    changes = {"messages": messages, "instructions": edited.instructions or ""}
    return request.model_copy(update=changes)


def once_each(items: Sequence[Any], before: Sequence[Any] = ()) -> list[dict[str, Json]]:
    """Leave out items that a filter has repeated, which the Responses API refuses.

    The call id decides, else the id; of messages with one, all that they are. The newest stays, in
    its place; a call or a thought, which must precede others, in that of the oldest. So does the
    Agents SDK (0.22).

    Args:
        items: What the filter returned.
        before: What it was given: what is there more than once may be so, because some
            providers give the calls of each answer the same ids.
    """
    found = [plain(item) for item in items]
    keys = [_key(item) for item in found]
    often = Counter(keys)
    may = Counter(_key(plain(item)) for item in before)
    newest = dict(zip(keys, found, strict=True))
    seen: Counter[str] = Counter()
    kept: list[dict[str, Json]] = []
    for key, item in zip(keys, found, strict=True):
        seen[key] += 1
        most = max(may[key], 1)
        precedes = as_text(item.get("type")) in _PRECEDE
        stays = seen[key] <= most if precedes else seen[key] > often[key] - most
        if not key or stays:
            kept.append(newest[key] if precedes and key and most == 1 else item)
    return kept


_PRECEDE = ("function_call", "reasoning", "custom_tool_call")


def _key(item: dict[str, Json]) -> str:
    """Return what identifies an item; nothing for a message that anybody may write."""
    kind, own, call = item.get("type"), item.get("id"), item.get("call_id")
    if not isinstance(kind, str) or (item.get("role") and not own):
        return ""
    if isinstance(call, str) and call:
        return _text([kind, "call", call])
    if item.get("role"):
        return _text([kind, item])
    return _text([kind, own]) if isinstance(own, str) and own else ""


def _text(data: object) -> str:
    return json.dumps(data, sort_keys=True, default=str)


def without_reasoning_ids(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Remove the ids of reasoning items, for `RunConfig(reasoning_item_id_policy="omit")`."""
    return tuple(
        message.model_copy(update={"items": tuple(map(without_reasoning_id, message.items))})
        if any(item.get("type") == "reasoning" for item in message.items)
        else message
        for message in messages
    )


def without_reasoning_id(item: dict[str, Json]) -> dict[str, Json]:
    """Return an item; one of reasoning without its id."""
    if item.get("type") != "reasoning":
        return item
    return {key: item[key] for key in item if key != "id"}
