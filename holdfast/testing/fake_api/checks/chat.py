"""What Chat Completions refuses in a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, as_text, is_array
from holdfast.values.messages import Detail
from holdfast.values.parts.images import MEDIA_TYPES, read_data_url, sniff

# Checks of images for both endpoints, with the API's messages.


def image_problem(url: Json, detail: Json, where: str) -> str:
    """Return why the API would refuse an image, or empty.

    Args:
        url: Its address.
        detail: The detail level; None when it is not given.
        where: Path of the parameter that holds the address.
    """
    if detail is not None and detail not in get_args(Detail):
        return f"Invalid value: {detail!r}. Supported values are: {get_args(Detail)}."
    if not isinstance(url, str):
        return f"Missing required parameter: '{where}'."
    if url[:5].lower() != "data:":
        is_web = url[:8].lower() == "https://" or url[:7].lower() == "http://"
        return "" if is_web else f"Invalid '{where}'. Expected a valid URL, but got {url[:60]!r}."
    try:
        media_type, data = read_data_url(url)
    except InvalidArgumentError:
        return f"Invalid '{where}'. Expected a base64-encoded data URL with an image MIME type."
    if media_type not in MEDIA_TYPES or not sniff(data):
        return (
            "You uploaded an unsupported image. The image must have one of these"
            f" formats: {list(MEDIA_TYPES)}."
        )
    return ""


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PARTS = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
}
_Found = tuple[str, str]


def check_chat_messages(messages: Json) -> Iterator[_Found]:
    """Yield each problem as the parameter's path and the API's message."""
    if not is_array(messages) or not messages:
        yield "messages", "Invalid 'messages': expected an array with at least one message."
        return
    open_calls: list[str] = []
    used: set[str] = set()
    for index, given in enumerate(messages):
        where = f"messages[{index}]"
        message = as_object(given)
        role: Json = message.get("role")
        if role not in _ROLES:
            yield f"{where}.role", f"Invalid value: {role!r}. Supported values are: {_ROLES}."
        if role == "tool":
            yield from _check_result(message, where, open_calls)
            continue
        if open_calls:
            yield "messages", _unanswered(open_calls)
            return
        yield from _check_content(message, where)
        if role == "assistant" and message.get("tool_calls") is not None:
            open_calls = []
            yield from _check_calls(message["tool_calls"], where, open_calls)
            for call_id in open_calls:
                if call_id in used:
                    yield f"{where}.tool_calls", f"Duplicate value for 'tool_call_id': {call_id}."
                used.add(call_id)
    if open_calls:
        yield "messages", _unanswered(open_calls)


def _check_result(message: dict[str, Json], where: str, open_calls: list[str]) -> Iterator[_Found]:
    call_id = as_text(message.get("tool_call_id"))
    if call_id in open_calls:
        open_calls.remove(call_id)
    else:
        problem = (
            "Invalid parameter: messages with role 'tool' must be a response to a preceding message"
            f" with 'tool_calls' (tool_call_id {call_id!r})."
        )
        yield f"{where}.role", problem
    content: Json = message.get("content")
    parts = content if is_array(content) else []
    if not isinstance(content, str | list) or any(
        as_object(part).get("type") != "text" for part in parts
    ):
        yield f"{where}.content", "Invalid content of a tool message: expected text."


def _check_content(message: dict[str, Json], where: str) -> Iterator[_Found]:
    content: Json = message.get("content")
    if content is None and message.get("role") == "assistant" and message.get("tool_calls"):
        return
    if not isinstance(content, str | list):
        yield (
            f"{where}.content",
            f"Invalid value for 'content': expected a string, got {content!r}.",
        )
    allowed = _PARTS.get(as_text(message.get("role")), ("text",))
    yield from _check_parts(message.get("content"), allowed, f"{where}.content")


def _check_parts(content: Json, allowed: Sequence[str], where: str) -> Iterator[_Found]:
    for number, given in enumerate(content if is_array(content) else list[Json]()):
        part, place = as_object(given), f"{where}[{number}]"
        kind: Json = part.get("type")
        if kind not in allowed:
            yield f"{place}.type", f"Invalid value: {kind!r}. Supported values are: {allowed}."
        elif kind == "text" and not isinstance(part.get("text"), str):
            yield f"{place}.text", f"Missing required parameter: '{place}.text'."
        elif kind == "image_url":
            image = as_object(part.get("image_url"))
            problem = image_problem(image.get("url"), image.get("detail"), f"{place}.image_url.url")
            if problem:
                yield f"{place}.image_url", problem


def _check_calls(calls: Json, where: str, open_calls: list[str]) -> Iterator[_Found]:
    if not is_array(calls) or not calls:
        yield f"{where}.tool_calls", "Invalid 'tool_calls': empty array."
        return
    for number, given in enumerate(calls):
        call = as_object(given)
        place = f"{where}.tool_calls[{number}]"
        function = as_object(call.get("function"))
        if call.get("type") != "function" or not as_text(function.get("name")):
            yield place, f"Missing required parameter: '{place}.function'."
        if not isinstance(function.get("arguments"), str):
            yield f"{place}.function.arguments", "Invalid type: expected a string."
        call_id = as_text(call.get("id"))
        if not call_id:
            yield f"{place}.id", f"Missing required parameter: '{place}.id'."
        if call_id in open_calls:
            yield f"{place}.id", f"Duplicate value for 'tool_call_id': {call_id}."
        open_calls.append(call_id)


def _unanswered(open_calls: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to"
        " each 'tool_call_id'. The following tool_call_ids did not have response messages:"
        f" {', '.join(open_calls)}"
    )
