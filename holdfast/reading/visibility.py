"""Tasks and sessions as Temporal's visibility store lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from holdfast.engine.search_attributes import (
    CREATED_MEMO,
    HF_AGENT,
    HF_STATUS,
    INPUT_MEMO,
    ORIGIN_MEMO,
    TASKS,
    is_,
)
from holdfast.reading.server_errors import server_errors
from holdfast.task.data.state import TaskInput
from holdfast.values.base import Json
from holdfast.values.checks.ids import app_of_session, session_name
from holdfast.values.steps import CLOSED, Task, TaskStatus

PREVIEW_CHARACTERS = 120

_ENDED_BY_TEMPORAL: dict[TaskStatus, tuple[str, ...]] = {
    "failed": ("Failed", "TimedOut"),
    "abandoned": ("Terminated", "Canceled"),
}
"""How Temporal's own tools end a task, which then cannot say it itself."""

_CLOSED_LIST = ", ".join(f"'{each}'" for each in sorted(CLOSED))


def attributes(given: TaskInput) -> TypedSearchAttributes:
    """Return the search attributes of a new task."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(HF_STATUS, "running"),
            SearchAttributePair(HF_AGENT, given.head.agent),
        ]
    )


def memo(asked: str, *, now: float, origin: tuple[str, int] | None = None) -> dict[str, Json]:
    """Return the memo of a new task, which every run of it keeps.

    Args:
        asked: What it was asked.
        now: Time, seconds since the epoch.
        origin: Of a fork, the task that it departs from, and the number of the step.
    """
    preview = {INPUT_MEMO: asked[:PREVIEW_CHARACTERS]} if asked else {}
    forked: dict[str, Json] = {ORIGIN_MEMO: list[Json](origin)} if origin else {}
    return {CREATED_MEMO: now, **preview, **forked}


LISTED = {"task_id", "input", "agent", "status", "created"}
"""Fields of a task that the visibility store knows."""


async def listed(found: WorkflowExecution) -> Task:
    """Describe a task by what the visibility store knows; its input is cut short."""
    kept = await found.memo()
    return Task(
        task_id=found.id,
        input=kept.get(INPUT_MEMO, ""),
        agent=agent_of(found),
        status=status_of(found),
        created=kept.get(CREATED_MEMO) or found.start_time.timestamp(),
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
            return known if known in CLOSED else "failed"
        case WorkflowExecutionStatus.COMPLETED:
            return known if known in CLOSED else "finished"
        case _:
            return known


def tasks_query(status: TaskStatus | None, agent: str | None, parent: str = "") -> str:
    """Return the query that lists tasks: those that work for no other, or those of one parent."""
    # A run that continued as new is not the task any more, whatever its attribute says.
    parts = [TASKS, "ExecutionStatus != 'ContinuedAsNew'"]
    if not parent:
        parts.append("ParentWorkflowId IS NULL")
    if status is not None:
        parts.append(_status_query(status))
    named = is_("ParentWorkflowId", parent) if parent else ""
    return " AND ".join(parts) + named + (is_(HF_AGENT.name, agent) if agent is not None else "")


MOST_IN_PAGE = 1000
"""Executions that the visibility store gives in one answer, at most."""


def page_size(limit: int | None) -> int:
    """Return how many executions one request is to list, to have as many as are wanted.

    Args:
        limit: How many are wanted; None for all.
    """
    return MOST_IN_PAGE if limit is None else min(limit + 1, MOST_IN_PAGE)


def _status_query(status: TaskStatus) -> str:
    said = f"{HF_STATUS.name} = '{status}'"
    if status not in CLOSED:
        return f"{said} AND ExecutionStatus = 'Running'"
    ended = ", ".join(f"'{each}'" for each in _ENDED_BY_TEMPORAL.get(status, ()))
    if not ended:
        return said
    unsaid = f"ExecutionStatus IN ({ended}) AND {HF_STATUS.name} NOT IN ({_CLOSED_LIST})"
    return f"({said} OR ({unsaid}))"


@dataclass(frozen=True, kw_only=True)
class SessionName:
    """A session of a list.

    Attributes:
        name: Its name.
        begun: When it was begun, or reset, seconds since the epoch.
    """

    name: str
    begun: float


async def list_sessions(client: Client, app: str, limit: int) -> list[SessionName]:
    """List the newest sessions of an app, newest first.

    Raises:
        ConnectError: The server could not be reached.
    """
    found: dict[str, SessionName] = {}
    with server_errors():
        async for each in client.list_workflows("WorkflowType = 'Session'"):
            name = session_name(each.id)
            if name and name not in found and app_of_session(each.id, each.task_queue) == app:
                found[name] = SessionName(name=name, begun=each.start_time.timestamp())
            if len(found) >= limit:
                break
    return [*found.values()]
