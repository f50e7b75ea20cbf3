"""Cut a finished body into the server-sent events that a streaming request gets.

Pure. The deltas put together give exactly the body, so a test that passes with one passes with the
other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import assert_never

from holdfast.models.shapes import as_object, as_text, is_array
from holdfast.testing.requests import FakeRequest
from holdfast.values import Json

_PIECE = 8


def stream_events(body: dict[str, Json], request: FakeRequest) -> list[str]:
    """Write a finished body as the events of the request's endpoint."""
    match request.endpoint:
        case "responses":
            return [
                _event({**event, "sequence_number": number}, name=event["type"])
                for number, event in enumerate(_response_events(body))
            ]
        case "chat":
            options = as_object(request.body.get("stream_options"))
            chunks = _completion_chunks(body, has_usage=options.get("include_usage") is True)
            return [*map(_event, chunks), "data: [DONE]\n\n"]
        case _:
            assert_never(request.endpoint)


def _event(data: dict[str, Json], name: str = "") -> str:
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _response_events(body: dict[str, Json]) -> Iterator[dict[str, Json]]:
    begun = {**body, "status": "in_progress", "output": list[Json](), "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output: Json = body.get("output")
    for index, item in enumerate(output if is_array(output) else []):
        yield from _item_events(item, index)
    yield {"type": f"response.{body.get('status', 'completed')}", "response": body}


def _item_events(item: dict[str, Json], index: int) -> Iterator[dict[str, Json]]:
    place = {"item_id": item.get("id", ""), "output_index": index}
    kind = item.get("type")
    empty: dict[str, Json] = {"content": [], "arguments": "", "status": "in_progress"}
    begun = {key: empty.get(key, item[key]) for key in item}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    if kind == "message":
        for number, part in enumerate(item["content"]):
            yield from _part_events(part, {**place, "content_index": number})
    elif kind == "function_call":
        name = "response.function_call_arguments"
        for piece in _pieces(item["arguments"]):
            yield {"type": f"{name}.delta", **place, "delta": piece}
        yield {"type": f"{name}.done", **place, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(part: dict[str, Json], place: dict[str, Json]) -> Iterator[dict[str, Json]]:
    is_refusal = part.get("type") == "refusal"
    key, name = ("refusal", "refusal") if is_refusal else ("text", "output_text")
    more: dict[str, Json] = {} if is_refusal else {"logprobs": []}
    yield {"type": "response.content_part.added", **place, "part": {**part, key: ""}}
    for piece in _pieces(as_text(part.get(key))):
        yield {"type": f"response.{name}.delta", **place, "delta": piece, **more}
    yield {"type": f"response.{name}.done", **place, key: part.get(key), **more}
    yield {"type": "response.content_part.done", **place, "part": part}


def _completion_chunks(body: dict[str, Json], *, has_usage: bool) -> Iterator[dict[str, Json]]:
    head = {key: body.get(key) for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    # With usage asked for, the API sends it in a chunk of its own and null in all others.
    usage: dict[str, Json] = {"usage": None} if has_usage else {}
    for choice in body.get("choices", []):
        message = as_object(choice.get("message"))
        deltas = [{"role": "assistant"}, *_message_deltas(message)]
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


def _message_deltas(message: dict[str, Json]) -> Iterator[dict[str, Json]]:
    for key in ("content", "refusal"):
        for piece in _pieces(as_text(message.get(key))):
            yield {key: piece}
    calls: Json = message.get("tool_calls")
    for index, call in enumerate(calls if is_array(calls) else []):
        function = call["function"]
        start = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": index, "function": start}]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
