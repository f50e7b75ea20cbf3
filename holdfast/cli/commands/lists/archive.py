"""`archive check`: what of the archive is broken; `backup`: whether a copy of it is whole."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import ERASURES, HOLDS, key_in
from holdfast.archive.holds import broken_signatures, coded
from holdfast.cli import output
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.errors import ErasedError, HoldfastError, InvalidArgumentError
from holdfast.reading.queries import server_errors
from holdfast.task.data.records import check_signature, has_key, signed
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_array, as_object, as_text
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
    text = f"{files} files and {tasks} closed tasks were read."
    return _told({"files": files, "tasks": tasks}, text, found, as_json=common.json)


def _told(facts: dict[str, Json], text: str, found: list[Broken], *, as_json: bool) -> ExitCode:
    if as_json:
        output.emit({**facts, "broken": [each._asdict() for each in found]})
    else:
        output.say(text)
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
    changed = "its signature is that of no known key: it was changed"
    found += [Broken(each, changed) for each in await broken_signatures(archive)]
    names = await archive.alist_records("tasks")
    found += await _erased(archive, [*names, *await archive.alist_records("sessions")])
    with server_errors():
        of_tasks = await some_at_once(partial(_of_task, engine), names)
    return len(files), len(names), [*found, *(each for some in of_tasks for each in some)]


async def _erased(archive: Archive, names: list[str]) -> list[Broken]:
    """Return what was erased and is not in a certificate."""

    async def look(name: str) -> Broken | None:
        try:
            record = as_object(await archive.afind_record(name))
            if "erased" not in record:
                return None
            proof = as_object(await archive.afind_record(as_text(record.get("by"))))
        except HoldfastError:
            return None  # it is listed as a file that is broken
        key, named = key_in(name), {*as_array(proof.get("tasks")), *as_array(proof.get("sessions"))}
        if key in named or await coded(archive, f"session {key}") in named:
            return None
        why = "it was erased, and no certificate says so, unless the erasure is still in progress"
        return Broken(name, why)

    return [each for each in await some_at_once(look, names) if each is not None]


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


NEVER_CHANGED = ("blobs/", f"{ERASURES}/", f"{HOLDS}/")
MANIFEST = "holdfast manifest"


async def backup_command(common: Common, manifest: Path, *, copy: str | None) -> ExitCode:
    """Write the digest of each file of the archive, signed if there is a key; or compare a copy."""
    if copy is not None:
        return await compare(manifest, copy, as_json=common.json)
    async with engine_of(common) as engine:
        archive = engine.archive
        files = await archive.afiles()
        found = zip(files, await some_at_once(archive.afingerprint, files), strict=True)
        id = await archive.aarchive_id()
    listed: dict[str, Json] = {path: sha256 for path, sha256 in found if sha256}
    made: dict[str, Json] = {"archive": id, "made": time.time(), "files": listed}
    text = json.dumps(signed(made, id, MANIFEST), indent=0)
    await asyncio.to_thread(manifest.write_text, text, encoding="utf-8")
    output.say(f"{manifest} has the digests of {len(listed)} files.")
    return ExitCode.OK


async def compare(file: Path, url: str, *, as_json: bool) -> ExitCode:
    """Compare a copy of the archive with a manifest; exit with 1 if something is missing.

    A record may be newer than the manifest: the archive was written to before it was copied.

    Raises:
        InvalidArgumentError: The file is another one, or was changed.
        ArchiveError: The copy cannot be read.
    """
    try:
        manifest = as_object(json.loads(await asyncio.to_thread(file.read_bytes)))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{str(file)!r} cannot be read: {error}.") from None
    files = as_object(manifest.get("files"))
    is_ours = check_signature(manifest, as_text(manifest.get("archive")), MANIFEST)
    if not files or is_ours is not (True if has_key() else None):
        msg = f"{str(file)!r} is another file than a manifest, or was changed since."
        raise InvalidArgumentError(msg)
    there = await some_at_once(Archive(url).afingerprint, [*files])
    pairs = list(zip(files.items(), there, strict=True))
    found = [Broken(path, "missing") for (path, _), now in pairs if not now]
    newer = [path for (path, before), now in pairs if now and now != before]
    found += [Broken(each, "changed") for each in newer if each.startswith(NEVER_CHANGED)]
    others = [each for each in newer if not each.startswith(NEVER_CHANGED)]
    problems = await some_at_once(Archive(url).aproblem_of, others)
    found += [Broken(*each) for each in zip(others, problems, strict=True) if each[1]]
    text = f"{len(files)} files of the manifest; {len(newer)} are others now."
    return _told({"files": len(files), "newer": len(newer)}, text, found, as_json=as_json)
