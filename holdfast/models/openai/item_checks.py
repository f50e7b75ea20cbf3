"""Checks of a single item of a Responses input list, with errors that name index and reason."""

from __future__ import annotations

from typing import NoReturn

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.local_items import LOCAL_CALLS, LOCAL_RESULTS, local_problem
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.json_shapes import as_text, is_array, is_object
from holdfast.values.text.shown import type_shown

_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = {
    "function_call": ("call_id", "name", "arguments"),
    "mcp_approval_request": ("id", "server_label", "name", "arguments"),
}
"""Members of calls that must be texts."""

FAKE_ID = "__fake_id__"
"""Id that the Agents SDK gives items for which the provider has none."""

_TEXT_FIELDS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}


def kind_of(item: dict[str, Json]) -> str:
    """Return an item's type; the easy form `{role, content}` is a message."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else ""


def check_item(index: int, item: object) -> dict[str, Json]:
    """Return `item` when it can be read as an item of an input list.

    Raises:
        InvalidArgumentError: It cannot; the text names the index and what is wrong.
    """
    if not is_object(item):
        _refuse(index, f"its type is {type_shown(item)}, not a dict")
    if wrong := gate.flaw(item, "it"):
        _refuse(index, wrong.removesuffix("."))
    kind = kind_of(item)
    match kind:
        case "":
            _refuse(index, "it has neither a 'type' nor a 'role'")
        case "message":
            if as_text(item.get("role")) not in _ROLES:
                _refuse(index, f"its role is {item.get('role')!r}, not one of {', '.join(_ROLES)}")
            _check_content(index, item, "content")
        case "function_call" | "mcp_approval_request":
            for key in _TEXTS[kind]:
                _check_text(index, item, key)
        case "function_call_output":
            _check_text(index, item, "call_id")
            _check_content(index, item, "output")
        case "mcp_approval_response":
            _check_text(index, item, "approval_request_id")
            if not isinstance(item.get("approve"), bool):
                _refuse(index, "its 'approve' is neither true nor false")
        case _ if kind in LOCAL_CALLS | LOCAL_RESULTS:
            _check_local(index, kind, item)
        case _:
            pass
    return item


def has_refusal(item: dict[str, Json]) -> bool:
    """Whether a message holds a refusal of the model."""
    content: Json = item["content"]
    return is_array(content) and any(part.get("type") == "refusal" for part in content)


def has_logprobs(item: dict[str, Json]) -> bool:
    """Whether a message holds log probabilities of its tokens."""
    content: Json = item.get("content")
    return is_array(content) and any(part.get("logprobs") for part in content)


def has_annotations(item: dict[str, Json]) -> bool:
    """Whether a message holds annotations, such as citations."""
    content: Json = item.get("content")
    return is_array(content) and any(
        is_object(part) and part.get("annotations") for part in content
    )


def is_cut_off(item: dict[str, Json]) -> bool:
    """Whether an item of an answer has another status than "completed"."""
    return kind_of(item) in ("message", "function_call") and (
        item.get("status") not in (None, "completed")
    )


def _check_text(index: int, item: dict[str, Json], key: str) -> None:
    if not isinstance(item.get(key), str):
        _refuse(index, f"its {key!r} is {_shown(item, key)}, not a text")


def _check_local(index: int, kind: str, item: dict[str, Json]) -> None:
    if wrong := local_problem(item):
        _refuse(index, wrong)
    if kind == "custom_tool_call_output" and is_array(item.get("output")):
        _check_content(index, item, "output")  # read as parts, as the output of a function


def _check_content(index: int, item: dict[str, Json], key: str) -> None:
    content: object = item.get(key)
    if isinstance(content, str):
        return
    if not is_array(content):
        _refuse(index, f"its {key!r} is {_shown(item, key)}, neither a text nor a list of parts")
    for place, part in enumerate(content):
        if not is_object(part) or not isinstance(part.get("type"), str):
            _refuse(index, f"part {place} of its {key!r} is not a dict with a 'type'")
        field = _TEXT_FIELDS.get(part["type"])
        if field is not None and not isinstance(part.get(field), str):
            _refuse(index, f"part {place} of its {key!r} has no text in {field!r}")


def _shown(item: dict[str, Json], key: str) -> str:
    return f"a {type(item[key]).__name__}" if key in item else "missing"


def _refuse(index: int, reason: str) -> NoReturn:
    raise InvalidArgumentError(
        f"Item {index} of the input list cannot be used: {reason}. Items are messages (role and"
        " content), function_call, function_call_output, or other items of the Responses API."
    )
