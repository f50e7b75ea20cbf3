"""Verifying a task: whether its record is what was recorded, and how far that is proven."""

from __future__ import annotations

from typing import NamedTuple, cast

from pydantic import ValidationError

from holdfast.archive.archive import Archive, record_name
from holdfast.archive.segments import read_segment
from holdfast.errors import (
    DAMAGED,
    ArchiveError,
    TaskClosedError,
    TaskNotFoundError,
)
from holdfast.reading.audit.audit import verify
from holdfast.reading.audit.session_verification import check_session
from holdfast.reading.audit.verification import Verification, check_named
from holdfast.reading.reader import Reader
from holdfast.reading.records import seal_of
from holdfast.task.data import seal
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, OpenState, SegmentRef
from holdfast.task.data.seal import Seal
from holdfast.task.data.state import CommitRef, TaskRecord
from holdfast.values.base import ChainRef, Json, extend, extend_json
from holdfast.values.checks.json_shapes import as_object
from holdfast.values.steps import Task

CONSISTENT = "The steps, events, arguments, results and decisions fit the digest of the ledger."
OPEN = "The ledger is the one that the task itself has, which is still open."
IN_RUN = "The record is the one whose digest Temporal keeps with the closed run."
SIGNED = "The record has a valid signature."

FORGOTTEN = "Temporal has forgotten the run, or never knew it: it has nothing to compare with."
UNSEALED = "Temporal knows the run, but it did not end by storing this record."
ENDED_OUTSIDE = "The run was ended with Temporal's own tools: its history alone tells of it."
UNSIGNED = "The record has no signature."
NO_KEY = f"The record is signed, and no key to check that is known: set {seal.KEY_VARIABLE}."
SELF_ONLY = (
    "Only that the record is consistent with itself is proven: whoever can write to the archive"
    " could have rewritten it."
)


class _Kept(NamedTuple):
    """What there is of a task, as it is stored.

    Attributes:
        segment: Newest segment of the archived part of the ledger.
        entries: The rest of it, which the task itself has.
        opens: Its steps in progress, or those that were at its end.
        ledger: Length and digest that the ledger must have.
        head: The task's head: agent, session and rules, fixed when it began.
        record: The record of a closed task, None of an open one.
        turn: What its record says that its session got.
        is_open: Whether the task is open.
    """

    segment: SegmentRef | None
    entries: list[Json]
    opens: tuple[OpenState, ...]
    ledger: ChainRef
    head: TaskHead
    record: dict[str, Json] | None = None
    turn: CommitRef | None = None
    is_open: bool = False


async def verified(reader: Reader, task_id: str) -> Verification:
    """Verify a task: its segments, its chain, its blobs, and what is kept of it elsewhere.

    Raises:
        TaskNotFoundError: No task has this id.
    """
    found = Verification()
    kept = await _kept(reader, task_id, found)
    if kept is None:
        return found
    entries = await _check_ledger(reader.archive, kept, found)
    await check_named(reader.archive, [kept.head, *entries, *kept.opens], found)
    for current in kept.opens:
        if current.chain != ChainRef(len(current.journal), extend("", current.journal)):
            text = "its recorded answers do not give their digest"
            found.add(text, step=current.open.step.step_id)
    await check_session(reader, kept.head, kept.turn, task_id, found)
    if kept.record is not None:
        await _check_record(reader, task_id, kept.record, found)
    elif kept.is_open:
        found.proved.append(OPEN)
    else:
        found.unproved.append(ENDED_OUTSIDE)
    return found


async def _kept(reader: Reader, task_id: str, found: Verification) -> _Kept | None:
    """Read what there is, open tasks from themselves; None when nothing can be compared.

    Raises:
        TaskNotFoundError: There is nothing.
    """
    try:
        return await _of_task(reader, task_id, even_closed=False)
    except (TaskClosedError, TaskNotFoundError) as closed:
        name = record_name("tasks", task_id)
        try:
            data = await reader.archive.afind_record(name)
        except ArchiveError as error:
            if not isinstance(error.__cause__, ValueError):
                raise
            found.cannot_read("the record", error)
            return None
        if data is not None and not await _is_left(reader, task_id, data):
            return _of_record(data, found)
        if isinstance(closed, TaskNotFoundError):
            raise
        if data is None and isinstance(await _sealed(reader, task_id), Seal):
            found.add(f"the task ended by storing its record, and the archive has no {name!r}")
            return None
        return await _of_task(reader, task_id, even_closed=True)


