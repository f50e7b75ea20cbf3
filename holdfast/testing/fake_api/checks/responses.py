"""What the Responses API refuses in an input list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.testing.fake_api.checks.chat import image_problem
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, as_text, is_array

_ROLES = ("user", "assistant", "system", "developer")
_TYPES = frozenset(
    {
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "computer_call",
        "computer_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "function_call",
        "function_call_output",
        "image_generation_call",
        "item_reference",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "message",
        "reasoning",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
_CALLS = frozenset(
    {"apply_patch_call", "custom_tool_call", "function_call", "local_shell_call", "shell_call"}
)
"""Items that an output must follow."""

_TEXTS = {
    "mcp_approval_request": ("id", "server_label", "name", "arguments"),
    "mcp_approval_response": ("approval_request_id",),
}
_SAID = ("output_text", "refusal")
_RETURNED = ("input_text", "input_image", "input_file")
_TOLD = ("input_text", "input_image", "input_file", "input_audio")
_NOT_FOLLOWED = "was provided without its required following item."
_NOT_STORED = (
    "Items are not persisted when `store` is set to false. Try again with `store` set to true, or"
    " remove this item from your input."
)
_Found = tuple[str, str]


def check_response_items(
    items: Sequence[Json], *, is_stored: bool, is_continued: bool = False
) -> Iterator[_Found]:
    """Yield each problem as the parameter's path and the API's message.

    Args:
        items: The input.
        is_stored: Whether the provider keeps the items.
        is_continued: Whether it keeps the earlier conversation, which may hold a call.
    """
    for index, given in enumerate(items):
        item = as_object(given)
        where = f"input[{index}]"
        kind = _kind(item)
        if kind == "message":
            yield from _check_message(item, where)
        elif kind not in _TYPES:
            yield (
                f"{where}.type",
                f"Invalid value: {kind!r}. Supported values are: {sorted(_TYPES)}",
            )
        elif kind == "function_call":
            for key in ("call_id", "name", "arguments"):
                yield from _check_text(item, key, where)
        elif kind == "function_call_output":
            yield from _check_text(item, "call_id", where)
            output: Json = item.get("output")
            if not isinstance(output, str | list):
                yield f"{where}.output", f"Missing required parameter: '{where}.output'."
            yield from _check_parts(output, _RETURNED, f"{where}.output")
        elif kind in _TEXTS:
            for key in _TEXTS[kind]:
                yield from _check_text(item, key, where)
        elif kind == "reasoning":
            following = as_object(items[index + 1]) if index + 1 < len(items) else {}
            yield from _check_reasoning(item, following, where, is_stored=is_stored)
    yield from _check_approvals([as_object(item) for item in items], is_continued=is_continued)
    yield from _check_pairs([as_object(item) for item in items], is_continued=is_continued)


def _kind(item: dict[str, Json]) -> str:
    return as_text(item.get("type")) or ("message" if "role" in item else "")


def _check_text(item: dict[str, Json], key: str, where: str) -> Iterator[_Found]:
    if key not in item:
        yield f"{where}.{key}", f"Missing required parameter: '{where}.{key}'."
    elif not isinstance(item[key], str):
        kind = type(item[key]).__name__
        message = f"Invalid type for '{where}.{key}': expected a string, but got {kind} instead."
        yield f"{where}.{key}", message


def _check_message(item: dict[str, Json], where: str) -> Iterator[_Found]:
    role: Json = item.get("role")
    if role not in _ROLES:
        yield f"{where}.role", f"Invalid value: {role!r}. Supported values are: {_ROLES}."
    content: Json = item.get("content")
    if not (isinstance(content, str) or is_array(content)):
        yield f"{where}.content", f"Missing required parameter: '{where}.content'."
    yield from _check_parts(content, _SAID if role == "assistant" else _TOLD, f"{where}.content")


def _check_parts(content: Json, allowed: Sequence[str], where: str) -> Iterator[_Found]:
    for number, given in enumerate(content if is_array(content) else list[Json]()):
        part, place = as_object(given), f"{where}[{number}]"
        match part.get("type"):
            case kind if kind not in allowed:
                problem = f"Invalid value: {kind!r}. Supported values are: {allowed}."
                yield f"{place}.type", problem
            case "input_text":
                yield from _check_text(part, "text", place)
            case "input_image" if not as_text(part.get("file_id")):
                url, detail = part.get("image_url"), part.get("detail")
                problem = image_problem(url, detail, f"{place}.image_url")
                if problem:
                    yield f"{place}.image_url", problem
            case _:
                pass


def _check_reasoning(
    item: dict[str, Json], following: dict[str, Json], where: str, *, is_stored: bool
) -> Iterator[_Found]:
    item_id = as_text(item.get("id"))
    is_followed = _kind(following) != "function_call_output" and (
        _kind(following) != "message" or following.get("role") == "assistant"
    )
    if item_id and not (following and is_followed):
        yield where, f"Item {item_id!r} of type 'reasoning' {_NOT_FOLLOWED}"
    if item_id and not is_stored and not item.get("encrypted_content"):
        yield where, f"Item with id {item_id!r} not found. {_NOT_STORED}"


def _check_approvals(items: Sequence[dict[str, Json]], *, is_continued: bool) -> Iterator[_Found]:
    """Check that each answer to a request for an approval has its request, and is the only one."""
    asked = {as_text(item.get("id")) for item in items if _kind(item) == "mcp_approval_request"}
    answered: set[str] = set()
    for index, item in enumerate(items):
        if _kind(item) != "mcp_approval_response":
            continue
        wanted = as_text(item.get("approval_request_id"))
        if wanted in answered or not (wanted in asked or is_continued):
            yield f"input[{index}]", f"No approval request found with id {wanted!r}."
        answered.add(wanted)


def _check_pairs(items: Sequence[dict[str, Json]], *, is_continued: bool) -> Iterator[_Found]:
    """Check that each call has one later output, and each output one earlier call."""
    called: set[str] = set()
    answered: set[str] = set()
    for index, item in enumerate(items):
        call_id = as_text(item.get("call_id"))
        if _kind(item) in _CALLS:
            if call_id in called:
                yield f"input[{index}]", f"Duplicate function call with call_id {call_id}."
            called.add(call_id)
        elif _kind(item).removesuffix("_output") in _CALLS:
            if call_id not in called and not is_continued:
                yield (
                    "input",
                    f"No tool call found for function call output with call_id {call_id}.",
                )
            if call_id in answered:
                yield f"input[{index}]", f"Duplicate function call output with call_id {call_id}."
            answered.add(call_id)
    for call_id in sorted(called - answered):
        yield "input", f"No tool output found for function call {call_id}."
