"""Anthropic's Messages API: requests read, answers written, and what it refuses.

Pure. Source: the API reference of `POST /v1/messages`.
"""

import json
import re
from collections.abc import Callable, Iterator

from holdfast.models.base import ToolSpec
from holdfast.testing.fake_api.replies import Answer, CallSpec, Refusal
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array, is_object
from holdfast.values.messages import ImagePart, Message, Part, TextPart, ToolCall, Usage
from holdfast.values.parts.images import part_at

SIGNATURE = "signature-of-the-fake"
"""What the fake signs its reasoning with, and wants back unchanged."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_Found = tuple[str, str]


name = "anthropic"
routes = ("/v1/messages",)
request_id = "request-id"


def model_of(path: str, body: dict[str, Json]) -> str:
    """Return the model that a request asks for."""
    return as_text(body.get("model"))


def is_stream(path: str, body: dict[str, Json]) -> bool:
    """Whether a request asks for a stream."""
    return body.get("stream") is True


def read_instructions(body: dict[str, Json]) -> str:
    """Return the system prompt."""
    return _text_of(body.get("system"))


def read_tools(body: dict[str, Json]) -> tuple[ToolSpec, ...]:
    """Return the tools that are offered."""
    return tuple(
        ToolSpec(
            name=as_text(tool.get("name")),
            description=as_text(tool.get("description")),
            parameters=as_object(tool.get("input_schema")),
        )
        for tool in map(as_object, as_array(body.get("tools")))
    )


def read_messages(body: dict[str, Json]) -> tuple[Message, ...]:
    """Return the conversation; each result of a tool is a message of its own."""
    return tuple(
        message
        for given in map(as_object, as_array(body.get("messages")))
        for message in _read_message(given)
    )


def _read_message(given: dict[str, Json]) -> Iterator[Message]:
    content: Json = given.get("content")
    if isinstance(content, str):
        yield Message(
            role="assistant" if given.get("role") == "assistant" else "user", content=content
        )
        return
    blocks = [as_object(block) for block in as_array(content)]
    for block in blocks:
        if block.get("type") == "tool_result":
            result = block.get("content")
            parts = [as_object(part) for part in result] if is_array(result) else []
            yield Message(
                role="tool",
                call_id=as_text(block.get("tool_use_id")),
                content=tuple(_parts(parts)) if parts else as_text(result),
            )
    said = tuple(_parts(blocks))
    if given.get("role") == "assistant":
        calls = tuple(
            ToolCall(
                id=as_text(block.get("id")),
                name=as_text(block.get("name")),
                arguments=json.dumps(block.get("input"), ensure_ascii=False),
            )
            for block in blocks
            if block.get("type") == "tool_use"
        )
        yield Message(role="assistant", content=_text_of(content), calls=calls)
    elif said:
        yield Message(role="user", content=said)


def _parts(blocks: list[dict[str, Json]]) -> Iterator[Part]:
    for block in blocks:
        if block.get("type") == "text":
            yield TextPart(kind="text", text=as_text(block.get("text")))
        elif block.get("type") == "image":
            yield _image(as_object(block.get("source")))


def _image(source: dict[str, Json]) -> ImagePart:
    url = as_text(source.get("url"))
    return part_at(url or f"data:{source.get('media_type')};base64,{source.get('data')}", "auto")


def _text_of(content: Json) -> str:
    if not is_array(content):
        return as_text(content)
    return "".join(as_text(as_object(block).get("text")) for block in content)


def render(
    answer: Answer | Refusal, *, model: str, usage: Usage, next_id: Callable[[str], str]
) -> dict[str, Json]:
    """Write an answer as the API's message."""
    content: list[Json] = []
    stop = "refusal" if isinstance(answer, Refusal) else "end_turn"
    if isinstance(answer, Answer):
        if answer.reasoning:
            block = {"type": "thinking", "thinking": answer.reasoning, "signature": SIGNATURE}
            content.append(block)
        if answer.calls:
            stop = "tool_use"
        stop = {"length": "max_tokens", "content_filter": "refusal"}.get(answer.finish, stop)
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    if isinstance(answer, Answer):
        content += [_tool_use(call, next_id) for call in answer.calls]
    return {
        "id": next_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input_tokens - usage.cached_tokens,
            "cache_read_input_tokens": usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage.output_tokens,
        },
    }


