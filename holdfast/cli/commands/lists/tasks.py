"""`tasks`: the list of tasks. It asks the server alone, and loads what that needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.service import RPCError, RPCStatusCode

from holdfast.cli import output
from holdfast.cli.commands.lists.service import Service, service_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.reading.listing import ReadMemo, Wanted, newest_tasks, plain_memo
from holdfast.values.checks.ids import check_name
from holdfast.values.runs.status import TaskStatus
from holdfast.values.text.shown import shortened

if TYPE_CHECKING:
    from holdfast.values.base import Json
    from holdfast.values.messages import Usage


Tasks = dict[str, "dict[str, Json]"]
"""What the list says of each task, by its id."""


async def tasks_command(
    common: Common,
    *,
    status: TaskStatus | None,
    agent: str | None,
    limit: int,
    after: str,
    cost: bool,
) -> ExitCode:
    """List tasks."""
    if agent is not None:
        check_name("agent", agent)
    wanted = Wanted(status, agent, limit, after=after)
    costs: dict[str, Usage | None] = {}
    is_checked = common.embedded is None and bool(
        common.archive or os.environ.get("HOLDFAST_ARCHIVE")
    )
    if cost or is_checked or os.environ.get("HOLDFAST_KEYS"):
        found, more, costs = await _by_client(common, wanted, cost=cost)
    else:
        async with service_of(common) as service:
            found, more = await _listed(service, wanted, _plain)
    data = [task | (_as_data(costs[name]) if cost else {}) for name, task in found.items()]
    if more:
        output.say(f"Older ones: --after {more}")
    lines = [
        (
            name,
            _state(task),
            task["agent"],
            output.clock(task["created"]),
            *(_as_columns(costs[name]) if cost else ()),
            shortened(task["input"], 60),
        )
        for name, task in found.items()
    ]
    costly = ("model calls", "cost") if cost else ()
    columns = ("task", "status", "agent", "created (UTC)", *costly, "input")
    return output.listed(data, "No tasks.", columns, lines, as_json=common.json, state=1)


async def _plain(found: WorkflowExecutionInfo) -> Mapping[str, Json]:
    return plain_memo(found)


async def _listed(service: Service, wanted: Wanted, memo_of: ReadMemo) -> tuple[Tasks, str]:
    """Return the tasks of a list, newest first, by their ids, and the next list's token.

    Args:
        service: The server.
        wanted: Which tasks.
        memo_of: Reads the memo of a run.

    Raises:
        RPCError: The server does not list them.
    """
    try:
        found, more = await newest_tasks(service.calls, service.namespace, wanted, memo_of)
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "Hf" in error.message:
            return {}, ""  # a namespace without the attributes of tasks has none
        raise
    return {each["task_id"]: each for each in found}, more


async def _by_client(
    common: Common, wanted: Wanted, *, cost: bool
) -> tuple[Tasks, str, dict[str, Usage | None]]:
    """Return the tasks, the next list's token, and what each has cost if that is wanted.

    Costs need the whole client, and so do encrypted lists, and an archive that is named: it is
    checked to be the one of the namespace, by which a health check sees that it can be read.
    """
    from holdfast.cli.connection import engine_of
    from holdfast.reading.visibility import read_memo

    async with engine_of(common) as engine:
        client = engine.client
        service = Service(client.workflow_service, client.namespace)
        found, more = await _listed(service, wanted, partial(read_memo, client.data_converter))
        if not cost:
            return found, more, {}
        from holdfast.cli.commands.lists.costs import costs_of

        return found, more, await costs_of(engine.runner(), [*found])


def _state(task: dict[str, Json]) -> str:
    words = [task["status"].replace("_", " "), task["blocked_by"]]
    return ": ".join(word for word in words if word)


def _as_columns(usage: Usage | None) -> tuple[str, str]:
    if usage is None:
        return "unknown", "unknown"
    return str(usage.requests), usage.cost_shown


def _as_data(usage: Usage | None) -> dict[str, Json]:
    from holdfast.values.messages import cost_written

    if usage is None:
        return {"usage": None, "cost": None}
    return {"usage": usage.model_dump(mode="json"), "cost": cost_written(usage)}
