"""How a task is traced: its ids, whether its spans have sensitive data, common attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.task.data.head import RunRules, TaskHead
from holdfast.tracing.ids import TaskTrace, trace_digits
from holdfast.tracing.spans import around, includes_sensitive_data


@dataclass(frozen=True)
class TraceRules:
    """How one task is traced.

    Attributes:
        trace: Its ids.
        head: Its head.
        sensitive: Whether spans hold inputs, outputs, messages, arguments and results.
    """

    trace: TaskTrace
    head: TaskHead
    sensitive: bool

    @classmethod
    def of(cls, namespace: str, task_id: str, head: TaskHead) -> TraceRules | None:
        """Make the rules from a task's head; None when it is not traced."""
        run = head.run
        if not run.traced:
            return None
        trace = TaskTrace.of(namespace, task_id, trace=run.trace_id, parent=run.trace_parent)
        sensitive = includes_sensitive_data() if run.sensitive is None else run.sensitive
        return cls(trace, head, sensitive)

    @property
    def run(self) -> RunRules:
        """The rules that the run was started with."""
        return self.head.run

    @property
    def sampled(self) -> bool | None:
        """Whether the parent of the task's span is sampled; None when the sampler decides."""
        return True if self.trace.parent and not self.run.trace_open else None

    @property
    def common(self) -> dict[str, Any]:
        """Attributes of every span of the task."""
        session = self.head.session
        conversation = session.name if session is not None else self.run.group_id
        return {
            "gen_ai.agent.name": self.head.agent,
            "gen_ai.conversation.id": conversation or None,
            "holdfast.task.id": self.trace.task_id,
        }


def below_call(run: RunRules, rules: TraceRules | None, span: str) -> RunRules:
    """Put a child task below the span of its tool call, with its parent's rule on sensitive data.

    Args:
        run: The child's rules.
        rules: How its parent is traced.
        span: Id of the call's span, from `TaskTrace.call`.
    """
    if rules is None:
        return run.model_copy(update={"traced": False})
    changes: dict[str, object] = {
        "trace_id": rules.trace.trace,
        "trace_parent": span,
        "trace_open": rules.sampled is None,
        "sensitive": rules.run.sensitive if run.sensitive is None else run.sensitive,
    }
    return run.model_copy(update=changes)


def in_trace(run: RunRules) -> RunRules:
    """Put a task that is about to be created into the trace around the caller, if there is one.

    The run's own settings take precedence over those of the block.
    """
    if not run.traced:
        return run
    if run.sensitive is None and not includes_sensitive_data():
        run = run.model_copy(update={"sensitive": False})
    found = around(run.trace_id)
    if found is None:
        return run
    if found.disabled:
        return run.model_copy(update={"traced": False})
    changes: dict[str, object] = {
        "trace_id": trace_digits(found.trace_id),
        "trace_parent": found.parent,
    }
    block = found.block
    if block is not None:
        changes |= {
            "workflow_name": run.workflow_name or block.name,
            "group_id": run.group_id or block.group_id or "",
            "trace_metadata": {**block.metadata, **run.trace_metadata},
        }
    return run.model_copy(update=changes)
