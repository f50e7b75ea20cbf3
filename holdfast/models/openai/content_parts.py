"""Parts of the contents of items: how one is read, and those that only the item has. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_object, as_text, is_array
from holdfast.values.messages import Content, Message, Part, TextPart
from holdfast.values.parts.files import file_with
from holdfast.values.parts.in_items import read_image

Item = dict[str, Json]

_OF_FILES = ("file_data", "file_url", "file_id", "filename")

_WITH_PARTS = {
    "message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}
"""Type of an item to the member that may be a list of parts."""


def read_parts(content: Json) -> Content:
    """Read text or parts; parts that our form does not know are left out."""
    if not is_array(content):
        return as_text(content)
    return tuple(part for part in map(read_part, content) if part is not None)


def read_part(part: Item) -> Part | None:
    """Read a part, also in the words of Chat Completions; None for one that is not known."""
    match part.get("type"):
        case "input_text" | "output_text":
            return TextPart(kind="text", text=part["text"])
        case "text":
            text: Json = part.get("text")
            return TextPart(kind="text", text=text) if isinstance(text, str) else None
        case "refusal":
            return TextPart(kind="text", text=part["refusal"])
        case "input_image":
            return read_image(part)
        case "image_url":
            named = as_object(part.get("image_url"))
            return read_image({"image_url": named.get("url"), "detail": named.get("detail")})
        case "input_file":
            data, url, file_id, name = (as_text(part.get(key)) for key in _OF_FILES)
            return file_with(data, url=url, file_id=file_id, filename=name)
        case _:
            return None


def all_parts(message: Message) -> Sequence[Part | Item]:
    """Return the parts of a content in order, with those that only its item has, such as sound.

    For who writes messages without their items: what it does not know must not get lost unsaid.
    """
    content = message.content
    if not isinstance(content, tuple):
        return ()
    for item in message.items:
        kind = str(item.get("type") or "message")
        given: Json = item.get(_WITH_PARTS.get(kind, ""))
        if not is_array(given):
            continue
        is_known = [read_part(part) is not None for part in given]
        if is_known.count(True) == len(content):
            known = iter(content)
            pairs = zip(given, is_known, strict=True)
            return [next(known) if is_read else part for part, is_read in pairs]
    return content
