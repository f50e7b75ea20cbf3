"""What Temporal's visibility store holds of a task, and how to ask it."""

from __future__ import annotations

import re
from typing import cast

from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from holdfast.task.data.state import TaskInput
from holdfast.values.base import Json
from holdfast.values.steps import CLOSED, Task, TaskStatus

HF_STATUS = SearchAttributeKey.for_keyword("HfStatus")
HF_AGENT = SearchAttributeKey.for_keyword("HfAgent")
PREVIEW_CHARACTERS = 120

_ENDED_BY_TEMPORAL: dict[TaskStatus, tuple[str, ...]] = {
    "failed": ("Failed", "TimedOut"),
    "abandoned": ("Terminated", "Canceled"),
}
"""How Temporal's own tools end a task, which then cannot say it itself."""


def attributes(given: TaskInput) -> TypedSearchAttributes:
    """Return the search attributes of a new task."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(HF_STATUS, "running"),
            SearchAttributePair(HF_AGENT, given.head.agent),
        ]
    )


def memo(asked: str, *, now: float) -> dict[str, Json]:
    """Return the memo of a new task, of what it was asked; every run of it keeps it."""
    preview = {"input": asked[:PREVIEW_CHARACTERS]} if asked else {}
    return {"created": now, **preview}


LISTED = {"task_id", "input", "agent", "status", "created"}
"""Fields of a task that the visibility store knows."""


async def listed(found: WorkflowExecution) -> Task:
    """Describe a task by what the visibility store knows; its input is cut short."""
    kept = await found.memo()
    return Task(
        task_id=found.id,
        input=kept.get("input", ""),
        agent=agent_of(found),
        status=status_of(found),
        created=kept.get("created") or found.start_time.timestamp(),
        parent=found.parent_id or "",
    )


def agent_of(found: WorkflowExecution) -> str:
    """Return the agent that a task began with."""
    return found.typed_search_attributes.get(HF_AGENT) or ""


def status_of(found: WorkflowExecution) -> TaskStatus:
    """Return a task's status, also when it was ended by Temporal's own tools."""
    known = cast("TaskStatus", found.typed_search_attributes.get(HF_STATUS) or "running")
    match found.status:
        case WorkflowExecutionStatus.TERMINATED | WorkflowExecutionStatus.CANCELED:
            return "abandoned"
        case WorkflowExecutionStatus.FAILED | WorkflowExecutionStatus.TIMED_OUT:
            return "failed"
        case WorkflowExecutionStatus.COMPLETED:
            return known if known in CLOSED else "finished"
        case _:
            return known


def tasks_query(status: TaskStatus | None, agent: str | None, parent: str = "") -> str:
    """Return the query that lists tasks: those that work for no other, or those of one parent."""
    # A run that continued as new is not the task any more, whatever its attribute says.
    parts = ["WorkflowType = 'AgentTask'", "ExecutionStatus != 'ContinuedAsNew'"]
    if not parent:
        parts.append("ParentWorkflowId IS NULL")
    if status is not None:
        parts.append(_status_query(status))
    named = is_("ParentWorkflowId", parent) if parent else ""
    return " AND ".join(parts) + named + (is_("HfAgent", agent) if agent is not None else "")


def _status_query(status: TaskStatus) -> str:
    said = f"HfStatus = '{status}'"
    if status not in CLOSED:
        return f"{said} AND ExecutionStatus = 'Running'"
    ended = ", ".join(f"'{each}'" for each in _ENDED_BY_TEMPORAL.get(status, ()))
    return f"({said} OR ExecutionStatus IN ({ended}))" if ended else said


def is_(name: str, value: str, *, negated: bool = False) -> str:
    """Return what a query says of an attribute, to be put behind other conditions.

    Servers differ in how they read quotes and backslashes, and some read none of them: of such a
    value, what stands before them is asked for. Compare what is found with the value.

    Args:
        name: The attribute.
        value: What it is to be.
        negated: What it is not to be; nothing is said then of a value with quotes.
    """
    if _plain(value) != value:
        return "" if negated else begins(name, value)
    return f" AND {name} {'!=' if negated else '='} '{value}'"


def begins(name: str, value: str) -> str:
    """Return what a query says of the beginning of an attribute; see `is_`."""
    plain = _plain(value)
    return f" AND {name} STARTS_WITH '{plain}'" if plain else ""


def _plain(value: str) -> str:
    return re.split(r"[\"'`\\]", value, maxsplit=1)[0]
