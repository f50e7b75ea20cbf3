"""`restore`: what the archive has and a restored database of Temporal has not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import NamedTuple

from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.tools.begun_effects import is_known, read_mark
from holdfast.archive.archive import Archive
from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.search_attributes import OPEN_TASKS
from holdfast.reading.server_errors import server_errors
from holdfast.task.data.state import TaskRecord
from holdfast.task.data.wire import EffectMark
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.steps import Task
from holdfast.values.text.redact import redact


class Forgotten(NamedTuple):
    """One thing that the database has forgotten.

    Attributes:
        task: The task.
        kind: "effect", "closed task" or "other end".
        at: When it began, seconds since the epoch.
        text: What to know of it.
    """

    task: str
    kind: str
    at: float
    text: str


async def restore_command(common: Common, since: datetime) -> ExitCode:
    """List effects and ends since a time that the archive knows and the history does not.

    Raises:
        EngineError: The server or the archive cannot be used.
    """
    async with engine_of(common) as engine:
        found = await forgotten(engine, since.timestamp())
    for each in found if common.json else ():
        output.emit(each._asdict())
    if common.json:
        return ExitCode.OK
    if not found:
        output.say("The database has all that the archive has.")
        return ExitCode.OK
    rows = [(each.task, each.kind, output.clock(each.at), redact(each.text)) for each in found]
    output.rows(("task", "what", "began (UTC)", "the archive knows"), rows)
    return ExitCode.OK


async def forgotten(engine: Engine, since: float) -> list[Forgotten]:
    """Return what the archive knows and the database does not, the oldest first.

    Args:
        engine: The engine.
        since: Time from which on, seconds since the epoch.

    Raises:
        EngineError: The server or the archive cannot be used.
    """
    with server_errors():
        found = [*await _effects(engine, since), *await _ends(engine, since)]
    return sorted(found, key=lambda each: each.at)


async def _effects(engine: Engine, since: float) -> list[Forgotten]:
    """Return the marks of calls that no history has."""
    archive = engine.archive
    names = await archive.alist_records("effects")
    marks = await some_at_once(partial(read_mark, archive), names)

    async def lost(mark: EffectMark) -> bool:
        return not await is_known(engine.client, mark)

    recent = [each for each in marks if each is not None and each.begun >= since]
    are_lost = await some_at_once(lost, recent)
    return [
        Forgotten(each.task, "effect", each.begun, f"{each.what}: {each.status or 'begun'}")
        for each, is_lost in zip(recent, are_lost, strict=True)
        if is_lost
    ]


async def _ends(engine: Engine, since: float) -> list[Forgotten]:
    """Return the tasks that had closed, and are open or unknown; and ends that others replaced."""
    archive, found = engine.archive, list[Forgotten]()
    open_now = {each.id async for each in engine.client.list_workflows(OPEN_TASKS)}
    for folder in ("tasks", "superseded"):
        names = await archive.alist_records(folder)
        records = await some_at_once(partial(_record, archive), names)
        tasks = [Task.model_validate(each.task) for each in records if each is not None]
        found += [*_told(folder, [each for each in tasks if each.created >= since], open_now)]
    unsure = [each for each in found if each.kind == "closed task" and each.task not in open_now]
    known = dict(zip(unsure, await some_at_once(partial(_knows, engine), unsure), strict=True))
    return [each for each in found if not known.get(each)]


def _told(folder: str, tasks: list[Task], open_now: set[str]) -> Iterator[Forgotten]:
    for task in tasks:
        if folder == "superseded":
            text = f"{task.status} before another end took its place"
            yield Forgotten(task.task_id, "other end", task.created, text)
        else:
            now = "open again" if task.task_id in open_now else "not known to the database"
            text = f"closed ({task.status}), {now}"
            yield Forgotten(task.task_id, "closed task", task.created, text)


async def _knows(engine: Engine, found: Forgotten) -> bool:
    try:
        await engine.client.get_workflow_handle(found.task).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def _record(archive: Archive, name: str) -> TaskRecord | None:
    data = await archive.afind_record(name)
    return None if data is None else TaskRecord.model_validate(data)
