"""Error handlers: code that gives a run its final output in the place of an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from holdfast.errors import AgentsException, UserError
from holdfast.models.base import ModelAnswer
from holdfast.values.base import Json
from holdfast.values.run_context import RunContextWrapper
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.agents.items import RunItem

ErrorKind = Literal["max_turns", "model_refusal", "invalid_final_output"]
"""Errors that a handler may answer for."""

ErrorHandler = Callable[["RunErrorHandlerInput"], Any]
"""Gives a final output, a RunErrorHandlerResult, or None to decline; sync or async."""


@dataclass(frozen=True)
class RunErrorData:
    """What a run had produced when the error came.

    Attributes:
        input: What the run was given: a text, or items of the Responses API.
        new_items: What it made, oldest first.
        history: Input and new items in one list.
        output: The new items, as the next run would be given them.
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
class RunErrorHandlerInput:
    """What a handler gets.

    Attributes:
        error: MaxTurnsExceeded, ModelRefusalError or ModelBehaviorError.
        context: The run's context.
        run_data: What the run had produced.
    """

    error: AgentsException
    context: RunContextWrapper[Any]
    run_data: RunErrorData


@dataclass(frozen=True)
class RunErrorHandlerResult:
    """What a handler may return.

    Attributes:
        final_output: The run's final output.
        include_in_history: Whether it joins the conversation as the agent's last message.
    """

    final_output: Any
    include_in_history: bool = True


def check_handlers(given: Any) -> dict[ErrorKind, ErrorHandler]:
    """Return error handlers by the kind of error that they answer for.

    Raises:
        UserError: They are no such mapping; the text says which kinds there are.
    """
    kinds = get_args(ErrorKind)
    if not isinstance(given, Mapping | None):
        msg = f"error_handlers={shown(given)} is no dict of {', '.join(map(repr, kinds))}."
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
    """Read what a handler returned; None when it declines.

    A dict with a `final_output` is the fields of a RunErrorHandlerResult, any other a final output.

    Raises:
        UserError: The dict has fields that there are not.
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
            f"An error handler returned a dict with {', '.join(map(repr, unknown))} beside"
            " 'final_output'; there is only 'include_in_history'."
        )
        raise UserError(msg)
    return RunErrorHandlerResult(**given)
