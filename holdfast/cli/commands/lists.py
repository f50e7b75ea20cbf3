"""`tasks` and `sessions`: lists of tasks and of conversations, and what was said in one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

from holdfast.archive.segments import turns
from holdfast.cli import output
from holdfast.cli.commands.open_questions import READ_SECONDS
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import (
    InvalidArgumentError,
    NotFoundError,
    NoWorkerError,
    QueryFailedError,
    TaskNotFoundError,
)
from holdfast.reading.visibility import LISTED, list_sessions
from holdfast.task.data.state import CommitRef, SessionState
from holdfast.values.base import Json
from holdfast.values.checks.ids import DEFAULT_APP, check_app
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Usage, cost_written, shown
from holdfast.values.steps import Task, TaskStatus


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
    _tell_limit(len(found), limit)
    return ExitCode.OK


async def sessions_command(
    common: Common, name: str | None, *, app: str | None, limit: int
) -> ExitCode:
    """List sessions, or show the messages of one.

    Raises:
        NotFoundError: There is no such session.
    """
    app = DEFAULT_APP if app is None else check_app(app)
    async with engine_of(common) as engine:
        runner = engine.runner(app=app)
        if name is not None:
            return await _messages(common, runner, name, app)
        found = await list_sessions(runner.client, app, limit)
        lengths = await some_at_once(partial(_length, runner), [each.name for each in found])
    if common.json:
        for each, (turns, task) in zip(found, lengths, strict=True):
            output.emit({"session": each.name, "turns": turns, "last_task": task})
        return ExitCode.OK
    if not found:
        output.say("No sessions.")
        return ExitCode.OK
    rows = [
        (each.name, "unknown" if turns is None else str(turns), task or "")
        for each, (turns, task) in zip(found, lengths, strict=True)
    ]
    output.table(output.out(), ("session", "turns", "last task"), rows)
    _tell_limit(len(found), limit)
    return ExitCode.OK


def _tell_limit(count: int, limit: int) -> None:
    if count == limit:
        output.say(f"These are the newest {limit}; --limit shows more.")


async def _length(runner: AgentRunner, name: str) -> tuple[int | None, str | None]:
    """Count the turns of a session, and name the task of the last one; None where not known."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            found = await _turns(runner, name)
    except (NoWorkerError, QueryFailedError, TaskNotFoundError, TimeoutError):
        return None, None
    # A turn that a program has appended has a name of its own.
    tasks = [each.task for each in found if not each.task.startswith("-")]
    return len(found), tasks[-1] if tasks else None


async def _turns(runner: AgentRunner, name: str) -> list[CommitRef]:
    id_ = runner.session(name).id
    state = await runner.reader.query(id_, "state", SessionState, even_closed=True)
    return await turns(runner.archive, state)


async def _messages(common: Common, runner: AgentRunner, name: str, app: str) -> ExitCode:
    """Print what was said in a session, oldest first; with `--json` its items."""
    try:
        await _turns(runner, name)
    except TaskNotFoundError:
        msg = f"There is no session {name!r} of app {app!r}: it has no turns, or was deleted."
        raise NotFoundError(msg, remedy="Name the app of its tasks with --app.") from None
    if common.json:
        for item in await runner.session(name).get_items():
            output.emit(item)
        return ExitCode.OK
    for message in await runner.session(name).chat_history():
        calls = ", ".join(call.name for call in message.calls)
        text = shown(message.content) or (f"calls {calls}" if calls else "")
        output.answer(f"{message.role:<10} {text}")
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

    usages = await some_at_once(read, tasks)
    return {task.task_id: usage for task, usage in zip(tasks, usages, strict=True)}


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
