"""Tasks as Temporal's visibility store lists them: the query, and what a listed run says.

Pure, but for the request itself, and without `temporalio.client` and pydantic: a command that lists
tasks loads neither.
"""

from __future__ import annotations

import heapq
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, cast, get_args

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.service import WorkflowService

from holdfast.engine.search_attributes import (
    CREATED_MEMO,
    HF_AGENT,
    HF_STATUS,
    INPUT_MEMO,
    TASKS,
    is_,
)
from holdfast.errors import InvalidArgumentError
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.values.base import Json

_ENDED_BY_TEMPORAL: dict[TaskStatus, tuple[str, ...]] = {
    "failed": ("Failed", "TimedOut"),
    "abandoned": ("Terminated", "Canceled"),
}
"""How Temporal's own tools end a task, which then cannot say it itself."""

_CLOSED_LIST = ", ".join(f"'{each}'" for each in sorted(CLOSED))


ALL = f"{TASKS} AND ExecutionStatus != 'ContinuedAsNew'"
"""Query for all tasks: a run that continued as new is not the task any more."""


def begun_since(at: float) -> str:
    """Return the query that lists the tasks that began at a time or later, child tasks as well."""
    return f"{ALL} AND StartTime >= '{_moment(round(at * 1e6))}'"


def tasks_query(status: TaskStatus | None, agent: str | None, parent: str = "") -> str:
    """Return the query that lists the tasks without a parent, or the tasks of one parent."""
    parts = [ALL]
    if not parent:
        parts.append("ParentWorkflowId IS NULL")
    if status is not None:
        parts.append(_status_query(status))
    named = is_("ParentWorkflowId", parent) if parent else ""
    return " AND ".join(parts) + named + (is_(HF_AGENT.name, agent) if agent is not None else "")


MOST_IN_PAGE = 1000
"""Executions that the visibility store gives in one answer, at most."""


class Wanted(NamedTuple):
    """Which tasks a list has.

    Attributes:
        status: Tasks with this status; None for all.
        agent: Tasks of this agent; None for all.
        limit: The newest ones, so many; None for all.
        parent: The child tasks of this one; empty for the tasks without a parent.
        after: The token of the list before; empty from the newest one.
    """

    status: TaskStatus | None = None
    agent: str | None = None
    limit: int | None = None
    parent: str = ""
    after: str = ""


ReadMemo = Callable[[WorkflowExecutionInfo], Awaitable[Mapping[str, "Json"]]]


async def newest_tasks(
    service: WorkflowService, namespace: str, wanted: Wanted, memo_of: ReadMemo
) -> tuple[list[dict[str, Json]], str]:
    """Return what the visibility store knows of tasks, newest first, each as `facts`.

    A task that has continued as new counts from then on.

    Args:
        service: Connection to the server.
        namespace: Temporal namespace.
        wanted: Which tasks.
        memo_of: Reads the memo of a run.

    Returns:
        The tasks, and the token of the list that goes on from there; empty for none.

    Raises:
        RPCError: The server did not do as asked.
        InvalidArgumentError: `after` is another text than a token.
    """
    status, agent, limit, parent, after = wanted
    last, query = _place(after), tasks_query(status, agent, parent)
    if limit == 0:
        return [], ""
    if after:
        query = f"{query} AND StartTime <= '{_moment(last[0] + _ROUNDED)}'"
    runs: dict[str, WorkflowExecutionInfo] = {}
    places: list[_Place] = []
    has_more = False
    # The server lists open runs by their start, and after all of them closed ones by their end.
    # So each half ends at the first that is too old.
    for half in ("",) if limit is None or status else _HALVES:
        async for found in list_executions(service, namespace, query + half, limit):
            place = _place_of(found)
            if found.execution.workflow_id in runs or not _is_meant(found, agent, parent):
                continue
            if after and place >= last:
                continue
            if len(places) == limit and _last_time(found) < places[0][0]:
                has_more = True
                break
            runs[place[1]] = found
            if limit is None or len(places) < limit:
                heapq.heappush(places, place)
            else:
                has_more = True
                heapq.heappushpop(places, place)
    places.sort(reverse=True)
    rows = [facts(runs[id], await memo_of(runs[id])) for _, id in places]
    return rows, urlsafe_b64encode(json.dumps(places[-1]).encode()).decode() if has_more else ""


_HALVES = " AND ExecutionStatus = 'Running'", " AND ExecutionStatus != 'Running'"
_ROUNDED = 1000
"""Microseconds to which a store may round a time."""

_Place = tuple[int, str]
"""Place of a run in a list: its start, in microseconds since the epoch, and its id."""


def _place_of(found: WorkflowExecutionInfo) -> _Place:
    return found.start_time.ToMicroseconds(), found.execution.workflow_id


