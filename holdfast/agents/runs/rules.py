"""What a run's task begins with: the settings of the run as data, and its budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.error_handlers import ErrorHandler, ErrorKind
from holdfast.models.resolve import default_settings
from holdfast.task.data.head import AGENTS_SDK, FollowedRun, KeptConversation, RunRules, TaskHead
from holdfast.tracing.blocks import DEFAULT_WORKFLOW_NAME, includes_sensitive_data
from holdfast.values.code.code_refs import refer
from holdfast.values.code.context_data import type_ref
from holdfast.values.money import Amount
from holdfast.values.settings import Budget


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
    retry = config.model_settings.retry if config.model_settings is not None else None
    workflow = config.workflow_name
    blocked = config.output_guardrail_blocked_message
    rules = RunRules(
        context=type_ref(context),
        model="" if isinstance(model, str) else ref(model),
        of_model=None if model is None else default_settings(model),
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
    """Return whether a run says what its spans hold; None for what each process says by itself."""
    tells = config.trace_include_sensitive_data
    return None if tells and includes_sensitive_data() else tells


def run_budget(max_turns: int | None, max_dollars: Amount | None = None) -> Budget | None:
    """Return the budget of a run: a model call beyond it ends its task.

    Raises:
        UserError: max_dollars is no amount.
    """
    if max_turns is None and max_dollars is None:
        return None
    return Budget(max_turns=max_turns, max_dollars=max_dollars, on_exceeded="fail")
