"""Cut a finished body into the server-sent events that a streaming request gets.

Pure. The deltas joined give exactly the body, so a test passes either with both or with neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from holdfast.testing.fake_api.requests import FakeRequest
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array

PIECE = 8
"""Characters of a delta, unless a reply has its own."""


def stream_events(body: dict[str, Json], request: FakeRequest, *, piece: int = PIECE) -> list[str]:
    """Write a finished body as the events of the request's endpoint.

    Args:
        body: The body.
        request: The request that it answers.
        piece: Characters of a delta.
    """
    if request.dialect is not None:
        told = request.dialect.events(body, piece)
        return [_event(event, name=as_text(event.get("type"))) for event in told]
    if request.endpoint == "responses":
        return [
            _event({**event, "sequence_number": number}, name=event["type"])
            for number, event in enumerate(_response_events(body, piece))
        ]
    options = as_object(request.body.get("stream_options"))
    has_usage = options.get("include_usage") is True
    chunks = _completion_chunks(body, piece, has_usage=has_usage)
    return [*map(_event, chunks), "data: [DONE]\n\n"]


def _event(data: dict[str, Json], name: str = "") -> str:
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _response_events(body: dict[str, Json], size: int) -> Iterator[dict[str, Json]]:
    begun = {**body, "status": "in_progress", "output": list[Json](), "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output: Json = body.get("output")
    for index, item in enumerate(output if is_array(output) else []):
        yield from _item_events(item, index, size)
    yield {"type": f"response.{body.get('status', 'completed')}", "response": body}


def _item_events(item: dict[str, Json], index: int, size: int) -> Iterator[dict[str, Json]]:
    place = {"item_id": item.get("id", ""), "output_index": index}
    kind = item.get("type")
    empty: dict[str, Json] = {
        "content": [],
        "arguments": "",
        "summary": [],
        "status": "in_progress",
    }
    # Arguments of a search are an object, which comes whole.
    pieces = [key for key in empty if key in item and isinstance(item[key], type(empty[key]))]
    begun = {**item, **{key: empty[key] for key in pieces}}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    if kind == "message":
        for number, part in enumerate(item["content"]):
            yield from _part_events(part, {**place, "content_index": number}, size)
    elif kind == "reasoning":
        yield from _summary_events(item, place, size)
    elif kind == "function_call":
        name = "response.function_call_arguments"
        for piece in _pieces(item["arguments"], size):
            yield {"type": f"{name}.delta", **place, "delta": piece}
        yield {"type": f"{name}.done", **place, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _summary_events(
    item: dict[str, Json], place: dict[str, Json], size: int
) -> Iterator[dict[str, Json]]:
    name = "response.reasoning_summary"
    for number, part in enumerate(item["summary"]):
        at = {**place, "summary_index": number}
        yield {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
        for piece in _pieces(part["text"], size):
            yield {"type": f"{name}_text.delta", **at, "delta": piece}
        yield {"type": f"{name}_text.done", **at, "text": part["text"]}
        yield {"type": f"{name}_part.done", **at, "part": part}


def _part_events(
    part: dict[str, Json], place: dict[str, Json], size: int
) -> Iterator[dict[str, Json]]:
    is_refusal = part.get("type") == "refusal"
    key, name = ("refusal", "refusal") if is_refusal else ("text", "output_text")
    more: dict[str, Json] = {} if is_refusal else {"logprobs": []}
    yield {"type": "response.content_part.added", **place, "part": {**part, key: ""}}
    for piece in _pieces(as_text(part.get(key)), size):
        yield {"type": f"response.{name}.delta", **place, "delta": piece, **more}
    yield {"type": f"response.{name}.done", **place, key: part.get(key), **more}
    yield {"type": "response.content_part.done", **place, "part": part}


def _completion_chunks(
    body: dict[str, Json], size: int, *, has_usage: bool
) -> Iterator[dict[str, Json]]:
    head = {key: body.get(key) for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    # If usage is requested, the API sends it in a chunk of its own and null in all others.
    usage: dict[str, Json] = {"usage": None} if has_usage else {}
    for choice in body.get("choices", []):
        message = as_object(choice.get("message"))
        deltas = [{"role": "assistant"}, *_message_deltas(message, size)]
        for delta in deltas:
            part = {"index": choice["index"], "delta": delta, "finish_reason": None}
            yield {**head, **usage, "choices": [part]}
        end: dict[str, Json] = {
            "index": choice["index"],
            "delta": {},
            "finish_reason": choice["finish_reason"],
        }
        yield {**head, **usage, "choices": [end]}
    if has_usage:
        yield {**head, "choices": [], "usage": body.get("usage")}


def _message_deltas(message: dict[str, Json], size: int) -> Iterator[dict[str, Json]]:
    for key in ("reasoning_content", "content", "refusal"):
        for piece in _pieces(as_text(message.get(key)), size):
            yield {key: piece}
    calls: Json = message.get("tool_calls")
    for index, call in enumerate(calls if is_array(calls) else []):
        function = call["function"]
        start = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": index, "function": start}]}
        for piece in _pieces(function["arguments"], size):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def is_delta(event: str) -> bool:
    """Whether an event carries a piece of the answer."""
    data: object = json.loads(event.partition("data: ")[2]) if "[DONE]" not in event else None
    event_data = as_object(data)
    if as_text(event_data.get("type")).endswith((".delta", "block_delta")):
        return True
    if "candidates" in event_data and "usageMetadata" not in event_data:
        return True
    choices: Json = event_data.get("choices")
    return any(as_object(each["delta"]).keys() - {"role"} for each in as_array(choices))
