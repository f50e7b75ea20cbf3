"""`tasks`: the list of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from holdfast.cli import output
from holdfast.cli.commands.open_questions import READ_SECONDS
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import (
    InvalidArgumentError,
    NoWorkerError,
    QueryFailedError,
    TaskNotFoundError,
)
from holdfast.reading.visibility import LISTED
from holdfast.values.base import Json
from holdfast.values.messages import Usage, cost_written
from holdfast.values.steps import Task, TaskStatus

READ_AT_ONCE = 20
"""Tasks that are read side by side for their cost."""


async def tasks_command(
    common: Common, *, status: str | None, agent: str | None, limit: int, cost: bool
) -> ExitCode:
    """List tasks."""
    async with engine_of(common) as engine:
        runner = engine.runner()
        found = await runner.list_tasks(cast("TaskStatus | None", status), agent, limit=limit)
        costs = await _costs(runner, found) if cost else {}
    if common.json:
        for task in found:
            output.emit(task.model_dump(mode="json", include=LISTED) | _as_data(task, costs))
        return ExitCode.OK
    if not found:
        output.say("No tasks.")
        return ExitCode.OK
    more = ("model calls", "cost") if cost else ()
    rows = [
        (
            t.task_id,
            t.status,
            t.agent,
            output.clock(t.created),
            *(_as_columns(costs[t.task_id]) if cost else ()),
            output.shortened(t.input, 60),
        )
        for t in found
    ]
    columns = ("task", "status", "agent", "created (UTC)", *more, "input")
    output.table(output.out(), columns, rows)
    if len(found) == limit:
        output.say(f"These are the newest {limit}; --limit shows more.")
    return ExitCode.OK


async def _costs(runner: AgentRunner, tasks: Sequence[Task]) -> dict[str, Usage | None]:
    """Read what tasks have cost; None for one that cannot be read, as without a worker process."""

    async def read(task: Task) -> Usage | None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                return (await runner.get_task(task)).usage
        except (NoWorkerError, QueryFailedError, TaskNotFoundError, TimeoutError):
            return None
        except InvalidArgumentError:  # an id that only Temporal's own tools can give
            return None

    found: dict[str, Usage | None] = {}
    for start in range(0, len(tasks), READ_AT_ONCE):
        some = tasks[start : start + READ_AT_ONCE]
        usages = await asyncio.gather(*map(read, some))
        found |= {task.task_id: usage for task, usage in zip(some, usages, strict=True)}
    return found


def _as_columns(usage: Usage | None) -> tuple[str, str]:
    if usage is None:
        return "unknown", "unknown"
    return str(usage.requests), usage.cost_shown


def _as_data(task: Task, costs: dict[str, Usage | None]) -> dict[str, Json]:
    if task.task_id not in costs:
        return {}
    usage = costs[task.task_id]
    if usage is None:
        return {"usage": None, "cost": None}
    return {"usage": usage.model_dump(mode="json"), "cost": cost_written(usage)}
