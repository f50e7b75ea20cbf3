"""Tasks and sessions as Temporal's visibility store lists them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio.api.common.v1 import WorkflowExecution as Run
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.session_commits import find_run
from holdfast.engine.search_attributes import (
    APPROVALS_MEMO,
    CREATED_MEMO,
    HF_AGENT,
    HF_APPROVALS,
    HF_STATUS,
    HF_TENANT,
    INPUT_MEMO,
    ORIGIN_MEMO,
    SESSIONS,
    TASKS,
    is_,
)
from holdfast.errors import KeyMissingError, message_of
from holdfast.reading.listing import UNREAD, facts
from holdfast.reading.queries import server_errors
from holdfast.task.data.calls import Approval
from holdfast.task.data.state import TaskInput
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array
from holdfast.values.checks.ids import app_of_session, session_name
from holdfast.values.steps import Task
from holdfast.values.text.redact import redact

PREVIEW_CHARACTERS = 120
READ_CHARACTERS = 2000
"""How much of an input is looked through for secrets before its beginning goes into a memo."""


def attributes(given: TaskInput) -> TypedSearchAttributes:
    """Return the search attributes of a new task."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(HF_STATUS, "paused" if given.paused else "running"),
            SearchAttributePair(HF_AGENT, given.head.agent),
            *((SearchAttributePair(HF_TENANT, whose),) if (whose := given.head.tenant) else ()),
        ]
    )


def memo(asked: str, *, now: float, origin: tuple[str, int] | None = None) -> dict[str, Json]:
    """Return the memo of a new task, which every run of it keeps.

    Args:
        asked: What it was asked.
        now: Time, seconds since the epoch.
        origin: Of a fork, the task that it departs from, and the number of the step.
    """
    shown = redact(asked[:READ_CHARACTERS])[:PREVIEW_CHARACTERS]
    preview = {INPUT_MEMO: shown} if asked else {}
    forked: dict[str, Json] = {ORIGIN_MEMO: list[Json](origin)} if origin else {}
    return {CREATED_MEMO: now, **preview, **forked}


async def memo_of(found: WorkflowExecution) -> Mapping[str, Any]:
    """Return a run's memo; in place of what this process cannot read, its input is why."""
    return await read_memo(found.data_converter, found.raw_info)


async def origin_of(found: WorkflowExecution) -> tuple[str, int] | None:
    """Return the task that a fork departs from, and the number of the step; None for no fork."""
    match (await memo_of(found)).get(ORIGIN_MEMO):
        case [str(task_id), int(n)]:
            return task_id, n
        case _:
            return None


async def delete_runs(
    client: Client, workflow_id: str, kind: str = "", *, closed: str | None = None
) -> bool:
    """Have Temporal delete what it has of a workflow; return whether it had anything yet.

    What is open is terminated.

    Args:
        client: Temporal client.
        workflow_id: Its id.
        kind: Its type, if runs of another type with this id stay.
        closed: If an open run stays: id of a closed one, which may not be listed yet, or empty.

    Raises:
        RPCError: The server did not do as asked; or a ConnectError.
    """
    listed = client.list_workflows(is_("WorkflowId", workflow_id).removeprefix(" AND "))
    found = [run async for run in listed if run.id == workflow_id]
    newest = await find_run(client, workflow_id)  # which may not be listed yet
    known = await find_run(client, workflow_id, closed) if closed else None
    runs = {
        run.run_id for run in (*found, newest, known) if run and kind in ("", run.workflow_type)
    }
    if closed is not None and newest is not None and newest.close_time is None:
        runs.discard(newest.run_id)
    for run in runs:
        which = Run(workflow_id=workflow_id, run_id=run)
        asked = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=which)
        with suppress(RPCError), server_errors(RPCStatusCode.NOT_FOUND):
            await client.workflow_service.delete_workflow_execution(asked)
    return bool(runs)


async def children_of(client: Client, task_id: str) -> set[str]:
    """List the child tasks of a task that Temporal knows.

    Raises:
        ConnectError: The server could not be reached.
    """
    query = f"{TASKS}{is_('ParentWorkflowId', task_id)}"
    with server_errors():
        found = client.list_workflows(query)
        return {each.id async for each in found if each.parent_id == task_id}


async def read_memo(converter: DataConverter, found: WorkflowExecutionInfo) -> Mapping[str, Any]:
    """Do as `memo_of` does with a run as the server lists it."""
    why, read = "", dict[str, Any]()
    for name, each in found.memo.fields.items():
        try:
            read[name] = (await converter.decode([each]))[0]
        except KeyMissingError as error:
            why = f"({message_of(error)})"
        except Exception:  # noqa: BLE001  each codec has its own errors, and the list goes on
            why = UNREAD
    return {INPUT_MEMO: why, **read} if why else read


async def listed(found: WorkflowExecution) -> Task:
    """Describe a task by what `ListedTask` has; its input is cut short."""
    return Task(**facts(found.raw_info, await memo_of(found)))


async def waiting_in(found: WorkflowExecution) -> list[Approval]:
    """List the open approvals of a task as its memo has them, long arguments cut.

    One of kind "unread" says how many the memo has no room for, or this process cannot read.
    """
    cards = as_array((await memo_of(found)).get(APPROVALS_MEMO))
    shown: list[Approval] = []
    for card in cards:
        with suppress(ValidationError):  # of another version
            shown.append(Approval.model_validate(card))
    given = found.typed_search_attributes
    unread = (given.get(HF_APPROVALS) or 0) - len(shown)
    if unread > 0:
        text = f"{unread} more of this task cannot be read here while no worker process answers."
        agent, asked = given.get(HF_AGENT) or "", found.start_time.timestamp()
        more = Approval(id=f"{found.id}:0", kind="unread", agent=agent, text=text, asked=asked)
        shown.append(more)
    return shown


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
        async for each in client.list_workflows(SESSIONS):
            name = session_name(each.id)
            if name and name not in found and app_of_session(each.id, each.task_queue) == app:
                found[name] = SessionName(name=name, begun=each.start_time.timestamp())
            if len(found) >= limit:
                break
    return [*found.values()]