def _tool_use(call: CallSpec, next_id: Callable[[str], str]) -> Json:
    arguments = json.loads(call.argument_text)
    name = call.name
    return {
        "type": "tool_use",
        "id": call.id or next_id("toolu_"),
        "name": name,
        "input": arguments,
    }


def events(body: dict[str, Json], piece: int) -> Iterator[dict[str, Json]]:
    """Cut a message into the events of a stream; `piece` is the characters of a delta."""
    usage = as_object(body.get("usage"))
    begun: dict[str, Json] = {
        **body,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, block in enumerate(map(as_object, as_array(body.get("content")))):
        yield from _block_events(block, index, piece)
    told = {"stop_reason": body.get("stop_reason"), "stop_sequence": None}
    yield {
        "type": "message_delta",
        "delta": told,
        "usage": {"output_tokens": usage.get("output_tokens")},
    }
    yield {"type": "message_stop"}


def _block_events(block: dict[str, Json], index: int, piece: int) -> Iterator[dict[str, Json]]:
    kind = as_text(block.get("type"))
    empty: dict[str, dict[str, Json]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
    }
    begun: dict[str, Json] = {**block, **empty.get(kind, {"input": {}})}
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    field, delta = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}.get(
        kind, ("partial_json", "input_json_delta")
    )
    text = as_text(block.get(field)) or json.dumps(block.get("input"), ensure_ascii=False)
    for start in range(0, len(text), piece):
        told = {"type": delta, field: text[start : start + piece]}
        yield {"type": "content_block_delta", "index": index, "delta": told}
    if kind == "thinking":
        told = {"type": "signature_delta", "signature": as_text(block.get("signature"))}
        yield {"type": "content_block_delta", "index": index, "delta": told}
    yield {"type": "content_block_stop", "index": index}


def error(status: int, message: str) -> dict[str, Json]:
    """Write an error."""
    kind = _KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def problems(body: dict[str, Json], model: str) -> Iterator[_Found]:
    """Yield each reason why the API would refuse a request: a field's path and the message."""
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens", "max_tokens: Field required"
    for index, tool in enumerate(map(as_object, as_array(body.get("tools")))):
        if as_object(tool.get("input_schema")).get("type") != "object":
            where = f"tools.{index}.input_schema.type"
            yield where, f"{where}: Field required"
    messages = [as_object(each) for each in as_array(body.get("messages"))]
    if not messages:
        yield "messages", "messages: at least one message is required"
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if message.get("role") not in ("user", "assistant"):
            yield where, f'{where}.role: Unexpected role "{message.get("role")}".'
        content: Json = message.get("content")
        blocks = [as_object(block) for block in as_array(content)]
        if not content:
            yield where, f"{where}: all messages must have non-empty content"
        results = [b.get("tool_use_id") for b in blocks if b.get("type") == "tool_result"]
        if sorted(map(str, results)) != sorted(open_calls):
            yield (
                where,
                (
                    f"{where}: `tool_use` ids were found without `tool_result` blocks immediately"
                    f" after: {open_calls}, or results without them: {results}."
                ),
            )
        for number, block in enumerate(blocks):
            yield from _block_problems(block, f"{where}.content.{number}")
        open_calls = [as_text(b.get("id")) for b in blocks if b.get("type") == "tool_use"]
    if open_calls:
        yield "messages", f"messages: `tool_use` ids without `tool_result`: {open_calls}."


def _block_problems(block: dict[str, Json], where: str) -> Iterator[_Found]:
    match block.get("type"):
        case "text" if not as_text(block.get("text")).strip():
            yield where, f"{where}: text content blocks must contain non-whitespace text"
        case "tool_use" if not _ID.fullmatch(as_text(block.get("id"))):
            yield where, f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        case "tool_use" if not is_object(block.get("input")):
            yield where, f"{where}.tool_use.input: Input should be a valid dictionary"
        case "thinking" if block.get("signature") != SIGNATURE:
            yield where, f"{where}: Invalid `signature` in `thinking` block"
        case "image" if "source" not in block:
            yield where, f"{where}.image.source: Field required"
        case _:
            pass
