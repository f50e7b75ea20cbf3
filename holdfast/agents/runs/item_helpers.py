"""ItemHelpers: functions that read and make items, as in the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.agents.items.raw_items import dumped, member, plain
from holdfast.agents.items.run_items import MessageOutputItem, RunItem
from holdfast.values.base import Json

RunInput = str | Sequence[dict[str, Json]]


class ItemHelpers:
    """Functions that read and make items, as in the Agents SDK.

    They take items as dicts and as objects of `openai.types.responses`.
    """

    @classmethod
    def extract_last_content(cls, message: Any) -> str:
        """Return the text or the refusal of a message's last part; empty when there is none."""
        last = _parts(message)[-1:]
        return _joined(last, "output_text", "text") or _joined(last, "refusal", "refusal")

    @classmethod
    def extract_text(cls, message: Any) -> str | None:
        """Return the text of a message, without refusals; None when there is none."""
        return _joined(_parts(message), "output_text", "text") or None

    @classmethod
    def extract_refusal(cls, message: Any) -> str | None:
        """Return the refusal of a message; None when there is none."""
        return _joined(_parts(message), "refusal", "refusal") or None

    @classmethod
    def tool_call_output_item(
        cls, tool_call: Any, output: str | list[dict[str, Json]]
    ) -> dict[str, Json]:
        """Make the item that answers a call.

        Args:
            tool_call: The call, as `raw_item` of its item has it.
            output: The result for the model: a text, or parts in the form of the Responses API.
        """
        call_id = member(tool_call, "call_id")
        return {"type": "function_call_output", "call_id": call_id, "output": output}

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
    def text_message_outputs(cls, items: Sequence[RunItem]) -> str:
        """Return the texts of all messages of models among items, joined."""
        messages = (item for item in items if isinstance(item, MessageOutputItem))
        return "".join(map(cls.text_message_output, messages))

    @classmethod
    def input_to_new_input_list(cls, input: RunInput) -> list[dict[str, Json]]:
        """Return an input as a new list of items that `json.dumps` takes."""
        if isinstance(input, str):
            return [{"role": "user", "content": input}]
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
