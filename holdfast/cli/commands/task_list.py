"""`tasks`: the list of tasks."""

from __future__ import annotations

from typing import cast

from holdfast.cli import output
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.reading.visibility import LISTED
from holdfast.values.steps import TaskStatus


async def tasks_command(
    common: Common, *, status: str | None, agent: str | None, limit: int
) -> ExitCode:
    """List tasks."""
    async with engine_of(common) as engine:
        found = await engine.runner().list_tasks(
            cast("TaskStatus | None", status), agent, limit=limit
        )
    if common.json:
        for task in found:
            output.emit(task.model_dump(mode="json", include=LISTED))
        return ExitCode.OK
    if not found:
        output.say("No tasks.")
        return ExitCode.OK
    rows = [
        (t.task_id, t.status, t.agent, output.clock(t.created), output.shortened(t.input, 60))
        for t in found
    ]
    output.table(output.out(), ("task", "status", "agent", "created (UTC)", "input"), rows)
    if len(found) == limit:
        output.say(f"These are the newest {limit}; --limit shows more.")
    return ExitCode.OK
