"""What a model reads of a call that failed, and the texts of errors."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from holdfast.activities.failures import LONGEST_TEXT, keep_for_caller
from holdfast.activities.tools.lookup import Ready
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.tools.decorator import ToolArgumentsError
from holdfast.agents.tools.error_texts import (
    FIXED_ERROR,
    formatted_error,
    worded,
)
from holdfast.agents.tools.foreign.servers import ServerTool
from holdfast.errors import AgentsException, ToolTimeoutError, message_of
from holdfast.values.code.user_calls import StoppedError, invoke, naming, place_of
from holdfast.values.messages import clean
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact


class ToolCancelledError(Exception):
    """A tool raised CancelledError, though its call was not cancelled."""


async def timeout_text(ready: Ready, error: ToolTimeoutError) -> str:
    """Make the message to the model about a call that took too long.

    A formatter that fails itself is passed over, as in `failure_text`.
    """
    formatter = ready.tool.timeout_error_function
    if formatter is None:
        return short_text(error)
    try:
        with naming("timeout_error_function", formatter):
            return str(await invoke(formatter, ready.ctx, error))
    except Exception as failed:
        where = place_of(formatter, failed)
        log.exception("The timeout_error_function of %r failed: %s", ready.tool.name, where)
        return short_text(error)


async def arguments_text(ready: Ready, error: ToolArgumentsError) -> str:
    """Make the message to the model about arguments that do not fit.

    Raises:
        ApplicationError: The tool wants its errors to end the run.
    """
    tool, text = ready.tool, short_text(error)
    if ready.head.dialect.tool_error == "text":
        return text
    if tool.failure_error_function is None:
        raise ApplicationError(text, type="ModelBehaviorError", non_retryable=True) from None
    if callable(tool.failure_error_function):
        return await failure_text(ready, error)
    return await _worded(ready, text, error)


async def failure_text(ready: Ready, error: BaseException) -> str:
    """Make the message to the model about an error of the tool.

    A formatter that fails itself is passed over: the call has been made, and an error here would
    have it made again.

    Raises:
        ApplicationError: The tool wants its errors to end the task; so do those made by hand in
            runs of the Agents SDK's kind.
    """
    tool, fixed = ready.tool, ready.head.dialect.tool_error == "fixed"
    formatter = tool.failure_error_function
    is_agent = isinstance(tool, AgentTool)
    is_handmade = tool.signature is None and not isinstance(tool, AgentTool | ServerTool)
    if is_agent and formatter is None and isinstance(error, AgentsException):
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from None
    if formatter is None or (formatter == "default" and fixed and is_handmade):
        msg = f"Error running tool {tool.name}: {said(error)}"
        if isinstance(error, Exception):
            keep_for_caller(error, msg)
        raise ApplicationError(msg, type="UserError", non_retryable=True) from None
    if callable(formatter) and isinstance(error, Exception):
        try:
            with naming("failure_error_function", formatter):
                return str(await invoke(formatter, ready.ctx, formatted_error(error)))
        except Exception as failed:
            where = place_of(formatter, failed)
            log.exception("The failure_error_function of tool %r failed: %s", tool.name, where)
    default = FIXED_ERROR if fixed else f"Encountered error: {named(error)}"
    return await _worded(ready, default, error)


async def _worded(ready: Ready, text: str, error: BaseException) -> str:
    """Let the run's formatter write the error message of a tool that has no formatter itself.

    Tools that are agents or of servers have their own texts, and what a tool raises to stop, such
    as CancelledError, is none of its errors.
    """
    if isinstance(ready.tool, AgentTool | ServerTool):
        return text
    if isinstance(error, StoppedError | ToolCancelledError):
        return text
    if ready.formatter is None or not isinstance(error, Exception):
        return text
    ctx = ready.ctx
    context = RunContextWrapper(ctx.context, task_id=ctx.task_id)
    return await worded(ready.formatter, "tool_exception", ready.call, text, context, error)


def said(error: BaseException) -> str:
    """Return the text of an error, without secrets and of readable length."""
    try:
        text = message_of(error) if isinstance(error, StoppedError) else str(error)
    except Exception:  # noqa: BLE001  an error that cannot even say what it is
        text = ""
    return clean(redact(text))[:LONGEST_TEXT] or type(error).__name__


def named(error: BaseException) -> str:
    """Return the class of an error with its text: that of a KeyError is the key alone."""
    text, name = said(error), type(error).__name__
    return text if isinstance(error, StoppedError) or text == name else f"{name}: {text}"


def short_text(error: BaseException) -> str:
    """Return the text of one of our own errors, which quotes what the model or the tool gave."""
    return clean(str(error))[:LONGEST_TEXT]
