"""Messages in the form of the Chat Completions API.

Pure. What a server adds to its messages and wants back (a signature next to a tool call, the
reasoning of a turn with tool calls) is kept in `Message.items` as `chat.call` and `chat.message`;
items of the Responses API have no place here and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.item_contents import all_parts, written_content
from holdfast.models.openai.local_items import shell_text, shell_told
from holdfast.values.base import Json
from holdfast.values.messages import (
    Blob,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCall,
)
from holdfast.values.parts.images import address, file_data
from holdfast.values.text.shown import shown

ChatMessage = dict[str, Json]
KEPT_OF_CALL = "chat.call"
KEPT_OF_MESSAGE = "chat.message"


def chat_message(message: Message) -> tuple[ChatMessage]:
    """Write a message for Chat Completions.

    Tool messages hold text only there, so the images and files of tool results follow in a user
    message of their own, after all results of the turn: see `result_files`.

    Raises:
        InvalidArgumentError: A content is a reference to the archive.
    """
    match message.role:
        case "system" | "user":
            return ({"role": message.role, "content": _given(message)},)
        case "assistant":
            return (_assistant(message),)
        case "tool":
            text = _result_text(message)
            return ({"role": "tool", "tool_call_id": message.call_id, "content": text},)
        case _:
            assert_never(message.role)


def files_message(files: Sequence[ChatMessage]) -> ChatMessage:
    """Write the user message with the images and files of a turn's tool results."""
    return {"role": "user", "content": list(files)}


def result_files(message: Message) -> list[ChatMessage]:
    """Return the parts of a tool result that are images or files.

    Raises:
        InvalidArgumentError: The API does not take one.
    """
    return [_part(part) for part in all_parts(message) if not isinstance(part, TextPart)]


def _assistant(message: Message) -> ChatMessage:
    written: ChatMessage = {"role": "assistant", "content": written_content(message.content, _part)}
    if message.calls:
        written["content"] = written["content"] or None
        written["tool_calls"] = [
            {
                **_kept(message.items, KEPT_OF_CALL, call),
                "id": call.id,
                "type": "function",
                "function": {"name": call.bare_name, "arguments": _arguments(call)},
            }
            for call in message.calls
        ]
    return {**_kept(message.items, KEPT_OF_MESSAGE), **written}


def _arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON: the text of a custom tool has to be wrapped for that."""
    is_text = call.kind == "custom_tool_call"
    return json.dumps({"input": call.arguments}, ensure_ascii=False) if is_text else call.arguments


def _kept(
    items: Sequence[dict[str, Json]], kind: str, call: ToolCall | None = None
) -> dict[str, Json]:
    """Return what the server added to the message, or to one of its calls."""
    for item in items:
        if item.get("type") == kind and (call is None or item.get("call_id") == call.id):
            return {key: item[key] for key in item if key not in ("type", "call_id")}
    return {}


def _given(message: Message) -> Json:
    """Write what a user or a program said, with parts that only the item has."""
    parts = all_parts(message)
    return [_part(part) for part in parts] if parts else written_content(message.content, _part)


def _part(part: Part | ChatMessage) -> ChatMessage:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart():
            return _image(part)
        case FilePart():
            return _file(part)
        case {"type": "input_audio" | "video_url"}:
            return part
        case {"type": "input_image" | "image_url"}:
            raise InvalidArgumentError(f"An image without an address names no image: {shown(part)}")
        case dict():
            msg = (
                f"The Chat Completions API does not take a part of type {part.get('type')!r}:"
                f" {shown(part)}. Use the Responses API, or leave it out."
            )
            raise InvalidArgumentError(msg)
        case _:
            assert_never(part)


def _image(part: ImagePart) -> ChatMessage:
    if part.file_id:
        msg = (
            f"The image {part.file_id!r} is named by its id at the provider, which the Chat"
            " Completions API does not take. Use the Responses API, or give the image by URL or"
            " by its bytes."
        )
        raise InvalidArgumentError(msg)
    image: dict[str, Json] = {"url": address(part)}
    if part.detail != "auto":  # some compatible servers do not know the field
        # "original" is of the Responses API alone.
        image["detail"] = "high" if part.detail == "original" else part.detail
    return {"type": "image_url", "image_url": image}


def _file(part: FilePart) -> ChatMessage:
    data = file_data(part)
    if not data and not part.file_id:
        how = f"by its address {part.url!r} alone" if part.url else "neither by data nor by an id"
        msg = (
            f"A file is named {how}, which the Chat Completions API does not take. Use the"
            " Responses API, or give the file by its data or its id at the provider."
        )
        raise InvalidArgumentError(msg)
    file: dict[str, Json] = {"file_data": data} if data else {"file_id": part.file_id}
    if part.filename:
        file["filename"] = part.filename
    return {"type": "file", "file": file}


def _result_text(message: Message) -> str:
    """Return a tool result's text; one of images alone says where they are."""
    if isinstance(message.content, Blob):
        written_content(message.content, _part)
    if message.text or not result_files(message):
        is_shell = any(item.get("type") == "shell_call_output" for item in message.items)
        told = shell_told(message.text) if is_shell else {}
        return shell_text(told) if told else message.text
    what = "image" if message.images else "file"
    return f"The result is the {what} in the next user message."
