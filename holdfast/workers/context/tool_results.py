"""Results of tools in the middle of a step."""

from __future__ import annotations

from holdfast.task.data.calls import Outcome
from holdfast.values.code.typed_data import Returned
from holdfast.values.messages import Message, ToolCall, shown
from holdfast.values.steps import ToolOutput


class ToolResult(ToolOutput):
    """A tool's result in the middle of a step, with its message for the model.

    Attributes:
        message: The message.
        returned: What the tool returned, if that may end the run and is not text.
    """

    message: Message
    returned: Returned | None = None


def tool_result(call: ToolCall, outcome: Outcome) -> ToolResult:
    """Make the result of a call from its outcome."""
    return ToolResult(
        tool_name=call.name,
        call_id=call.id,
        raw_input=call.arguments,
        content=shown(outcome.content),
        is_error=outcome.is_error,
        status=outcome.status,
        attempts=outcome.attempts,
        nodes=outcome.nodes if isinstance(outcome.nodes, tuple) else (),
        message=outcome.message(call),
        returned=outcome.returned,
    )
