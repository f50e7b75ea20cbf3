"""The model's text for a failed tool call, and `RunConfig.tool_error_formatter`, which makes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal

from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.errors import ModelBehaviorError
from holdfast.values.code.user_calls import invoke, naming, place_of
from holdfast.values.messages import ToolCall
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.text.logs import log

FIXED_ERROR = "An error occurred while running the tool. Please try again."


def default_tool_error_function(ctx: RunContextWrapper[Any], error: Exception) -> str:  # noqa: ARG001  the signature of a failure_error_function
    """Return the text for the model that a tool has without a `failure_error_function` of its own.

    Of an error of the tool it says nothing, because that may hold secrets; arguments that do not
    fit are explained.
    """
    return str(error) if isinstance(error, ToolArgumentsError) else FIXED_ERROR


def formatted_error(error: Exception) -> Exception:
    """Return an error as a `failure_error_function` gets it: of a class that users know."""
    return ModelBehaviorError(str(error)) if isinstance(error, ToolArgumentsError) else error


ErrorKind = Literal["approval_rejected", "tool_not_found", "tool_exception"]
"""What has become of a call that has no result."""


@dataclass(frozen=True)
class ToolErrorFormatterArgs(Generic[ContextT]):
    """Argument of a formatter: a failed call.

    Attributes:
        kind: Whether a reviewer rejected the call, the model was not given the tool, or the tool
            raised.
        tool_type: Always "function".
        tool_name: Name under which the model called the tool.
        call_id: The model's id of the call.
        default_message: The text without a formatter.
        run_context: The run's context.
        error: The error that the tool raised, else None. Its text may hold secrets.
    """

    kind: ErrorKind
    tool_type: Literal["function"]
    tool_name: str
    call_id: str
    default_message: str
    run_context: RunContextWrapper[ContextT]
    error: Exception | None = None


ToolErrorFormatter = Callable[[ToolErrorFormatterArgs[Any]], str | Awaitable[str | None] | None]
"""Returns the text for the model, or None for the default text."""


async def worded(  # noqa: PLR0917  what a formatter is told
    formatter: ToolErrorFormatter,
    kind: ErrorKind,
    call: ToolCall,
    default: str,
    context: RunContextWrapper[Any],
    error: Exception | None = None,
) -> str:
    """Return a formatter's text; the default text if it returns none, or fails itself.

    Args:
        formatter: The run's formatter.
        kind: What has become of the call.
        call: The call.
        default: The default text.
        context: The run's context.
        error: The error that the tool raised, if it did.
    """
    args = ToolErrorFormatterArgs(kind, "function", call.name, call.id, default, context, error)
    try:
        with naming("tool_error_formatter of the run", formatter):
            text = await invoke(formatter, args)
    except Exception as failed:  # the tool may have run: an error here must not make it run again
        where = place_of(formatter, failed)
        log.exception("The tool_error_formatter (%s) failed for tool %r", where, args.tool_name)
        return args.default_message
    if text is not None and not isinstance(text, str):
        log.error("The tool_error_formatter gave a %s, not a text", type(text).__name__)
    return text if isinstance(text, str) else args.default_message
