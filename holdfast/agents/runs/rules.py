"""What a run's task begins with: the settings of the run as data, error handlers, its budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, cast, get_args

from holdfast.agents.run_config import RunConfig
from holdfast.errors import AgentsException, UserError
from holdfast.models.base import AMONG, ModelAnswer
from holdfast.models.resolve import default_settings
from holdfast.task.data.head import AGENTS_SDK, FollowedRun, KeptConversation, RunRules, TaskHead
from holdfast.tracing.spans import DEFAULT_WORKFLOW_NAME, includes_sensitive_data
from holdfast.values.base import Json
from holdfast.values.code.code_refs import refer
from holdfast.values.code.context_data import type_ref
from holdfast.values.money import Amount
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.settings import Budget
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
            raise UserError(
                f"error_handlers has {kind!r}: {shown(handler)}. Give a function for one of"
                f" {', '.join(map(repr, kinds))}."
            )
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
        raise UserError(
            f"An error handler returned a dict with {', '.join(map(repr, unknown))} next to"
            " 'final_output'; there is only 'include_in_history'."
        )
    return RunErrorHandlerResult(**given)


def run_head(
    agent: str,
    config: RunConfig,
    *,
    context: Any = None,
    error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
    streams: bool = False,
    kept: KeptConversation | None = None,
    follows: FollowedRun | None = None,
    refer: Callable[[Any], str] = refer,
) -> TaskHead:
    """Return the head of a run's task: the one place where settings of a run become data.

    Args:
        agent: Name of the agent that the run starts with.
        config: The run's settings.
        context: Its context object.
        error_handlers: Kind of error to the handler that answers in its place.
        streams: Whether models stream their answers to readers of the task's events.
        kept: Where the provider keeps the conversation, if it does.
        follows: The run that it goes on from, if it does.
        refer: Returns the reference by which worker processes find a piece of code.
    """

    def ref(thing: Any) -> str:
        return "" if thing is None else refer(thing)

    model = config.model
    if isinstance(model, tuple) and all(isinstance(each, str) for each in model):
        model = AMONG.join(model)
    retry = config.model_settings.retry if config.model_settings is not None else None
    workflow = config.workflow_name
    blocked = config.output_guardrail_blocked_message
    rules = RunRules(
        context=type_ref(context),
        model="" if isinstance(model, str) else ref(model),
        of_model=None if model is None else default_settings(config.model),
        model_provider=ref(config.model_provider),
        retry_policy=ref(retry.policy if retry is not None else None),
        model_input_filter=ref(config.call_model_input_filter),
        tool_error_formatter=ref(config.tool_error_formatter),
        tool_not_found=config.tool_not_found_behavior or "tell",
        output_attempts=config.max_output_attempts or 0,
        tool_concurrency=config.tool_execution.max_function_tool_concurrency or 0,
        handoff_filter=ref(config.handoff_input_filter),
        nests_history=config.nest_handoff_history,
        history_mapper=ref(config.handoff_history_mapper),
        input_guardrails=tuple(map(refer, config.input_guardrails)),
        output_guardrails=tuple(map(refer, config.output_guardrails)),
        guards_before_approval=config.tool_execution.pre_approval_tool_input_guardrails,
        error_handlers={kind: refer(each) for kind, each in (error_handlers or {}).items()},
        reasoning_ids=config.reasoning_item_id_policy or "preserve",
        blocked_message=blocked if isinstance(blocked, str) else "",
        blocked_formatter="" if isinstance(blocked, str) else ref(blocked),
        workflow_name="" if workflow == DEFAULT_WORKFLOW_NAME else workflow,
        trace_id=config.trace_id or "",
        group_id=config.group_id or "",
        trace_metadata=dict(config.trace_metadata or {}),
        traced=not config.tracing_disabled,
        sensitive=_sensitive(config),
        streams=streams,
        kept=kept,
    )
    return TaskHead(
        agent=agent,
        dialect=AGENTS_SDK,
        model=model if isinstance(model, str) else "",
        settings=config.model_settings,
        run=rules,
        follows=follows,
    )


def _sensitive(config: RunConfig) -> bool | None:
    """Return whether a run's spans hold texts; None leaves that to the setting of each process."""
    tells = config.trace_include_sensitive_data
    return None if tells and includes_sensitive_data() else tells


def run_budget(max_turns: int | None, max_dollars: Amount | None = None) -> Budget | None:
    """Return the budget of a run: a model call beyond it ends its task.

    Raises:
        UserError: max_dollars is not an amount.
    """
    if max_turns is None and max_dollars is None:
        return None
    return Budget(max_turns=max_turns, max_dollars=max_dollars, on_exceeded="fail")
