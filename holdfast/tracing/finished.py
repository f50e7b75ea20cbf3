"""Spans of finished steps, child tasks and tasks, made from their records.

Pure, and with recorded times only: a span that is made twice, as in a replay, is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.step_body import StepBody
from holdfast.tracing import contents
from holdfast.tracing.spans import DEFAULT_WORKFLOW_NAME, TraceRules, metadata_attributes
from holdfast.values.base import Json, as_text
from holdfast.values.messages import ToolCall, Usage, shown
from holdfast.values.steps import Task, TaskStep


@dataclass(frozen=True)
class Finished:
    """A finished span.

    Attributes:
        span: Its id.
        parent: Its parent's id; empty for none.
        name: Its name.
        start: Seconds since the epoch.
        end: Seconds since the epoch.
        attributes: Its attributes; None values are left out.
        failure: The failure that it ended with, if any.
    """

    span: str
    parent: str
    name: str
    start: float
    end: float
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failure: Failure | None = None


def step_span(
    rules: TraceRules, body: StepBody, *, status: str = "", at: float | None = None
) -> Finished:
    """Make the span of a step that is completed, or that was left before its end.

    Args:
        rules: The task's trace.
        body: The step.
        status: For a step that was left: "undone", or the status that the task closed with.
        at: For a step that was left: when.
    """
    facts = _of_step(rules, body.step, body.key, body.branch)
    if not body.is_completed:
        facts["holdfast.step.status"] = status or body.status
    elif rules.sensitive:
        output = as_text(body.output) if body.stored is None else shown(body.stored)
        facts["holdfast.step.output"] = output or None
    return Finished(
        span=rules.trace.step(body.branch, body.key),
        parent=rules.trace.root,
        name=_step_name(rules, body.step, body.key),
        start=body.started,
        end=body.ended if at is None else at,
        attributes=facts,
        failure=body.failure,
    )


def call_span(
    rules: TraceRules,
    call: ToolCall,
    outcome: Outcome | None,
    *,
    child: str,
    agent: str,
    step: tuple[int, int],
    start: float,
    end: float,
    status: str = "",
) -> Finished:
    """Make the span of a tool call that ran as a child task.

    Args:
        rules: The task's trace.
        call: The call, as it ran.
        outcome: Its outcome; None when the step was left before the outcome was known.
        child: Id of the child task.
        agent: Agent of the step that made the call; empty for the task's own agent.
        step: Branch and number of that step.
        start: When the call began.
        end: When its outcome was known, or when it was left.
        status: For a call that was left: "undone", or the status that the task closed with.
    """
    facts: dict[str, Any] = {
        **rules.common,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": agent or rules.head.agent,
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "holdfast.call.task": child,
        "holdfast.call.status": status or None,
    }
    result = shown(outcome.content) if outcome is not None else ""
    if rules.sensitive:
        facts["gen_ai.tool.call.arguments"] = call.arguments
        facts["gen_ai.tool.call.result"] = result if outcome is not None else None
    failed = outcome is not None and outcome.is_error and outcome.status == "failed"
    return Finished(
        span=rules.trace.call(child),
        parent=rules.trace.step(*step),
        name=f"execute_tool {call.name}",
        start=start,
        end=end,
        attributes=facts,
        failure=Failure(type="ToolError", message=result) if failed else None,
    )


def task_span(
    rules: TraceRules,
    task: Task,
    *,
    status: str,
    at: float,
    output: Json = None,
    failure: Failure | None = None,
) -> Finished:
    """Make the span of a closed task.

    Args:
        rules: The task's trace.
        task: The task.
        status: The status that it closed with.
        at: When it closed.
        output: Output of its last step.
        failure: The error that ended it, or the reason why it was abandoned.
    """
    facts = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.workflow.name": rules.run.workflow_name or DEFAULT_WORKFLOW_NAME,
        "gen_ai.request.model": rules.head.model or None,
        "holdfast.task.status": status,
        "holdfast.task.steps": task.steps,
        "holdfast.group.id": rules.run.group_id or None,
        **rules.common,
        **usage_attributes(task.usage),
        **metadata_attributes(rules.run.trace_metadata),
    }
    if rules.sensitive:
        facts["gen_ai.input.messages"] = contents.said_by("user", task.input)
        if output is not None:
            facts["gen_ai.output.messages"] = contents.said_by("assistant", as_text(output))
        if status == "abandoned" and failure is not None:
            facts["holdfast.task.reason"] = failure.text
    return Finished(
        span=rules.trace.root,
        parent=rules.trace.parent,
        name=f"invoke_agent {rules.head.agent}",
        start=task.created,
        end=at,
        attributes=facts,
        failure=failure if status == "failed" else None,
    )


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Write the cost of model calls as span attributes; an amount only when all have a price."""
    is_priced = usage.priced > 0 and usage.priced >= usage.requests
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
        # No conventional name yet; a double, as attributes have no decimals.
        "holdfast.usage.cost_usd": float(usage.paid) if is_priced else None,
    }


def _of_step(rules: TraceRules, step: TaskStep, n: int, branch: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        **rules.common,
        "gen_ai.agent.name": step.agent or rules.head.agent,
        "holdfast.step.n": n,
        "holdfast.step.branch": branch or None,
    }
    if rules.sensitive:
        facts["holdfast.step.id"] = step.step_id
        facts["holdfast.step.input"] = step.input
    return facts


def _step_name(rules: TraceRules, step: TaskStep, n: int) -> str:
    """Name a step's span by its id; by its number if sensitive data, as ids may be, is left out."""
    return f"step {step.step_id if rules.sensitive else n}"
