"""Calls of the provider's tools that run here: shell, patches, and tools that take plain text.

Their items have forms of their own. A call is read as a `ToolCall` with a `kind`, whose arguments
are what its item says: the action, the operation or the text. Its result is a tool message with a
stub, which has the type and the id of the result's item; its content fills the rest when it is
sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from holdfast.values.base import Json
from holdfast.values.checks.gate import as_text, data_of, is_array, is_object
from holdfast.values.messages import CallKind, Message, ToolCall

Item = dict[str, Json]

_NAMES: dict[str, str] = {
    "shell_call": "shell",
    "local_shell_call": "local_shell",
    "apply_patch_call": "apply_patch",
}
"""Names of the tools whose calls do not say one."""

_ASKS: dict[str, str] = {
    "shell_call": "action",
    "local_shell_call": "action",
    "apply_patch_call": "operation",
    "custom_tool_call": "input",
}
"""Type of a call to the member that holds what it asks for."""

LOCAL_CALLS = frozenset(_ASKS)
"""Types of items that are calls of such tools."""

LOCAL_RESULTS = frozenset(f"{kind}_output" for kind in _ASKS)
"""Types of items that are their results."""

SPEC_KINDS = {"shell": "shell_call", "apply_patch": "apply_patch_call"}
"""Types of tools that an agent may name as it likes, and of their calls, which have no name."""

_FAILED = 1


def local_problem(item: Item) -> str:
    """Say what is wrong with a call or a result; empty for nothing."""
    kind = as_text(item.get("type"))
    if not isinstance(item.get("call_id"), str):
        return "its 'call_id' is missing or no text"
    if kind in LOCAL_RESULTS:
        return ""
    asked: Json = item.get(_ASKS[kind])
    if kind != "custom_tool_call":
        return "" if is_object(asked) else f"its {_ASKS[kind]!r} is missing or no dict"
    is_named = isinstance(item.get("name"), str) and isinstance(asked, str)
    return "" if is_named else "its 'name' or its 'input' is missing or no text"


def local_call(item: Item) -> ToolCall:
    """Read a call."""
    kind: CallKind = item["type"]
    asked: Json = item[_ASKS[kind]]
    return ToolCall(
        id=item["call_id"],
        name=_NAMES.get(kind) or item["name"],
        arguments=asked if isinstance(asked, str) else json.dumps(asked, ensure_ascii=False),
        kind=kind,
    )


def run_by_provider(items: Iterable[Item]) -> set[str]:
    """Return ids of calls in an answer that has their results too: the provider has run them."""
    return {
        as_text(each.get("call_id")) for each in items if as_text(each.get("type")) in LOCAL_RESULTS
    }


def without_asked(item: Item) -> Item:
    """Return a call without what its `ToolCall` knows."""
    return {key: item[key] for key in item if key not in ("name", _ASKS[item["type"]])}


def asked_in(call: ToolCall) -> Item:
    """Return the members of its item that a call knows."""
    if call.kind == "custom_tool_call":
        return {"name": call.name, "input": call.arguments}
    return {_ASKS[call.kind]: data_of(call.arguments)}


def call_item(call: ToolCall) -> Item:
    """Write a call that nothing else is known of."""
    status: Item = {} if call.kind == "custom_tool_call" else {"status": "completed"}
    own: Item = {"id": call.id} if call.kind == "local_shell_call" else {}
    return {"type": call.kind, **own, "call_id": call.id, **status, **asked_in(call)}


def result_stub(call: ToolCall) -> Item:
    """Return what of the result's item is not in the message's content."""
    return {"type": f"{call.kind}_output", "call_id": call.id}


def is_stub(item: Item) -> bool:
    """Whether an item is what `result_stub` makes."""
    is_result = as_text(item.get("type")) in LOCAL_RESULTS
    return is_result and "output" not in item and "status" not in item


def result_item(stub: Item, message: Message, written: Json) -> Item:
    """Write the result of a call.

    Args:
        stub: As `result_stub` made it.
        message: The tool message that has it.
        written: Its content, as a function call's output has it.
    """
    failed = message.is_error
    match stub["type"]:
        case "shell_call_output":
            told = {} if failed else shell_told(message.text)
            return {**stub, **(told or {"output": [_plain_output(message.text, failed=failed)]})}
        case "apply_patch_call_output":
            status = "failed" if failed else "completed"
            return {**stub, "status": status, **({"output": message.text} if message.text else {})}
        case "local_shell_call_output":
            return {**stub, "id": stub["call_id"], "output": message.text}
        case _:
            return {**stub, "output": written}


def shell_told(text: str) -> Item:
    """Read what a shell tool has returned, as `ShellTool` writes it; empty if it is other text."""
    told = data_of(text) if text.startswith('{"output":') else None
    if not is_object(told):
        return {}
    output: Json = told.get("output")
    return told if is_array(output) and all(map(is_object, output)) else {}


def local_result(item: Item) -> Message:
    """Read the result of a call."""
    output: Json = item.get("output")
    failed = item.get("status") in ("failed", "incomplete")
    kept = {key: item[key] for key in ("output", "max_output_length") if key in item}
    text = output if isinstance(output, str) else json.dumps(kept, ensure_ascii=False)
    return Message(
        role="tool",
        call_id=item["call_id"],
        content=text if "output" in item else "",
        is_error=failed,
        items=(item,),
    )


def shell_text(item: Item) -> str:
    """Return the result of a shell call as a text for people."""
    output: Json = item.get("output")
    if not is_array(output):
        return as_text(output)
    return "\n".join(filter(None, (_part_text(part) for part in output if is_object(part))))


def _part_text(part: Item) -> str:
    lines = [as_text(part.get("stdout")).rstrip("\n")]
    if part.get("stderr"):
        lines.append(f"stderr: {as_text(part['stderr']).rstrip()}")
    ended: Json = part.get("outcome")
    outcome = ended if is_object(ended) else {}
    if outcome.get("type") == "timeout":
        lines.append("timed out")
    elif outcome.get("exit_code"):
        lines.append(f"exit code: {outcome['exit_code']}")
    return "\n".join(filter(None, lines))


def _plain_output(text: str, *, failed: bool) -> Item:
    outcome: Item = {"type": "exit", "exit_code": _FAILED if failed else 0}
    said = ("", text) if failed else (text, "")
    return {"stdout": said[0], "stderr": said[1], "outcome": outcome}
