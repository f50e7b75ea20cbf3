"""What the Responses API refuses in an input list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.testing.fake_api.checks.chat import Problem, check_parts, check_text, missing, unknown
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, as_text

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
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
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


def check_response_items(
    items: Sequence[Json], *, is_stored: bool, is_continued: bool = False
) -> Iterator[Problem]:
    """Yield each problem.

    Args:
        items: The input.
        is_stored: Whether the provider keeps the items.
        is_continued: Whether it keeps the earlier conversation, which may hold a call.
    """
    for index, given in enumerate(items):
        item = as_object(given)
        where = f"input[{index}]"
        kind = _kind(item)
        for key in _TEXTS.get(kind, ()):
            yield from check_text(item, key, where)
        if kind == "message":
            yield from _check_message(item, where)
        elif kind not in _TYPES:
            yield unknown(kind, sorted(_TYPES), f"{where}.type")
        elif kind == "function_call_output":
            yield from _check_content(item, "output", _RETURNED, where)
        elif kind == "reasoning":
            following = as_object(items[index + 1]) if index + 1 < len(items) else {}
            yield from _check_reasoning(item, following, where, is_stored=is_stored)
    yield from _check_approvals([as_object(item) for item in items], is_continued=is_continued)
    yield from _check_pairs([as_object(item) for item in items], is_continued=is_continued)


def _kind(item: dict[str, Json]) -> str:
    return as_text(item.get("type")) or ("message" if "role" in item else "")


def _check_message(item: dict[str, Json], where: str) -> Iterator[Problem]:
    role: Json = item.get("role")
    if role not in _ROLES:
        yield unknown(role, _ROLES, f"{where}.role")
    yield from _check_content(item, "content", _SAID if role == "assistant" else _TOLD, where)


def _check_content(
    item: dict[str, Json], key: str, allowed: Sequence[str], where: str
) -> Iterator[Problem]:
    content: Json = item.get(key)
    if not isinstance(content, str | list):
        yield missing(f"{where}.{key}")
    yield from check_parts(content, allowed, f"{where}.{key}")


def _check_reasoning(
    item: dict[str, Json], following: dict[str, Json], where: str, *, is_stored: bool
) -> Iterator[Problem]:
    item_id = as_text(item.get("id"))
    is_followed = _kind(following) != "function_call_output" and (
        _kind(following) != "message" or following.get("role") == "assistant"
    )
    if item_id and not (following and is_followed):
        yield Problem(f"Item {item_id!r} of type 'reasoning' {_NOT_FOLLOWED}", where)
    if item_id and not is_stored and not item.get("encrypted_content"):
        yield Problem(f"Item with id {item_id!r} not found. {_NOT_STORED}", where)


def _check_approvals(items: Sequence[dict[str, Json]], *, is_continued: bool) -> Iterator[Problem]:
    """Check that each answer to a request for an approval has its request, and is the only one."""
    asked = {as_text(item.get("id")) for item in items if _kind(item) == "mcp_approval_request"}
    answered: set[str] = set()
    for index, item in enumerate(items):
        if _kind(item) != "mcp_approval_response":
            continue
        wanted = as_text(item.get("approval_request_id"))
        if wanted in answered or not (wanted in asked or is_continued):
            yield Problem(f"No approval request found with id {wanted!r}.", f"input[{index}]")
        answered.add(wanted)


def _check_pairs(items: Sequence[dict[str, Json]], *, is_continued: bool) -> Iterator[Problem]:
    """Check that each call has one later output, and each output one earlier call."""
    called: set[str] = set()
    answered: set[str] = set()
    for index, item in enumerate(items):
        call_id = as_text(item.get("call_id"))
        if _kind(item) in _CALLS:
            if call_id in called:
                message = f"Duplicate function call with call_id {call_id}."
                yield Problem(message, f"input[{index}]")
            called.add(call_id)
        elif _kind(item).removesuffix("_output") in _CALLS:
            if call_id not in called and not is_continued:
                message = f"No tool call found for function call output with call_id {call_id}."
                yield Problem(message, "input")
            if call_id in answered:
                message = f"Duplicate function call output with call_id {call_id}."
                yield Problem(message, f"input[{index}]")
            answered.add(call_id)
    for call_id in sorted(called - answered):
        yield Problem(f"No tool output found for function call {call_id}.", "input")
