"""What the task itself has to say of tool calls: nothing ran, or nobody knows."""

from __future__ import annotations

from holdfast.task.data.records import Outcome
from holdfast.values.messages import ToolCall


def unknown_tool(call: ToolCall, known: list[str]) -> Outcome:
    """Tell the model that it called a tool that does not exist."""
    names = ", ".join(sorted(known)) or "none"
    text = f"Tool with name {call.name} not found, please double check. Tools: {names}."
    return Outcome(content=text, is_error=True, status="failed", attempts=0)


def lost_text(call: ToolCall, times: int) -> str:
    """Say that workers were lost inside a call that may or may not have taken effect."""
    if times > 1:
        return (
            f"Tool {call.name!r} was run {times} times, and each time its worker was lost. The tool"
            " may be what ends the worker. It is not known whether it took effect."
        )
    return not_known_text(f"The worker was lost while tool {call.name!r} ran.")


def cut_text(call: ToolCall) -> str:
    """Say that a call was cancelled and may or may not have taken effect."""
    return not_known_text(f"Tool {call.name!r} was cancelled while it ran.")


def not_known_text(why: str) -> str:
    """Say that a call may or may not have taken effect."""
    return f"{why} It is not known whether it took effect, and it must not be repeated blindly."
