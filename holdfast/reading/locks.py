"""Legal holds of S3 on the files of what is held, where the archive's bucket has Object Lock."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from holdfast.archive.archive import Archive, places_of
from holdfast.archive.bytestore import (
    CONTENTS_SCOPE,
    EFFECTS,
    FORKS,
    KEY_FILE,
    LOCKS,
    NAMES_SCOPE,
    SUPERSEDED,
    copy_path,
    folder_of,
    key_id,
    key_path,
)
from holdfast.archive.holds import Hold, read_holds
from holdfast.errors import ArchiveError, HoldfastError, NotFoundError, message_of
from holdfast.reading.audit.bundle import Noting
from holdfast.reading.audit.verification import evidence, verified_session
from holdfast.reading.erasable import closure_of, roots_of
from holdfast.reading.reader import Reader
from holdfast.values.base import digest, in_order
from holdfast.values.checks.gate import as_array


async def lock(reader: Reader, held: Hold) -> Hold:
    """Lock the files of what is held; return the hold with their number.

    Which ones is written down first: `unlock` knows them, whatever was killed meanwhile.

    Raises:
        ArchiveError: Not all are locked; it is held all the same.
    """
    archive = reader.archive
    try:
        if not await archive.alock((), on=True):
            return held
        paths = await _files(reader, held)
        name = f"{folder_of(LOCKS, held.id)}/{digest(in_order(list(paths)))}.json"
        await archive.aput_record(name, list(paths))
        await archive.alock(paths, on=True)
    except HoldfastError as error:
        msg = f"It is held, but not all of its files are locked: {message_of(error)}"
        needs = "s3:GetBucketObjectLockConfiguration, s3:ListBucketVersions, s3:PutObjectLegalHold"
        raise ArchiveError(msg, remedy=f"Allow {needs}. Then hold it again.") from error
    return held.model_copy(update={"locked": len(paths)})


async def unlock(archive: Archive, held: Hold) -> None:
    """Unlock the files of a hold that ends, except what another hold has locked.

    Raises:
        ArchiveError: Not all are unlocked; the hold goes on.
    """

    async def kept() -> set[str]:
        others = [each.id for each in await read_holds(archive) if each.id != held.id]
        return await _locked(archive, others)

    freed = await _locked(archive, [held.id]) - await kept()
    await archive.alock(sorted(freed), on=False)
    await archive.alock(sorted(freed & await kept()), on=True)  # of a hold added meanwhile


async def _locked(archive: Archive, holds: Iterable[str]) -> set[str]:
    """Return the files that these holds have locked."""
    names = [name for each in holds for name in await archive.alist_records(folder_of(LOCKS, each))]
    return {str(path) for name in names for path in as_array(await archive.aget_record(name))}


async def _files(reader: Reader, held: Hold) -> list[str]:
    """Return the files of tasks and sessions: records, data keys, values that they refer to."""
    name, noted = held.code.partition(" ")[2], set[str]()
    archive = Noting(reader.archive, lambda sha256, _: noted.add(sha256))
    reading, roots, sessions = Reader(reader.client, archive), [name], list[str]()
    if held.kind != "task":
        roots = []
        with suppress(NotFoundError):  # what is to come may be held as well
            named = held.name if held.kind == "person" else name
            roots, sessions, _ = await roots_of(reader, held.kind, named)
    tasks = (await closure_of(reader, roots, with_forks=False, is_named=False)).heads
    for each in tasks:
        await evidence(reading, each)
    for each in sessions:
        await verified_session(reading, each)
    scopes, kinds = [*tasks, *sessions], ("tasks", EFFECTS, FORKS, SUPERSEDED)
    begins = [f"{folder_of(kind, each)}{end}" for kind in kinds for each in tasks for end in "./"]
    begins += [f"{folder_of('sessions', each)}." for each in sessions]
    begins += [key_path(key_id(each)) for each in (*scopes, NAMES_SCOPE, CONTENTS_SCOPE)]
    copies = tuple(copy_path("", key_id(each)) for each in scopes)
    own, values = (*begins, KEY_FILE), {path for e in noted for path in places_of(archive, e)}
    files = await archive.afiles()
    return [e for e in files if e in values or e.startswith(own) or e.endswith(copies)]
