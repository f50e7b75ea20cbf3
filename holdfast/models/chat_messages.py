"""Messages in the form of the Chat Completions API.

Pure. What a server adds to its messages and wants back (a signature beside a tool call, the
reasoning of a turn with tool calls) is kept in `Message.items` as `chat.call` and `chat.message`;
items of the Responses API have no place here and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from holdfast.errors import InvalidArgumentError
from holdfast.files import file_data
from holdfast.images import address
from holdfast.messages import Blob, Content, FilePart, ImagePart, Message, Part, TextPart, ToolCall
from holdfast.values import Json

ChatMessage = dict[str, Json]
KEPT_OF_CALL = "chat.call"
KEPT_OF_MESSAGE = "chat.message"


def to_chat_messages(messages: Iterable[Message]) -> list[ChatMessage]:
    """Write messages for Chat Completions.

    Tool messages hold text only there, so the images and files of tool results follow in one user
    message after all results of the turn.

    Raises:
        InvalidArgumentError: A content is a reference to the archive.
    """
    return list(_written(messages))


def _written(messages: Iterable[Message]) -> Iterator[ChatMessage]:
    images: list[ChatMessage] = []
    for message in messages:
        if message.role != "tool" and images:
            yield {"role": "user", "content": images}
            images = []
        match message.role:
            case "system" | "user":
                yield {"role": message.role, "content": _content(message.content)}
            case "assistant":
                yield _assistant(message)
            case "tool":
                yield {
                    "role": "tool",
                    "tool_call_id": message.call_id,
                    "content": _result_text(message),
                }
                images += _result_files(message)
            case _:
                assert_never(message.role)
    if images:
        yield {"role": "user", "content": images}


def _assistant(message: Message) -> ChatMessage:
    written: ChatMessage = {"role": "assistant", "content": _content(message.content)}
    if message.calls:
        written["content"] = written["content"] or None
        written["tool_calls"] = [
            {
                **_kept(message.items, KEPT_OF_CALL, call),
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    return {**_kept(message.items, KEPT_OF_MESSAGE), **written}


def _kept(
    items: Sequence[dict[str, Json]], kind: str, call: ToolCall | None = None
) -> dict[str, Json]:
    """Return what the server added to the message, or to one of its calls."""
    for item in items:
        if item.get("type") == kind and (call is None or item.get("call_id") == call.id):
            return {key: item[key] for key in item if key not in ("type", "call_id")}
    return {}


def _content(content: Content) -> Json:
    match content:
        case str(text):
            return text
        case Blob():
            raise InvalidArgumentError(
                f"A message's content is still the archive reference {content.sha256!r}. Resolve"
                " references before the messages are sent."
            )
        case parts:
            return [_part(part) for part in parts]


def _part(part: Part) -> ChatMessage:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(file_id=file_id) if file_id:
            msg = (
                f"The image {file_id!r} is named by its id at the provider, which the Chat"
                " Completions API does not take. Use the Responses API, or give the image by URL or"
                " by its bytes."
            )
            raise InvalidArgumentError(msg)
        case ImagePart():
            image: dict[str, Json] = {"url": address(part)}
            if part.detail != "auto":  # some compatible servers do not know the field
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        case FilePart(data="", stored=None, file_id=""):
            msg = (
                f"The file {part.url or part.filename!r} is named by its address, which the Chat"
                " Completions API does not take. Use the Responses API, or give the file by its"
                " data or its id at the provider."
            )
            raise InvalidArgumentError(msg)
        case FilePart():
            data = file_data(part)
            file: dict[str, Json] = {"file_data": data} if data else {"file_id": part.file_id}
            if part.filename:
                file["filename"] = part.filename
            return {"type": "file", "file": file}
        case _:
            assert_never(part)


def _result_text(message: Message) -> str:
    """Return a tool result's text; one of images alone says where they are."""
    if isinstance(message.content, Blob):
        _content(message.content)
    if message.text or not _result_files(message):
        return message.text
    what = "image" if message.images else "file"
    return f"The result is the {what} in the next user message."


def _result_files(message: Message) -> list[ChatMessage]:
    content = message.content if isinstance(message.content, tuple) else ()
    return [_part(part) for part in content if not isinstance(part, TextPart)]
