"""ItemHelpers: functions that read and make items, as in the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

from holdfast.agents.items.run_items import (
    MessageOutputItem,
    RunItem,
    ToolApprovalItem,
    dumped,
    member,
    plain,
)
from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.items import from_response_items
from holdfast.values.base import Json
from holdfast.values.messages import Message

RunInput = str | Sequence[Mapping[str, object]]


class ItemHelpers:
    """Functions that read and make items, as in the Agents SDK.

    They take items as dicts and as objects of `openai.types.responses`.
    """

    @classmethod
    def extract_last_content(cls, message: Any) -> str:
        """Return the text or the refusal of a message's last part; empty without one."""
        last = _parts(message)[-1:]
        return _joined(last, "output_text", "text") or _joined(last, "refusal", "refusal")

    @classmethod
    def extract_text(cls, message: Any) -> str | None:
        """Return the text of a message, without refusals; None without one."""
        return _joined(_parts(message), "output_text", "text") or None

    @classmethod
    def extract_refusal(cls, message: Any) -> str | None:
        """Return the refusal of a message; None without one."""
        return _joined(_parts(message), "refusal", "refusal") or None

    @classmethod
    def tool_call_output_item(cls, tool_call: Any, output: Any) -> dict[str, Json]:
        """Make the item that answers a call.

        Args:
            tool_call: The call, as `raw_item` of its item has it.
            output: The result for the model: a text, parts in the form of the Responses API, or
                ToolOutputText and its like, as objects or dicts. Anything else becomes a text by
                `str()`.
        """
        call_id = member(tool_call, "call_id")
        return {"call_id": call_id, "output": _output(output), "type": "function_call_output"}

    @classmethod
    def extract_last_text(cls, message: Any) -> str | None:
        """Return the text of a message's last part; None when that part is not text."""
        parts = [part for part in _parts(message)[-1:] if part.get("type") == "output_text"]
        return str(parts[0]["text"]) if parts else None

    @classmethod
    def text_message_output(cls, message: MessageOutputItem) -> str:
        """Return the text of a message of a model, without refusals."""
        return cls.extract_text(message.raw_item) or ""

    @classmethod
    def copy_tool_call_caller(cls, tool_call: Any, output_item: dict[str, Any]) -> None:
        """Give the item of a result the `caller` of its call, if that has one: a program's."""
        caller = member(tool_call, "caller")
        if caller is not None:
            output_item["caller"] = plain(caller)

    @classmethod
    def text_message_outputs(cls, items: Sequence[RunItem]) -> str:
        """Return the texts of all messages of models among items, joined."""
        messages = (item for item in items if isinstance(item, MessageOutputItem))
        return "".join(map(cls.text_message_output, messages))

    @classmethod
    def input_to_new_input_list(cls, input: RunInput) -> list[dict[str, Json]]:
        """Return an input as a new list of items that `json.dumps` takes."""
        if isinstance(input, str):
            return [{"content": input, "role": "user"}]
        return [dumped(item) for item in input]


def _joined(parts: list[dict[str, Any]], kind: str, name: str) -> str:
    return "".join(part.get(name) or "" for part in parts if part.get("type") == kind)


def _parts(message: Any) -> list[dict[str, Any]]:
    item = plain(message)
    content: Any = item.get("content") if item.get("role") == "assistant" else None
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    parts: list[Any] = content or []
    return [plain(part) for part in parts]


_FORMS: dict[str, tuple[str, frozenset[str], frozenset[str]]] = {
    "text": ("input_text", frozenset({"text"}), frozenset({"text"})),
    "image": (
        "input_image",
        frozenset({"image_url", "file_id", "detail"}),
        frozenset({"image_url", "file_id"}),
    ),
    "file": (
        "input_file",
        frozenset({"file_data", "file_url", "file_id", "filename"}),
        frozenset({"file_data", "file_url", "file_id"}),
    ),
}
"""For each type of an output: the type of its part, the part's members, and the members that it
needs one of."""


def _output(given: Any) -> Json:
    """Return a result as the API takes it."""
    if isinstance(given, str):
        return given
    several: list[Any] = list(cast("Sequence[Any]", given)) if _is_list(given) else [given]
    parts = [_part(each) for each in several]
    return cast("Json", parts) if parts and None not in parts else str(given)


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _part(given: Any) -> dict[str, Json] | None:
    """Return an output as a part of the Responses API; None if it is not one."""
    if not isinstance(given, Mapping) and not hasattr(given, "model_dump"):
        return None
    fields = {key: value for key, value in plain(given).items() if value is not None}
    if isinstance(given, BaseModel):
        fields.setdefault("type", getattr(given, "type", None))
    kind = fields.get("type")
    if kind in {form[0] for form in _FORMS.values()}:
        return fields
    name, members, needed = _FORMS.get(str(kind), ("", frozenset[str](), frozenset[str]()))
    if not needed & fields.keys() or not all(
        isinstance(fields[each], str) for each in members & fields.keys()
    ):
        return None
    return {"type": name, **{each: fields[each] for each in fields if each in members}}


def is_said_by(item: dict[str, Json], by: RunItem) -> bool:
    """Whether an item of an input says what an item of a run does."""
    said = said_in(item)
    return said is not None and said == said_by(by)


def said_by(item: RunItem) -> list[Message] | None:
    """Return what an item of a run says, as messages; None if it is not in any input alone."""
    return None if isinstance(item, ToolApprovalItem) else said_in(item.to_input_item())


def said_in(item: dict[str, Json]) -> list[Message] | None:
    """Return what an item of an input says, as messages; None if it cannot be read alone."""
    try:
        said = from_response_items([item])
    except InvalidArgumentError:
        return None
    return [each.model_copy(update={"item_ids": ()}) for each in said]  # filters may drop them
