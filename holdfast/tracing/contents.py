"""Messages and tools as JSON texts, by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.models.base import ModelAnswer, ToolSpec
from holdfast.values.base import Json, as_text
from holdfast.values.checks.gate import data_of
from holdfast.values.messages import FilePart, ImagePart, Message, TextPart, shown
from holdfast.values.parts.images import address


def input_messages(messages: Iterable[Message]) -> str:
    """Write messages as `gen_ai.input.messages`."""
    return as_text([_message(message) for message in messages])


def output_messages(answer: ModelAnswer) -> str:
    """Write an answer as `gen_ai.output.messages`."""
    message = _message(answer.message)
    if answer.refusal:
        message["parts"].append({"type": "refusal", "content": answer.refusal})
    return as_text([message | {"finish_reason": finish_reason(answer)}])


def finish_reason(answer: ModelAnswer) -> str:
    """Return the finish reason under its name in the conventions."""
    return "tool_call" if answer.finish == "tool_calls" else answer.finish


def instructions(text: str) -> str:
    """Write a system prompt as `gen_ai.system_instructions`."""
    return as_text([_text(text)])


def definitions(tools: Iterable[ToolSpec]) -> str:
    """Write tools as `gen_ai.tool.definitions`."""
    return as_text(
        [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }
            for tool in tools
        ]
    )


def said_by(role: str, text: str) -> str:
    """Write one text as a list of messages."""
    return as_text([{"role": role, "parts": [_text(text)]}])


def _message(message: Message) -> dict[str, Json]:
    if message.role == "tool":
        part = {
            "type": "tool_call_response",
            "id": message.call_id,
            "response": shown(message.content),
        }
        return {"role": "tool", "parts": [part]}
    return {"role": message.role, "parts": [*_contents(message), *_calls(message)]}


def _contents(message: Message) -> list[Json]:
    content = message.content
    if not isinstance(content, tuple):
        text = shown(content)
        return [_text(text)] if text else []
    return [_image(part) if isinstance(part, ImagePart) else _part(part) for part in content]


def _part(part: TextPart | FilePart) -> Json:
    if isinstance(part, FilePart):
        return _text(str(part))
    return _text(part.text if part.stored is None else shown(part.stored))


def _text(text: str) -> Json:
    return {"type": "text", "content": text}


def _image(part: ImagePart) -> Json:
    """Describe an image by its address, without its bytes."""
    if part.stored is None:
        uri = part.url if part.url and part.url[:5] != "data:" else str(part)
        return {"type": "uri", "modality": "image", "uri": uri}
    return {
        "type": "uri",
        "modality": "image",
        "mime_type": part.stored.media_type,
        "uri": address(part),
    }


def _calls(message: Message) -> list[Json]:
    return [
        {
            "type": "tool_call",
            "id": call.id,
            "name": call.name,
            "arguments": data_of(call.arguments),
        }
        for call in message.calls
    ]
