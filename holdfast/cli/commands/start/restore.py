"""`restore`: what the archive has and a restored database of Temporal has not."""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import datetime
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from holdfast.activities.tools.lookup import name_after, unknown_of
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import EFFECTS, ERASURES, SUPERSEDED, key_in
from holdfast.archive.segments import check_erased
from holdfast.archive.session_commits import find_run
from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.search_attributes import OPEN_TASKS
from holdfast.errors import CommandRefusedError, ErasedError, HoldfastError, TaskNotFoundError
from holdfast.reading.erasable import with_names
from holdfast.reading.queries import server_errors
from holdfast.task.data.wire import EffectMark, Erasure
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import as_object, as_text
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.steps import Task
from holdfast.values.text.redact import redact

V = TypeVar("V", bound=Value)

DAMAGED, REFUSED = "damaged", "refused"


class Forgotten(NamedTuple):
    """One thing that the database has forgotten, or that cannot be read.

    Attributes:
        task: The task.
        kind: "effect", "closed task", "other end", "erased", "refused" of what is not
            erased again, or "damaged".
        at: When the effect began or the task ended, seconds since the epoch; 0 if that is unknown.
        text: What to know of it.
    """

    task: str
    kind: str
    at: float
    text: str


class _Ended(Value):
    """What matters of a `TaskRecord`."""

    task: Task
    ended: float = 0.0
    prepared: bool = False

    @property
    def or_nearly(self) -> str:
        """What to add of an end whose only proof was in the database that has forgotten it."""
        return " or about to be" if self.prepared else ""


async def restore_command(common: Common, since: datetime, *, erase_again: bool) -> ExitCode:
    """List effects and ends since a time that the archive knows and the history does not.

    And what was erased since then and is back; with `erase_again` that is erased again. Exit
    with 1 if a mark or a record of the archive cannot be read, or something is held by now.

    Raises:
        EngineError: The server or the archive cannot be used.
    """
    async with engine_of(common) as engine:
        found = await forgotten(engine, since.timestamp())
        with server_errors():
            back = await brought_back(engine, since.timestamp(), found)
        for proof in back if erase_again else ():
            try:
                await engine.runner().erase_again(proof)
            except CommandRefusedError as error:  # the others go
                found.append(
                    Forgotten(as_text(proof.get("task")), REFUSED, time.time(), str(error))
                )
    data = [each._asdict() for each in found]
    rows = [(each.task, each.kind, output.clock(each.at), redact(each.text)) for each in found]
    none = "The database has all that the archive has."
    columns = ("task", "what", "when (UTC)", "the archive knows")
    output.listed(data, none, columns, rows, as_json=common.json)
    return (
        ExitCode.FAILED if any(each.kind in {DAMAGED, REFUSED} for each in found) else ExitCode.OK
    )


async def forgotten(engine: Engine, since: float) -> list[Forgotten]:
    """Return what the archive knows and the database does not, the oldest first.

    Args:
        engine: The engine.
        since: Time from which on, seconds since the epoch. It does not count for ends of tasks that
            are open, or have come to another end.

    Raises:
        EngineError: The server or the archive cannot be used.
    """
    found: list[Forgotten] = []
    with server_errors():
        await _effects(engine, since, found)
        await _ends(engine, since, found)
    return sorted(found, key=lambda each: each.at)


async def _effects(engine: Engine, since: float, found: list[Forgotten]) -> None:
    """Find the marks of calls that no history has; the last of each place tells of all."""
    marks = await _read(engine.archive, EFFECTS, EffectMark, found)
    of_tasks = defaultdict[str, list[EffectMark]](list)
    for name, each in marks.items():
        if each.begun >= since and name_after(name, each) not in marks:
            of_tasks[each.task].append(each)

    async def look(marks: list[EffectMark]) -> None:
        for each in await unknown_of(engine.client, marks):
            text = f"{each.what}: {each.status or 'begun'}"
            found.append(Forgotten(each.task, "effect", each.begun, text))

    await some_at_once(look, [*of_tasks.values()])


async def _ends(engine: Engine, since: float, found: list[Forgotten]) -> None:
    """Find the tasks that had closed, and are open or unknown; and ends that others replaced."""
    describe = engine.runner().reader.describe

    async def look(each: _Ended) -> None:
        now, task = "open again", each.task
        if task.task_id not in open_now:
            if 0 < each.ended < since:  # Temporal forgets such tasks anyway, after its retention
                return
            try:
                await describe(task.task_id)
                return
            except TaskNotFoundError:
                now = "not known to the database"
        text = f"closed ({task.status}){each.or_nearly}, {now}"
        found.append(Forgotten(task.task_id, "closed task", each.ended, text))

    for each in (await _read(engine.archive, SUPERSEDED, _Ended, found)).values():
        text = f"{each.task.status}{each.or_nearly} before another end took its place"
        found.append(Forgotten(each.task.task_id, "other end", each.ended, text))
    open_now = {each.id async for each in engine.client.list_workflows(OPEN_TASKS)}
    await some_at_once(look, [*(await _read(engine.archive, "tasks", _Ended, found)).values()])


async def brought_back(
    engine: Engine, since: float, found: list[Forgotten]
) -> list[dict[str, Json]]:
    """Find what was erased and Temporal knows again; return the certificates of it."""
    back: list[dict[str, Json]] = []

    async def look(name: str) -> None:
        proof = as_object(await engine.archive.afind_record(name))
        given = Erasure.model_validate(proof)
        if (done := float(str(proof["done"]))) < since:
            return
        sessions = (await with_names(engine.runner().reader, given)).sessions
        known = [
            each
            for each in (*given.tasks, *sessions)
            if await find_run(engine.client, each) is not None
        ]
        text = f"erased by {given.by}: {given.reason}"
        found.extend(Forgotten(each, "erased", done, text) for each in known)
        back.extend([proof] if known else [])

    await some_at_once(look, await engine.archive.alist_records(ERASURES))
    return back


async def _read(
    archive: Archive, folder: str, kind: type[V], found: list[Forgotten]
) -> dict[str, V]:
    """Read what is in a folder, by name; say of what cannot be read that it is damaged."""

    async def one(name: str) -> V | None:
        try:
            data = await archive.afind_record(name)
            check_erased(data)
            return None if data is None else kind.model_validate(data)
        except ErasedError:
            return None
        except ValidationError as error:
            why = f"{name!r} has {error.error_count()} fields that cannot be read."
        except HoldfastError as error:
            why = str(error)
        task = key_in("/".join(name.split("/")[:2]))
        found.append(Forgotten(task, DAMAGED, 0.0, why))
        return None

    names = await archive.alist_records(folder)
    read = zip(names, await some_at_once(one, names), strict=True)
    return {name: each for name, each in read if each is not None}