async def _is_left(reader: Reader, task_id: str, data: Json) -> bool:
    """Whether a record was prepared for an end that the task did not come to."""
    is_prepared = bool(as_object(data).get("prepared"))
    return is_prepared and await _sealed(reader, task_id) == UNSEALED


async def _of_task(reader: Reader, task_id: str, *, even_closed: bool) -> _Kept:
    page, entries = await reader.pages(task_id, even_closed=even_closed)
    data: list[Json] = [entry.wire() for entry in entries]
    head = await reader.head(task_id)
    return _Kept(page.segment, data, page.opens, page.ledger, head, is_open=not even_closed)


def _of_record(data: Json, found: Verification) -> _Kept | None:
    try:
        record = TaskRecord.model_validate(data)
    except ValidationError as error:
        found.cannot_read("the record", error)
        return None
    whole = cast("dict[str, Json]", data)
    return _Kept(record.segment, [], record.opens, record.ledger, record.head, whole, record.turn)


async def _check_ledger(archive: Archive, kept: _Kept, found: Verification) -> list[Entry]:
    """Check segments, chain and steps; return the entries, as far as they can be read."""
    archived = await _archived(archive, kept.segment, found)
    if archived is None:
        return []
    data = [*archived, *kept.entries]
    actual = ChainRef(len(data), extend_json("", data))
    if actual == kept.ledger:
        found.proved.append(CONSISTENT)
    else:
        found.add(
            f"the ledger has {actual.length} entries with the digest {actual.digest}, but"
            f" {kept.ledger.length} with the digest {kept.ledger.digest} were recorded"
        )
    try:
        entries = [Entry.model_validate(entry) for entry in data]
    except ValidationError as error:
        found.cannot_read("an entry of the ledger", error)
        return []
    found.extend(verify(entries))
    return entries


async def _archived(
    archive: Archive, newest: SegmentRef | None, found: Verification
) -> list[Json] | None:
    """Read the archived part of a ledger, the newest segment first; None when one is damaged.

    Only a segment names the one before it: those before a damaged one cannot be found.
    """
    parts: list[list[Json]] = []
    segment = newest
    while segment is not None:
        first, last = segment.start + 1, segment.start + segment.entries
        where = f"entries {first} to {last} of the ledger (segment {segment.number})"
        try:
            data = await read_segment(archive, segment)
        except DAMAGED as error:
            found.add(f"{where} are damaged: {error}")
            if segment.start:
                found.add(
                    f"entries 1 to {segment.start} of the ledger cannot be found: segment"
                    f" {segment.number}, which names them, is damaged"
                )
            return None
        except (ValueError, TypeError, KeyError) as error:
            found.cannot_read(where, error)
            return None
        parts.append(data.entries)
        segment = data.before
    return [entry for part in reversed(parts) for entry in part]


async def _check_record(
    reader: Reader, task_id: str, record: dict[str, Json], found: Verification
) -> None:
    """Compare a closed task's record with what is kept elsewhere, and check its signature."""
    await _check_task(reader.archive, task_id, record, found)
    outside = await _sealed(reader, task_id)
    proven = False
    if isinstance(outside, str):
        found.unproved.append(outside)
    elif seal.is_sealed(record, outside.record):
        found.proved.append(IN_RUN)
        proven = True
    else:
        found.add(
            f"the record has the digest {seal.record_digest(record)}, but the task ended with"
            f" {outside.record}: it was rewritten"
        )
    match seal.check_signature(record, task_id):
        case True:
            found.proved.append(SIGNED)
            proven = True
        case False:
            found.add("the record's signature is not that of a known key over this record")
        case None if record.get("signature"):
            found.unproved.append(NO_KEY)
        case None:
            found.unproved.append(UNSIGNED)
            if seal.has_key() and not proven:
                found.add("a key is known, but the record has no signature, nor any other proof")
    if not proven:
        found.unproved.append(SELF_ONLY)


async def _check_task(
    archive: Archive, task_id: str, data: dict[str, Json], found: Verification
) -> None:
    """Check that a record is that of this task, and the values that it names itself."""
    record = TaskRecord.model_validate(data)
    try:
        task = Task.model_validate(record.task)
    except ValidationError as error:
        found.cannot_read("the task of the record", error)
        return
    if task.task_id != task_id:
        found.add(f"the record is that of task {task.task_id!r}")
    await check_named(archive, [task, record.stored], found)


async def _sealed(reader: Reader, task_id: str) -> Seal | str:
    """Return what Temporal keeps of a closed task, or say why it has nothing."""
    try:
        kept = await seal_of(reader.client, await reader.describe(task_id))
    except TaskNotFoundError:
        return FORGOTTEN
    return kept or UNSEALED
