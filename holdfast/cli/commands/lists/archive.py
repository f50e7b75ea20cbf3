"""`archive check`: what of the archive is broken, and which tasks depend on it."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from holdfast.archive.archive import Archive
from holdfast.archive.names import key_in
from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.errors import ErasedError, HoldfastError
from holdfast.reading.server_errors import server_errors
from holdfast.values.checks.json_shapes import as_object, as_text
from holdfast.values.code.some_at_once import some_at_once


class Broken(NamedTuple):
    """Something that cannot be read as it was written.

    Attributes:
        what: A file of the archive, or "task ID".
        why: What is wrong.
    """

    what: str
    why: str


async def archive_check_command(common: Common) -> ExitCode:
    """Read the whole archive and verify each closed task; exit with 1 if something is broken."""
    async with engine_of(common) as engine:
        files, tasks, found = await check(engine)
    if common.json:
        facts = {"files": files, "tasks": tasks, "broken": [each._asdict() for each in found]}
        output.emit(facts)
    else:
        output.say(f"{files} files and {tasks} closed tasks were read.")
        if found:
            output.rows(("broken", "why"), found)
    return ExitCode.FAILED if found else ExitCode.OK


async def check(engine: Engine) -> tuple[int, int, list[Broken]]:
    """Check an archive.

    Returns:
        How many files and closed tasks were looked at, and what is broken: files, then tasks.

    Raises:
        ArchiveError: The archive cannot be read at all.
        ConnectError: The server could not be reached.
    """
    archive = engine.archive
    files = await archive.afiles()
    why = await some_at_once(archive.aproblem_of, files)
    found = [Broken(*each) for each in zip(files, why, strict=True) if each[1]]
    names = await archive.alist_records("tasks")
    with server_errors():
        of_tasks = await some_at_once(partial(_of_task, engine), names)
    return len(files), len(names), [*found, *(each for some in of_tasks for each in some)]


async def _of_task(engine: Engine, name: str) -> list[Broken]:
    """Verify the task of a record."""
    task_id = await _id_of(engine.archive, name)
    try:
        found = await engine.runner().verify(task_id)
    except ErasedError:
        return []
    except HoldfastError as error:
        return [Broken(f"task {task_id}", str(error))]
    return [Broken(f"task {task_id}", each.text) for each in found]


async def _id_of(archive: Archive, name: str) -> str:
    """Return the id of a record's task; the name of a damaged record has it, or its beginning."""
    try:
        record = as_object(await archive.afind_record(name))
    except HoldfastError:
        return key_in(name)
    return as_text(as_object(record.get("task")).get("task_id")) or key_in(name)
