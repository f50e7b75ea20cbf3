"""What Chat Completions refuses in a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text, is_array
from holdfast.values.messages import Detail
from holdfast.values.parts.images import MEDIA_TYPES, read_data_url, sniff

# What both endpoints refuse.


@dataclass(frozen=True)
class Problem:
    """Why a request is refused.

    Attributes:
        message: The API's words.
        param: The part of the body that is wrong, or None.
        code: The API's error code, or None.
    """

    message: str
    param: str | None = None
    code: str | None = None


def missing(param: str) -> Problem:
    """Say that a part of the body is missing."""
    message = f"Missing required parameter: '{param}'."
    return Problem(message, param, "missing_required_parameter")


def unknown(value: Json, known: object, param: str) -> Problem:
    """Say that a part of the body has a value that it cannot have."""
    message = f"Invalid value: {value!r}. Supported values are: {known}."
    return Problem(message, param, "invalid_value")


def check_text(item: dict[str, Json], key: str, where: str) -> Iterator[Problem]:
    """Check that a member is there, and a text."""
    if key not in item:
        yield missing(f"{where}.{key}")
    elif not isinstance(item[key], str):
        kind = type(item[key]).__name__
        message = f"Invalid type for '{where}.{key}': expected a string, but got {kind} instead."
        yield Problem(message, f"{where}.{key}")


def check_parts(content: Json, allowed: Sequence[str], where: str) -> Iterator[Problem]:
    """Check the parts of a content; a text has none.

    Args:
        content: The content.
        allowed: Types of parts that may be there.
        where: Path of the content.
    """
    for number, part in enumerate(map(as_object, as_array(content))):
        place, kind = f"{where}[{number}]", part.get("type")
        if kind not in allowed:
            yield unknown(kind, allowed, f"{place}.type")
        elif kind in ("text", "input_text"):
            yield from check_text(part, "text", place)
        elif kind == "image_url":
            image = as_object(part.get("image_url"))
            yield from _check_image(image.get("url"), image, f"{place}.image_url.url")
        elif kind == "input_image" and not as_text(part.get("file_id")):
            yield from _check_image(part.get("image_url"), part, f"{place}.image_url")


def _check_image(url: Json, image: dict[str, Json], where: str) -> Iterator[Problem]:
    """Check an image by its address and detail level, as the API does."""
    detail: Json = image.get("detail")
    if detail is not None and detail not in get_args(Detail):
        yield unknown(detail, get_args(Detail), where)
    elif not isinstance(url, str):
        yield missing(where)
    elif not url.lower().startswith("data:"):
        if not url.lower().startswith(("https://", "http://")):
            yield Problem(f"Invalid '{where}'. Expected a valid URL, but got {url[:60]!r}.", where)
    else:
        try:
            media_type, data = read_data_url(url)
        except InvalidArgumentError:
            message = "Expected a base64-encoded data URL with an image MIME type."
            yield Problem(f"Invalid '{where}'. {message}", where)
            return
        if media_type not in MEDIA_TYPES or not sniff(data):
            message = "You uploaded an unsupported image. The image must have one of these formats:"
            yield Problem(f"{message} {list(MEDIA_TYPES)}.", where)


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PARTS = {"user": ("text", "image_url", "input_audio", "file"), "assistant": ("text", "refusal")}


def check_chat_messages(messages: Json) -> Iterator[Problem]:
    """Yield each problem."""
    if not is_array(messages) or not messages:
        reason = "Invalid 'messages': expected an array with at least one message."
        yield Problem(reason, "messages")
        return
    open_calls: list[str] = []
    used: set[str] = set()
    for index, given in enumerate(messages):
        where = f"messages[{index}]"
        message = as_object(given)
        role: Json = message.get("role")
        if role not in _ROLES:
            yield unknown(role, _ROLES, f"{where}.role")
        if role == "tool":
            yield from _check_result(message, where, open_calls)
            continue
        if open_calls:
            yield _unanswered(open_calls)
            return
        yield from _check_content(message, where)
        if role == "assistant" and message.get("tool_calls") is not None:
            open_calls = []
            yield from _check_calls(message["tool_calls"], where, open_calls)
            for call_id in open_calls:
                if call_id in used:
                    yield _repeated(call_id, f"{where}.tool_calls")
                used.add(call_id)
    if open_calls:
        yield _unanswered(open_calls)


def _check_result(message: dict[str, Json], where: str, open_calls: list[str]) -> Iterator[Problem]:
    call_id = as_text(message.get("tool_call_id"))
    if call_id in open_calls:
        open_calls.remove(call_id)
    else:
        yield Problem(
            "Invalid parameter: messages with role 'tool' must be a response to a preceding message"
            f" with 'tool_calls' (tool_call_id {call_id!r}).",
            f"{where}.role",
        )
    content: Json = message.get("content")
    kinds = {as_text(as_object(part).get("type")) for part in as_array(content)}
    if not isinstance(content, str | list) or kinds - {"text"}:
        reason = "Invalid content of a tool message: expected text."
        yield Problem(reason, f"{where}.content")


def _check_content(message: dict[str, Json], where: str) -> Iterator[Problem]:
    content: Json = message.get("content")
    if content is None and message.get("role") == "assistant" and message.get("tool_calls"):
        return
    if not isinstance(content, str | list):
        reason = f"Invalid value for 'content': expected a string, got {content!r}."
        yield Problem(reason, f"{where}.content")
    allowed = _PARTS.get(as_text(message.get("role")), ("text",))
    yield from check_parts(content, allowed, f"{where}.content")


def _check_calls(calls: Json, where: str, open_calls: list[str]) -> Iterator[Problem]:
    if not is_array(calls) or not calls:
        yield Problem("Invalid 'tool_calls': empty array.", f"{where}.tool_calls")
        return
    for number, given in enumerate(calls):
        call = as_object(given)
        place = f"{where}.tool_calls[{number}]"
        function = as_object(call.get("function"))
        if call.get("type") != "function" or not as_text(function.get("name")):
            yield missing(f"{place}.function")
        yield from check_text(function, "arguments", f"{place}.function")
        call_id = as_text(call.get("id"))
        if not call_id:
            yield missing(f"{place}.id")
        if call_id in open_calls:
            yield _repeated(call_id, f"{place}.id")
        open_calls.append(call_id)


def _repeated(call_id: str, param: str) -> Problem:
    return Problem(f"Duplicate value for 'tool_call_id': {call_id}.", param)


def _unanswered(open_calls: list[str]) -> Problem:
    return Problem(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to"
        " each 'tool_call_id'. The following tool_call_ids did not have response messages:"
        f" {', '.join(open_calls)}",
        "messages",
    )
