"""Converts a run's settings to data, for the head of its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.error_handlers import ErrorHandler, ErrorKind
from holdfast.task.data.head import RunRules
from holdfast.tracing.blocks import DEFAULT_WORKFLOW_NAME
from holdfast.values.code.code_refs import refer
from holdfast.values.code.context_data import type_ref


def run_rules(
    config: RunConfig,
    *,
    context: Any,
    error_handlers: Mapping[ErrorKind, ErrorHandler],
    refer: Callable[[Any], str] = refer,
) -> RunRules:
    """Describe a run's settings as data; functions and objects become references.

    Args:
        config: The run's settings.
        context: Its context object.
        error_handlers: Functions that make a final output in the place of an error.
        refer: Makes the reference to a function or object.
    """

    def ref(thing: Any) -> str:
        return "" if thing is None else refer(thing)

    workflow = config.workflow_name
    return RunRules(
        context=type_ref(context),
        model="" if config.model is None or isinstance(config.model, str) else refer(config.model),
        model_provider=ref(config.model_provider),
        model_input_filter=ref(config.call_model_input_filter),
        tool_error_formatter=ref(config.tool_error_formatter),
        tool_not_found=config.tool_not_found_behavior,
        tool_concurrency=config.tool_execution.max_function_tool_concurrency or 0,
        handoff_filter=ref(config.handoff_input_filter),
        nests_history=config.nest_handoff_history,
        history_mapper=ref(config.handoff_history_mapper),
        input_guardrails=tuple(map(refer, config.input_guardrails)),
        output_guardrails=tuple(map(refer, config.output_guardrails)),
        guards_before_approval=config.tool_execution.pre_approval_tool_input_guardrails,
        error_handlers={kind: refer(handler) for kind, handler in error_handlers.items()},
        reasoning_ids=config.reasoning_item_id_policy or "preserve",
        blocked_message=config.output_guardrail_blocked_message or "",
        workflow_name="" if workflow == DEFAULT_WORKFLOW_NAME else workflow,
        trace_id=config.trace_id or "",
        group_id=config.group_id or "",
        trace_metadata=dict(config.trace_metadata or {}),
        traced=not config.tracing_disabled,
        sensitive=config.trace_include_sensitive_data,
    )
