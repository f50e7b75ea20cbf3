"""A bundle: all that is known of tasks, in one file that can be verified without Holdfast.

Everything that verifying a task reads goes into the bundle, so nothing that proves it is left out.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from zipfile import ZIP_DEFLATED, ZipFile

from holdfast.archive.archive import Archive
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.reading.audit import check_bundle
from holdfast.reading.audit.audit import AuditEvent, audit_events
from holdfast.reading.audit.verification import Kept, Verification, evidence, sealed
from holdfast.reading.reader import Reader
from holdfast.task.data.records import Seal, signed
from holdfast.values.base import Json, canonical, digest
from holdfast.values.version import __version__


class Bundle(NamedTuple):
    """A bundle that was written.

    Attributes:
        file: The file.
        digest: SHA-256 of its manifest, which names the digests of all other files.
        tasks: Its tasks, each with what its verification found.
        missing: Tasks that others had called and that could not be read, each with the reason.
    """

    file: Path
    digest: str
    tasks: dict[str, Verification]
    missing: dict[str, str]


Pages = Callable[[str, Verification], Awaitable[Mapping[str, bytes]]]
"""Makes further files for a task's folder of what was verified, such as a page to read."""


async def write_bundle(
    reader: Reader,
    tasks: Iterable[str],
    file: Path,
    *,
    pages: Pages | None = None,
    taken_back: Collection[str] = (),
) -> Bundle:
    """Write a bundle of tasks, and of the tasks that they have called.

    It appears whole or not at all, and its owner alone can read it.

    Args:
        reader: Reads the tasks.
        tasks: Ids of the tasks.
        file: Where to write; there must be nothing yet.
        pages: Makes further files.
        taken_back: Ids of further tasks, whose turns their session has not any more. One that does
            not exist is only named.

    Raises:
        InvalidArgumentError: There is such a file already, or its directory cannot be written.
        TaskNotFoundError: One of the tasks does not exist.
        ConnectError: The server could not be reached.
    """
    with _writer(file) as bundle:

        def copy(sha256: str, data: bytes) -> None:
            bundle.add(check_bundle.value_name(sha256), data)

        reading = Reader(reader.client, Noting(reader.archive, copy))
        asked = dict.fromkeys(tasks)
        todo, told = [*asked, *taken_back], list[Json]()
        done, missing = dict[str, Verification](), dict[str, str]()
        while todo:
            task_id = todo.pop(0)
            if task_id in done or task_id in missing:
                continue
            try:
                found, events, facts = await _one(reading, task_id, bundle)
            except HoldfastError as error:
                if task_id in asked:
                    raise
                missing[task_id] = str(error)
                continue
            done[task_id] = found
            told.append(facts)
            if pages is not None:
                for name, data in (await pages(task_id, found)).items():
                    bundle.add(f"{_folder(task_id)}/{name}", data)
            todo += sorted({event.child for event in events if event.child})
        bundle.add("verify.py", inspect.getsource(check_bundle).encode())
        manifest: dict[str, Json] = {
            "format": 1,
            "made": time.time(),
            "by": f"holdfast {__version__}",
            "namespace": reader.client.namespace,
            "tasks": told,
            "missing": dict(missing),
            "taken_back": list[Json](taken_back),
            "files": dict(bundle.digests),
        }
        data = canonical(signed(manifest, "", "holdfast export"))
        bundle.add(check_bundle.MANIFEST, data)
    return Bundle(file, digest(data), done, missing)


async def _one(
    reader: Reader, task_id: str, bundle: _Writer
) -> tuple[Verification, list[AuditEvent], dict[str, Json]]:
    """Add a task; return what was found, its audit, and what the manifest says of it."""
    kept, found = await evidence(reader, task_id)
    facts: dict[str, Json] = {
        "id": task_id,
        "folder": "",
        "findings": [each.text for each in found],
        "proved": list[Json](found.proved),
        "unproved": list[Json](found.unproved),
    }
    if kept is None:  # its record is lost or damaged: the findings say so
        return found, [], facts
    entries, opens = await reader.ledger(task_id, legible=True)
    events = audit_events(entries, opens=opens, asker=kept.head.asker)
    folder = _folder(task_id)
    bundle.add(f"{folder}/record.json", canonical(_record(kept)))
    lines = [json.dumps(event.model_dump(mode="json"), ensure_ascii=False) for event in events]
    bundle.add(f"{folder}/audit.jsonl", "".join(f"{line}\n" for line in lines).encode())
    known = None if kept.record is None else await sealed(reader, task_id)
    proof = known.record if isinstance(known, Seal) else None
    return found, events, {**facts, "folder": folder, "is_open": kept.is_open, "seal": proof}


def _record(kept: Kept) -> dict[str, Json]:
    """Return the record of a closed task as it is stored, or the same of one that has none."""
    if kept.record is not None:
        return kept.record
    return {
        "head": kept.head.wire(),
        "segment": kept.segment.wire() if kept.segment else None,
        "entries": kept.entries,
        "opens": [each.wire() for each in kept.opens],
        "ledger": list(kept.ledger),
    }


def _folder(task_id: str) -> str:
    return f"tasks/{quote(task_id, safe='')}"


class _Writer:
    """Writes the files of a bundle, each once; threads may share it.

    Attributes:
        digests: SHA-256 of each file.
    """

    def __init__(self, bundle: ZipFile) -> None:
        """Write to this file."""
        self.digests: dict[str, str] = {}
        self._bundle = bundle
        self._lock = threading.Lock()

    def add(self, name: str, data: bytes) -> None:
        """Add a file, unless there is one of this name."""
        with self._lock:
            if name not in self.digests:
                self._bundle.writestr(name, data)
                self.digests[name] = digest(data)


@contextmanager
def _writer(file: Path) -> Generator[_Writer]:
    """Write a bundle next to its place, and put it there once it is whole."""
    remedy = "Name another one: evidence is not replaced."
    try:
        if file.exists():
            raise FileExistsError
        handle, part = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")  # its owner's
        try:
            with os.fdopen(handle, "wb") as stream:
                with ZipFile(stream, "w", ZIP_DEFLATED) as bundle:
                    yield _Writer(bundle)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(part, file)  # which replaces nothing
        finally:
            Path(part).unlink()
    except FileExistsError:
        msg = f"There is a file {str(file)!r} already."
        raise InvalidArgumentError(msg, remedy=remedy) from None
    except OSError as error:
        msg = f"The bundle {str(file)!r} cannot be written: {error}"
        raise InvalidArgumentError(msg) from error


class Noting(Archive):
    """An archive that notes each value which is read from it, by its digest."""

    def __init__(self, archive: Archive, note: Callable[[str, bytes], None]) -> None:
        """Read from this archive: its store, its keys and its caches are shared."""
        vars(self).update(vars(archive))
        self._note = note

    def get(self, sha256: str) -> bytes:
        """Return the bytes stored under this digest."""
        data = super().get(sha256)
        self._note(sha256, data)
        return data