def _place(after: str) -> _Place:
    try:
        match json.loads(urlsafe_b64decode(after.encode("ascii")) or '[0, ""]'):
            case [int(at), str(id)] if 0 <= at < _LATEST:
                return at, id
            case _:
                pass
    except (ValueError, RecursionError):
        pass
    msg = f"{shown(after)} is not a token of a list of tasks. Take the one that a list has given."
    raise InvalidArgumentError(msg)


_LATEST = 1 << 52


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat()


def _last_time(found: WorkflowExecutionInfo) -> int:
    at = found.close_time if found.HasField("close_time") else found.start_time
    return at.ToMicroseconds()


def _status_query(status: TaskStatus) -> str:
    said = f"{HF_STATUS.name} = '{status}'"
    if status not in CLOSED:
        return f"{said} AND ExecutionStatus = 'Running'"
    ended = ", ".join(f"'{each}'" for each in _ENDED_BY_TEMPORAL.get(status, ()))
    if not ended:
        return said
    unsaid = f"ExecutionStatus IN ({ended}) AND {HF_STATUS.name} NOT IN ({_CLOSED_LIST})"
    return f"({said} OR ({unsaid}))"


async def list_executions(
    service: WorkflowService, namespace: str, query: str, limit: int | None
) -> AsyncIterator[WorkflowExecutionInfo]:
    """List the runs that a query finds, open ones first, the newest of each first.

    Args:
        service: Connection to the server.
        namespace: Temporal namespace.
        query: The query.
        limit: How many are wanted; the first request asks for a few more. None for all.

    Raises:
        RPCError: The server did not do as asked.
    """
    token, size = b"", MOST_IN_PAGE if limit is None else min(limit + 10, MOST_IN_PAGE)
    while True:
        asked = ListWorkflowExecutionsRequest(
            namespace=namespace, query=query, page_size=size, next_page_token=token
        )
        page = await service.list_workflow_executions(asked, retry=True)
        for found in page.executions:
            yield found
        token, size = page.next_page_token, MOST_IN_PAGE
        if not token:
            return


def _is_meant(found: WorkflowExecutionInfo, agent: str | None, parent: str) -> bool:
    """Whether a listed run is one of the wanted ones: `tasks_query` may find more."""
    return parent == found.parent_execution.workflow_id and agent in (None, agent_of(found))


def facts(found: WorkflowExecutionInfo, memo: Mapping[str, Json]) -> dict[str, Json]:
    """Return what the visibility store knows of a task; its input is cut short.

    Args:
        found: A run of it.
        memo: The memo of that run, decoded.
    """
    asked, created = memo.get(INPUT_MEMO, ""), memo.get(CREATED_MEMO)
    is_time = isinstance(created, int | float) and 0 < created < _LATEST / 1e6
    return {
        "task_id": found.execution.workflow_id,
        "input": asked if isinstance(asked, str) else UNREAD,
        "agent": agent_of(found),
        "status": status_of(found),
        "blocked_by": STUCK if PROBLEMS in found.search_attributes.indexed_fields else "",
        "created": created if is_time else _begun(found),
        "parent": found.parent_execution.workflow_id,
    }


PROBLEMS = "TemporalReportedProblems"
"""Search attribute that the server gives a run whose workflow task fails again and again."""

STUCK = "its workflow task fails"
"""What a list says of such a run; `why_blocked` knows more."""

UNREAD = "(the memo cannot be read here: it is encrypted, or of another program)"
"""What a list shows in place of an input that it cannot read."""


def plain_memo(found: WorkflowExecutionInfo) -> dict[str, Json]:
    """Return a run's memo, as clients without a codec of their own write it."""
    try:
        return {name: json.loads(each.data) for name, each in found.memo.fields.items()}
    except (ValueError, RecursionError):
        return {INPUT_MEMO: UNREAD}


def agent_of(found: WorkflowExecutionInfo) -> str:
    """Return the agent that a task began with."""
    return _attribute(found, HF_AGENT.name)


def status_of(found: WorkflowExecutionInfo) -> TaskStatus:
    """Return a task's status, also when it was ended by Temporal's own tools."""
    said = _attribute(found, HF_STATUS.name)
    known = cast("TaskStatus", said) if said in get_args(TaskStatus) else "running"
    ended = WorkflowExecutionStatus.Name(found.status).removeprefix("WORKFLOW_EXECUTION_STATUS_")
    if ended in ("TERMINATED", "CANCELED"):
        return "abandoned"
    return known if known in CLOSED else _ENDS.get(ended, known)


_ENDS: dict[str, TaskStatus] = {"COMPLETED": "finished", "FAILED": "failed", "TIMED_OUT": "failed"}


def _attribute(found: WorkflowExecutionInfo, name: str) -> str:
    fields = found.search_attributes.indexed_fields
    return str(json.loads(fields[name].data) or "") if name in fields else ""


def _begun(found: WorkflowExecutionInfo) -> float:
    return found.start_time.ToDatetime(tzinfo=UTC).timestamp()
