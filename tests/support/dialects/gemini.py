"""Gemini's generateContent API: requests read, answers written, and what it refuses.

Pure. Source: the API reference of `models.generateContent`. Fields may be written as in
`inlineData` or as in `inline_data`.
"""

import json
from collections.abc import Callable, Iterator

from holdfast.models.base import ToolSpec
from holdfast.testing.fake_api.replies import Answer, Refusal
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array
from holdfast.values.messages import Message, Part, TextPart, ToolCall, Usage
from holdfast.values.parts.images import part_at

SIGNATURE = "c2lnbmF0dXJlLW9mLXRoZS1mYWtl"
"""Thought signature next to the fake's calls, in base64; models from 3 on want it back."""

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_Found = tuple[str, str]


name = "gemini"
routes = ("/v1/models/{call}", "/v1beta/models/{call}")
request_id = "x-request-id"


def model_of(path: str, body: dict[str, Json]) -> str:
    """Return the model that a path names, as in `/v1beta/models/NAME:generateContent`."""
    return path.rpartition("/")[2].partition(":")[0]


def is_stream(path: str, body: dict[str, Json]) -> bool:
    """Whether a path asks for a stream."""
    return path.endswith(":streamGenerateContent")


def read_instructions(body: dict[str, Json]) -> str:
    """Return the system prompt."""
    return _text_of(as_object(_get(body, "systemInstruction")))


def read_tools(body: dict[str, Json]) -> tuple[ToolSpec, ...]:
    """Return the tools that are offered."""
    return tuple(
        ToolSpec(
            name=as_text(given.get("name")),
            description=as_text(given.get("description")),
            parameters=as_object(_get(given, "parametersJsonSchema") or given.get("parameters")),
        )
        for tool in map(as_object, as_array(body.get("tools")))
        for given in map(as_object, as_array(_get(tool, "functionDeclarations")))
    )


def read_messages(body: dict[str, Json]) -> tuple[Message, ...]:
    """Return the conversation; a call without an id is known by its name."""
    return tuple(
        message
        for given in map(as_object, as_array(body.get("contents")))
        for message in _read_content(given)
    )


def _read_content(given: dict[str, Json]) -> Iterator[Message]:
    parts = _parts_of(given)
    if given.get("role") == "model":
        calls = tuple(
            ToolCall(
                id=as_text(call.get("id")) or as_text(call.get("name")),
                name=as_text(call.get("name")),
                arguments=json.dumps(call.get("args") or {}, ensure_ascii=False),
            )
            for call in (as_object(_get(part, "functionCall")) for part in parts)
            if call
        )
        yield Message(role="assistant", content=_text_of(given), calls=calls)
        return
    for result in (as_object(_get(part, "functionResponse")) for part in parts):
        if result:
            call_id = as_text(result.get("id")) or as_text(result.get("name"))
            text = json.dumps(result.get("response"), ensure_ascii=False)
            yield Message(role="tool", call_id=call_id, content=text)
    said = tuple(_read_parts(parts))
    if said:
        yield Message(role="user", content=said)


def _read_parts(parts: list[dict[str, Json]]) -> Iterator[Part]:
    for part in parts:
        data, file = as_object(_get(part, "inlineData")), as_object(_get(part, "fileData"))
        if "text" in part:
            yield TextPart(kind="text", text=as_text(part.get("text")))
        elif data:
            # Bytes may be written in either alphabet of Base64.
            encoded = as_text(data.get("data")).replace("-", "+").replace("_", "/")
            yield part_at(f"data:{_get(data, 'mimeType')};base64,{encoded}", "auto")
        elif file:
            yield part_at(as_text(_get(file, "fileUri")), "auto")


def render(
    answer: Answer | Refusal, *, model: str, usage: Usage, next_id: Callable[[str], str]
) -> dict[str, Json]:
    """Write an answer as the API's response."""
    parts: list[Json] = []
    finish = "SAFETY" if isinstance(answer, Refusal) else "STOP"
    if isinstance(answer, Answer):
        if answer.reasoning:
            parts.append({"text": answer.reasoning, "thought": True})
        finish = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(answer.finish, finish)
    if answer.text:
        parts.append({"text": answer.text})
    for place, call in enumerate(answer.calls if isinstance(answer, Answer) else ()):
        signed = {} if place else {"thoughtSignature": SIGNATURE}
        args = json.loads(call.argument_text)
        parts.append({"functionCall": {"name": call.name, "args": args}, **signed})
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": finish, "index": 0}],
        "usageMetadata": {
            "promptTokenCount": usage.input_tokens,
            "cachedContentTokenCount": usage.cached_tokens,
            "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
            "thoughtsTokenCount": usage.reasoning_tokens,
            "totalTokenCount": usage.total_tokens,
        },
        "modelVersion": model,
        "responseId": next_id("response_"),
    }


def events(body: dict[str, Json], piece: int) -> Iterator[dict[str, Json]]:
    """Cut a response into those of a stream; `piece` is the characters of a text."""
    candidate = as_object(next(iter(as_array(body.get("candidates"))), None))
    head = {key: body.get(key) for key in ("modelVersion", "responseId")}
    for part in _parts_of(as_object(candidate.get("content"))):
        text = as_text(part.get("text"))
        pieces = [{**part, "text": text[k : k + piece]} for k in range(0, len(text), piece)]
        for each in pieces or [part]:
            content = {"role": "model", "parts": [each]}
            yield {**head, "candidates": [{"content": content, "index": 0}]}
    end = {**candidate, "content": {"role": "model", "parts": [{"text": ""}]}}
    yield {**head, "candidates": [end], "usageMetadata": body.get("usageMetadata")}


def error(status: int, message: str) -> dict[str, Json]:
    """Write an error."""
    kind = _STATUS.get(status, "INTERNAL")
    return {"error": {"code": status, "message": message, "status": kind}}


def problems(body: dict[str, Json], model: str) -> Iterator[_Found]:
    """Yield each reason why the API would refuse a request: a field's path and the message."""
    contents = [as_object(each) for each in as_array(body.get("contents"))]
    if not contents:
        yield "contents", "* GenerateContentRequest.contents: contents is not specified"
    open_calls: list[str] = []
    for index, content in enumerate(contents):
        where = f"contents[{index}]"
        parts = _parts_of(content)
        if content.get("role") not in ("user", "model", "function", None):
            yield where, "Please use a valid role: user, model."
        if not parts:
            yield (
                where,
                f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.",
            )
        answered = [each for each in (_get(part, "functionResponse") for part in parts) if each]
        names = [as_text(as_object(each).get("name")) for each in answered]
        if sorted(names) != sorted(open_calls):
            yield (
                where,
                (
                    "Please ensure that the number of function response parts is equal to the"
                    f" number of function call parts of the turn: {open_calls}, {names}."
                ),
            )
        asked = [part for part in parts if _get(part, "functionCall")]
        if asked and model.startswith("gemini-3") and not _get(asked[0], "thoughtSignature"):
            yield where, "Function call is missing a thought_signature in functionCall parts."
        calls = [as_object(_get(part, "functionCall")) for part in asked]
        open_calls = [as_text(call.get("name")) for call in calls]


def _parts_of(content: dict[str, Json]) -> list[dict[str, Json]]:
    found: Json = content.get("parts")
    return [as_object(part) for part in (found if is_array(found) else [found])]


def _text_of(content: dict[str, Json]) -> str:
    parts = _parts_of(content)
    return "".join(as_text(part.get("text")) for part in parts if not part.get("thought"))


def _get(given: dict[str, Json], name: str) -> Json:
    """Return a field by its name in either spelling."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return given.get(name, given.get(snake))
