"""Error handlers: functions that make a run's final output instead of an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, cast, get_args

from holdfast.errors import AgentsException, UserError
from holdfast.models.base import ModelAnswer
from holdfast.values.base import Json
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.agents.items.run_items import RunItem

ErrorKind = Literal["max_turns", "model_refusal", "invalid_final_output"]
"""Kinds of errors that a handler may handle."""

ErrorHandler = Callable[["RunErrorHandlerInput[Any]"], Any]
"""Returns a final output, a RunErrorHandlerResult, or None to decline; sync or async."""

RunErrorHandler = ErrorHandler
"""The same, by its name in the Agents SDK."""


class RunErrorHandlers(TypedDict, total=False):
    """Error handlers by the kind of error that they handle.

    Attributes:
        max_turns: Called in place of MaxTurnsExceeded.
        model_refusal: Called in place of ModelRefusalError.
        invalid_final_output: Called when the final output does not fit its type.
    """

    max_turns: ErrorHandler
    model_refusal: ErrorHandler
    invalid_final_output: ErrorHandler


@dataclass(frozen=True)
class RunErrorData:
    """The data of a run at the time of the error.

    Attributes:
        input: The run's input: a text, or items of the Responses API.
        new_items: The items that the run made, oldest first.
        history: Input and new items in one list. As in the Agents SDK, it has messages twice that a
            handoff has moved into the input: there, and where the run made them. The list of a
            result, `to_input_list()`, has them once.
        output: The new items, as input items for another run.
        raw_responses: The model's answers of the turn that failed.
        last_agent: The agent that ran last.
    """

    input: str | list[dict[str, Json]]
    new_items: list[RunItem]
    history: list[dict[str, Json]]
    output: list[dict[str, Json]]
    raw_responses: list[ModelAnswer]
    last_agent: Agent


@dataclass(frozen=True)
class RunErrorHandlerInput(Generic[ContextT]):
    """Argument of an error handler.

    Attributes:
        error: MaxTurnsExceeded, ModelRefusalError or ModelBehaviorError.
        context: The run's context.
        run_data: The data of the run at the time of the error.
    """

    error: AgentsException
    context: RunContextWrapper[ContextT]
    run_data: RunErrorData


@dataclass(frozen=True)
class RunErrorHandlerResult:
    """Result of an error handler.

    Attributes:
        final_output: The run's final output.
        include_in_history: Whether it joins the conversation as the agent's last message.
    """

    final_output: Any
    include_in_history: bool = True


def check_handlers(given: Any) -> dict[ErrorKind, ErrorHandler]:
    """Return error handlers by the kind of error that they handle.

    Raises:
        UserError: It is not a mapping from kinds to functions; the text lists the kinds.
    """
    kinds = get_args(ErrorKind)
    if not isinstance(given, Mapping | None):
        msg = f"error_handlers={shown(given)} is not a dict of {', '.join(map(repr, kinds))}."
        raise UserError(msg)
    handlers = dict(cast("Mapping[ErrorKind, ErrorHandler]", given or {}))
    for kind, handler in handlers.items():
        if kind not in kinds or not callable(handler):
            msg = (
                f"error_handlers has {kind!r}: {shown(handler)}. Give a function for one of"
                f" {', '.join(map(repr, kinds))}."
            )
            raise UserError(msg)
    return handlers


def as_handler_result(value: Any) -> RunErrorHandlerResult | None:
    """Convert the return value of a handler; None when it declines.

    A dict with a `final_output` has the fields of a RunErrorHandlerResult; any other dict is a
    final output.

    Raises:
        UserError: The dict has unknown fields.
    """
    if value is None or isinstance(value, RunErrorHandlerResult):
        return value
    if not isinstance(value, Mapping) or "final_output" not in value:
        return RunErrorHandlerResult(value)
    given = cast("Mapping[str, Any]", value)
    known = {field.name for field in fields(RunErrorHandlerResult)}
    unknown = sorted(given.keys() - known)
    if unknown:
        msg = (
            f"An error handler returned a dict with {', '.join(map(repr, unknown))} next to"
            " 'final_output'; there is only 'include_in_history'."
        )
        raise UserError(msg)
    return RunErrorHandlerResult(**given)
