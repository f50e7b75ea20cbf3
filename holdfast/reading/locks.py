"""Legal holds of S3 on the files of what is held, where the archive's bucket has Object Lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from holdfast import errors
from holdfast.archive import bytestore as names
from holdfast.archive.archive import Archive, places_of
from holdfast.archive.holds import Hold, read_holds
from holdfast.errors import ArchiveError, ErasedError, NotFoundError, TaskNotFoundError
from holdfast.reading.audit.bundle import Noting
from holdfast.reading.audit.verification import evidence, verified_session
from holdfast.reading.erasable import closure_of, roots_of
from holdfast.reading.reader import Reader
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import SessionState
from holdfast.values.base import digest, in_order
from holdfast.values.checks.gate import as_array
from holdfast.values.steps import Task
from holdfast.values.text.logs import log

T = TypeVar("T")


async def lock(reader: Reader, held: Hold) -> Hold:
    """Lock the files of what is held; return the hold with their number.

    Which ones is written down first: `unlock` knows them, whatever was killed meanwhile.

    Raises:
        ArchiveError: Not all are locked; it is held all the same.
    """
    try:
        if not await reader.archive.alock((), on=True):
            return held
        paths, failed = await _files(reader, held)
        name = f"{names.folder_of(names.LOCKS, held.id)}/{digest(in_order(list(paths)))}.json"
        await reader.archive.aput_record(name, list(paths))
        await reader.archive.alock(paths, on=True)
        if failed:
            raise failed[0]
    except errors.HoldfastError as error:
        msg = f"It is held, but not all of its files are locked: {errors.message_of(error)}"
        remedy = f"{errors.remedy_of(error)} Then hold it again.".lstrip()
        raise ArchiveError(msg, remedy=remedy) from error
    return held.model_copy(update={"locked": len(paths)})


async def unlock(archive: Archive, held: Hold) -> None:
    """Unlock the files of a hold that ends, except what another hold has locked.

    Raises:
        ArchiveError: Not all are unlocked; this can be repeated.
    """

    async def kept() -> set[str]:
        return await _locked(archive, [e.id for e in await read_holds(archive) if e.id != held.id])

    freed = await _locked(archive, [held.id]) - await kept()
    if freed:
        await archive.alock(sorted(freed), on=False)
        await archive.alock(sorted(freed & await kept()), on=True)  # of a hold added meanwhile


async def _locked(archive: Archive, holds: Iterable[str]) -> set[str]:
    """Return the files that these holds have locked."""
    folders = [names.folder_of(names.LOCKS, each) for each in holds]
    lists = [name for each in folders for name in await archive.alist_records(each)]
    return {str(path) for name in lists for path in as_array(await archive.aget_record(name))}


class _Reading(Reader):
    """Takes for missing what cannot be read, such as without a worker process; keeps why."""

    failed: dict[str, errors.EngineError]

    async def query(self, task_id: str, *given: Any, **options: Any) -> Any:
        if task_id in self.failed:  # each further question would wait as long
            raise TaskNotFoundError(task_id)
        return await self.found(super().query, task_id, *given, **options)

    async def session(self, session_id: str) -> SessionState:
        return await self.found(super().session, session_id)

    async def task(self, task_id: str) -> Task:
        return await self.found(super().task, task_id)

    async def head(self, task_id: str) -> TaskHead:
        return await self.found(super().head, task_id)

    async def ledger(self, task_id: str, **options: Any) -> Any:
        with suppress(TaskNotFoundError):
            return await self.found(super().ledger, task_id, **options)
        return [], ()

    async def found(
        self, ask: Callable[..., Awaitable[T]], name: str, *given: Any, **options: Any
    ) -> T:
        """Ask for something by its name."""
        try:
            return await ask(name, *given, **options)
        except ErasedError:
            raise
        except errors.EngineError as error:
            self.failed.setdefault(name, error)
            raise TaskNotFoundError(name) from error


async def _files(reader: Reader, held: Hold) -> tuple[list[str], list[errors.EngineError]]:
    """Return the files of tasks and sessions, and why some of them are not known.

    They are records, data keys, and values that they refer to.
    """
    name, noted = (held.name if held.kind == "person" else held.code.partition(" ")[2]), set[str]()
    archive = Noting(reader.archive, lambda sha256, _: noted.add(sha256))
    reading, sessions = _Reading(reader.client, archive), list[str]()
    reading.failed, roots = {}, [name] if held.kind == "task" else list[str]()
    if held.kind != "task":
        with suppress(NotFoundError):  # what is to come may be held as well
            roots, sessions, unread = await roots_of(reading, held.kind, name)
            for each in unread:
                log.warning("Task %r cannot be read. It is not locked, whosever it is.", each)
    tasks = (await closure_of(reading, roots, with_forks=False, is_named=False)).heads
    scopes = {*tasks, *sessions, *reading.failed}
    for each in scopes:
        check = verified_session if each in sessions else evidence
        with suppress(TaskNotFoundError, ErasedError):
            await reading.found(partial(check, reading), each)
    values = {path for each in noted for path in places_of(archive, each)} | {names.KEY_FILE}
    ids = [names.key_id(each) for each in (names.NAMES_SCOPE, names.CONTENTS_SCOPE, *scopes)]
    values |= {names.key_path(each) for each in ids}
    values |= {names.record_name(kind, each) for kind in ("tasks", "sessions") for each in scopes}
    begins = tuple(f"{names.folder_of(kind, each)}/" for kind in names.OF_TASKS for each in scopes)
    copies = tuple(names.copy_path("", each) for each in ids)
    files = await archive.afiles()
    found = {e for e in files if e in values or e.startswith(begins) or e.endswith(copies)}
    # A value that none of these has for itself, such as an earlier turn: others have copies.
    lent = values - {each.partition("~/")[0] for each in found}
    found |= {each for each in files if each.partition("~/")[0] in lent}
    found |= {names.key_path(bytes.fromhex(e.partition("~/")[2])) for e in found if "~/" in e}
    return [each for each in files if each in found], list(reading.failed.values())
