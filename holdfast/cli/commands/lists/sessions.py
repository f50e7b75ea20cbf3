"""`sessions`: a list of conversations, and what was said in one."""

from __future__ import annotations

import asyncio
from functools import partial

from holdfast.archive.segments import turns
from holdfast.cli import output
from holdfast.cli.commands.open_questions import READ_SECONDS, TURNLESS
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import NotFoundError, NoWorkerError, QueryFailedError, TaskNotFoundError
from holdfast.reading.visibility import list_sessions
from holdfast.task.data.state import CommitRef
from holdfast.values.checks.ids import DEFAULT_APP, check_app
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import shown
from holdfast.values.text.shown import instead

NEWEST = 200
"""Sessions among which the one is looked for that a wrong name may mean."""


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
    data = [
        {"session": each.name, "turns": turns, "last_task": task}
        for each, (turns, task) in zip(found, lengths, strict=True)
    ]
    rows = [
        (each.name, "unknown" if turns is None else str(turns), task or "")
        for each, (turns, task) in zip(found, lengths, strict=True)
    ]
    columns = ("session", "turns", "last task")
    return output.listed(data, "No sessions.", columns, rows, as_json=common.json, limit=limit)


async def _length(runner: AgentRunner, name: str) -> tuple[int | None, str | None]:
    """Count the turns of a session, and name the task of the last one; None where not known."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            found = await turns_of(runner, name)
    except (NoWorkerError, QueryFailedError, TaskNotFoundError, TimeoutError):
        return None, None
    # A turn that a program has appended has a name of its own.
    tasks = [each.task for each in found if not each.task.startswith("-")]
    return len(found), tasks[-1] if tasks else None


async def turns_of(runner: AgentRunner, name: str) -> list[CommitRef]:
    """Return the turns of a session, oldest first."""
    id_ = runner.session(name).id
    return await turns(runner.archive, await runner.reader.session(id_))


async def _messages(common: Common, runner: AgentRunner, name: str, app: str) -> ExitCode:
    """Print what was said in a session, oldest first; with `--json` its items."""
    try:
        await turns_of(runner, name)
    except TaskNotFoundError:
        known = [each.name for each in await list_sessions(runner.client, app, NEWEST)]
        msg = f"There is no session {name!r} of app {app!r}: it has no turns, or was deleted."
        msg += instead(name, known)
        raise NotFoundError(msg, remedy=TURNLESS) from None
    if common.json:
        for item in await runner.session(name).get_items():
            output.emit(item)
        return ExitCode.OK
    for message in await runner.session(name).chat_history(legible=True):
        calls = ", ".join(call.name for call in message.calls)
        text = shown(message.content) or (f"calls {calls}" if calls else "")
        output.answer(f"{message.role:<10} {text}")
    return ExitCode.OK
