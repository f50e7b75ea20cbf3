"""Archived parts of a ledger: content-addressed, so that forks share them and changes show."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from holdfast.archive.archive import Archive, record_name
from holdfast.archive.bytestore import FORKS, SUPERSEDED, folder_of
from holdfast.errors import DAMAGED, ArchiveError, ErasedError, message_of
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    Seal,
    SegmentRef,
    StepRecord,
    archived_entries,
    is_sealed,
    record_digest,
    signed,
)
from holdfast.task.data.state import CommitRef, SessionState, TaskRecord
from holdfast.values.base import Json, in_order
from holdfast.values.checks.gate import as_object, is_object
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Message
from holdfast.values.text.logs import log

T = TypeVar("T")


class Recent(Generic[T]):
    """Values used last, by name; bounded in size. Threads may share it."""

    def __init__(self, limit: int) -> None:
        """Set the bound in bytes or characters; one value may pass it."""
        self._limit = limit
        self._lock = threading.Lock()
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._size = 0

    def get(self, name: str) -> T | None:
        """Return a value, if it is here."""
        with self._lock:
            value, size = self._values.pop(name, (None, 0))
            if value is not None:
                self._values[name] = value, size
            return value

    def keep(self, name: str, value: T, size: int) -> None:
        """Remember a value of this size."""
        with self._lock:
            _, before = self._values.pop(name, (None, 0))
            self._values[name] = value, size
            self._size += size - before
            while self._size > self._limit and len(self._values) > 1:
                _, (_, dropped) = self._values.popitem(last=False)
                self._size -= dropped


# Garbage collection, put off while many values are made that will live on.

LONGEST_SECONDS = 1.0
"""How long after the first of several overlapping blocks another one may still join them."""


class _Collector:
    """The collector of this process, which blocks of several threads put off together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_on = False
        self._since = 0.0

    @contextmanager
    def put_off(self) -> Generator[None]:
        """Collect nothing in this process until the last of these blocks is left.

        One that comes late does not join, so that threads with many of them, one after the other,
        do not keep the garbage of others for good.
        """
        with self._lock:
            joins = not self._users or time.monotonic() < self._since + LONGEST_SECONDS
            if not self._users:
                self._was_on, self._since = gc.isenabled(), time.monotonic()
                gc.disable()
            self._users += joins
        try:
            yield
        finally:
            with self._lock:
                self._users -= joins
                if joins and not self._users and self._was_on:
                    gc.enable()


uncollected = _Collector().put_off
"""A context in which no cyclic garbage is collected, for code that makes many values that live on.

The collector runs each time that some hundred objects were made, and looks at many of those before
them again: that is more than half of the time that reading a long record takes. Objects without a
reference are freed as ever. The code must not wait: nothing is collected for others meanwhile.
"""


HEAVY_BYTES = 64 * 1024
"""Size of a segment above which it is read in a thread next to the event loop: about 2 ms."""


class Segment(NamedTuple):
    """What a segment of a ledger holds.

    Attributes:
        before: The segment before it, None of the oldest.
        entries: Its entries as JSON data, oldest first.
    """

    before: SegmentRef | None
    entries: list[Json]


class Part(NamedTuple):
    """A segment of a ledger that was read.

    Attributes:
        segment: The segment.
        data: Its bytes: less than its entries need in memory, and `entries_in` reads them again.
        entries: Its entries, oldest first.
    """

    segment: SegmentRef
    data: bytes
    entries: list[Entry]


async def write_segment(
    archive: Archive, entries: Sequence[Entry], before: SegmentRef | None = None
) -> SegmentRef:
    """Store ledger entries, oldest first, with the name of the segment before them."""
    data: dict[str, Json] = {
        "before": before.wire() if before is not None else None,
        "entries": [entry.wire() for entry in entries],
    }
    return SegmentRef(
        sha256=await archive.aput(in_order(data)),
        number=before.number + 1 if before is not None else 1,
        start=archived_entries(before),
        entries=len(entries),
    )


async def read_segment(archive: Archive, segment: SegmentRef) -> Segment:
    """Read one segment."""
    return _parsed(await archive.aget(segment.sha256))


def _parsed(data: bytes) -> Segment:
    found = json.loads(data)
    before = found["before"]
    return Segment(SegmentRef.model_validate(before) if before else None, found["entries"])


def entries_in(data: bytes) -> list[Entry]:
    """Return the entries that the bytes of a segment hold, oldest first."""
    return _entries(_parsed(data))


async def read_back(
    archive: Archive, newest: SegmentRef | None, *, skip: int = 0
) -> AsyncGenerator[Part]:
    """Yield segments with their entries, the newest first; arguments as for `read_archived`."""
    segment = newest
    while segment is not None and skip < archived_entries(segment):
        try:
            data = await archive.aget(segment.sha256)
        except DAMAGED as error:  # it alone names the one before it
            lost = f"Entries 1 to {archived_entries(segment)} of the ledger cannot be read"
            told = f"{lost} (segment {segment.number}). {message_of(error)}"
            raise type(error)(told, remedy=error.remedy) from error
        part, segment = await _read_part(segment, data)
        yield part


async def archived_step(archive: Archive, newest: SegmentRef | None, n: int) -> StepRecord | None:
    """Read a completed step of the present branch, None if it is not archived.

    Args:
        archive: The archive.
        newest: The newest segment, None when nothing is archived.
        n: Ordinal of the step, which the branch has: of one that was undone, and not repeated, the
            undone step is found.
    """
    async with aclosing(read_back(archive, newest)) as parts:
        async for part in parts:
            for entry in reversed(part.entries):  # the newest of this number is not undone
                if entry.step is not None and entry.step.n == n:
                    return entry.step
    return None


async def _read_part(segment: SegmentRef, data: bytes) -> tuple[Part, SegmentRef | None]:
    """Read the bytes of a segment; return it with the name of the one before it."""
    if len(data) > HEAVY_BYTES:
        return await asyncio.to_thread(_part, segment, data)
    return _part(segment, data)


def _part(segment: SegmentRef, data: bytes) -> tuple[Part, SegmentRef | None]:
    with uncollected():
        found = _parsed(data)
        return Part(segment, data, _entries(found)), found.before


def _entries(segment: Segment) -> list[Entry]:
    return [Entry.model_validate(each) for each in segment.entries]


async def read_archived(
    archive: Archive, newest: SegmentRef | None, *, skip: int = 0, legible: bool = False
) -> list[Entry]:
    """Read archived ledger entries, oldest first.

    Args:
        archive: The archive.
        newest: The newest segment, None when nothing is archived.
        skip: Number of entries not to read, counted from the oldest.
        legible: Whether an entry replaces the lost ones, and says why.

    Raises:
        BlobMissingError: Some are lost; the error says which ones.
        DigestMismatchError: As before.
    """
    found: list[Entry] = []
    try:
        async for part in read_back(archive, newest, skip=skip):
            found[:0] = part.entries[max(skip - part.segment.start, 0) :]
    except DAMAGED as error:
        if not legible:
            raise
        found.insert(0, Entry(event=EventRecord(kind="damaged", at=0, text=str(error))))
    return found


async def read_parts(archive: Archive, newest: SegmentRef | None) -> list[Part]:
    """Read the segments that hold archived ledger entries, oldest first."""
    return [part async for part in read_back(archive, newest)][::-1]


async def write_messages(archive: Archive, messages: Sequence[Message]) -> str:
    """Store a list of messages; return its digest."""
    return await archive.aput(in_order([message.wire() for message in messages]))


async def read_messages(archive: Archive, sha256: str, newest: int | None = None) -> list[Message]:
    """Read a list of messages.

    Args:
        archive: The archive.
        sha256: Digest of the list.
        newest: Number of the messages to read, counted from the last; None for all.
    """
    return _messages(await archive.aget(sha256), newest)


def _messages(data: bytes, newest: int | None = None) -> list[Message]:
    found = json.loads(data)
    wanted = found if newest is None else found[max(len(found) - newest, 0) :]
    return [Message.model_validate(each) for each in wanted]


async def read_json(archive: Archive, sha256: str) -> Json:
    """Read JSON data."""
    return json.loads(await archive.aget(sha256))


async def write_record(archive: Archive, task_id: str, record: TaskRecord) -> Seal:
    """Store a closed task under its id, signed if there is a key; return its digests.

    The record of another end is kept in the folder `superseded`. It may be all that tells of what
    the task did before Temporal's database was restored from a backup.
    """
    data, name = record.wire(), record_name("tasks", task_id)
    made, before = record_digest(data), await _readable(archive, name)
    if is_object(before) and not is_sealed(before, made):
        folder = folder_of(SUPERSEDED, task_id)
        await archive.aput_record(f"{folder}/{record_digest(before)}.json", before)
    await archive.aput_record(name, signed(data, task_id))
    return Seal(ledger=record.ledger, record=made)


async def _readable(archive: Archive, name: str) -> Json | None:
    """Return a record; None of one that is damaged: it must not keep the task from its end."""
    try:
        return await archive.afind_record(name)
    except ArchiveError as error:
        if not isinstance(error, DAMAGED) and not isinstance(error.__cause__, ValueError):
            raise
        log.warning("The record that another end has left is lost: %s", error)
        return None


def check_erased(data: Json) -> None:
    """Refuse the mark of an erased task, which replaces its record.

    Raises:
        ErasedError: It is that.
    """
    if is_object(data) and "erased" in data:
        told = "Its certificate is {!r} in the archive."
        raise ErasedError(str(data["erased"]), remedy=told.format(data.get("by")))


async def has_record(archive: Archive, task_id: str) -> bool:
    """Whether the archive has a record of a task, which is closed, or known to the server."""
    return await archive.ahas_record(record_name("tasks", task_id))


async def forks_of(archive: Archive, task_id: str) -> dict[str, int]:
    """Return the tasks that were forked from a task, and the number of the last shared step.

    Some may be gone, or have never begun.
    """
    names = await archive.alist_records(folder_of(FORKS, task_id))
    marks = map(as_object, await some_at_once(archive.aget_record, names))
    return {str(each["task"]): int(str(each["at"])) for each in marks}


async def turns(archive: Archive, state: SessionState, upto: int | None = None) -> list[CommitRef]:
    """Return a session's commits that are in force, oldest first: those after the last reset.

    Args:
        archive: The archive.
        state: The session's state.
        upto: Number of commits to look at, counted from the first; None for all.
    """
    found: list[CommitRef] = []
    erased: dict[str, CommitRef] = {}
    start = state.base
    page: Sequence[CommitRef] = state.commits
    older = list(state.older)
    while True:  # the newest first: what precedes a reset need not be read
        erased.update({each.erases: each for each in page if each.erases})  # also the later ones
        seen = page if upto is None else page[: max(upto - start, 0)]
        found[:0] = seen
        if not all(commit.sha256 for commit in seen) or not older:
            return in_force(found, erased)
        data: list[Json] = await read_json(archive, older.pop())
        page = [CommitRef.model_validate(each) for each in data]
        start -= len(page)


TURNS_BYTES = 32 * 1024 * 1024
MESSAGE_BYTES = 700
"""What a message takes in memory more than its JSON, as measured."""
_TURNS: WeakKeyDictionary[Archive, Recent[list[Message]]] = WeakKeyDictionary()


async def read_turns(archive: Archive, state: SessionState, upto: int) -> list[Message]:
    """Read the messages of a session's turns that are in force, oldest first.

    This process remembers what it has read, as the next turn reads the same ones again.

    Args:
        archive: The archive.
        state: The session's state.
        upto: Number of commits to look at, counted from the first.
    """
    commits = await turns(archive, state, upto)
    known = _TURNS.setdefault(archive, Recent[list[Message]](TURNS_BYTES))
    found = {commit.sha256: known.get(commit.sha256) for commit in commits}

    async def read(sha256: str) -> None:
        data = await archive.aget(sha256)
        found[sha256] = turn = _messages(data)
        known.keep(sha256, turn, len(data) + MESSAGE_BYTES * len(turn))

    await some_at_once(read, [sha256 for sha256, turn in found.items() if turn is None])
    return [message for commit in commits for message in found[commit.sha256] or ()]


def in_force(
    commits: Sequence[CommitRef], erased: Mapping[str, CommitRef] = MappingProxyType({})
) -> list[CommitRef]:
    """Return the commits after the last reset that no later one has replaced, oldest first.

    Args:
        commits: All of them.
        erased: Turns that replace the erased ones, by task.
    """
    return turns_in_force(commits, erased, lambda commit: commit)


def turns_in_force(
    turns: Sequence[T], erased: Mapping[str, T], commit_of: Callable[[T], CommitRef | None]
) -> list[T]:
    """Do as `in_force` does with turns; one without a commit stays where it is."""
    found: list[T] = []
    for turn in turns:
        if (commit := commit_of(turn)) is None:
            found.append(turn)
        elif not commit.erases and not commit.sha256:
            found.clear()
        elif not commit.erases:
            del found[max(len(found) - commit.replaces, 0) :]
            found.append(erased.get(commit.task, turn))
    return found


async def commit_at(archive: Archive, state: SessionState, n: int) -> CommitRef | None:
    """Return the commit that n others precede, or None if it does not exist yet."""
    if n >= state.base:
        found = state.commits[n - state.base :]
        return found[0] if found else None
    page, place = divmod(n, state.index_size)
    data: list[Json] = await read_json(archive, state.older[page])
    return CommitRef.model_validate(data[place])


async def committing_tasks(archive: Archive, state: SessionState) -> list[str]:
    """Return the tasks that have committed a turn, also before a reset; none that is erased."""
    pages: list[list[Json]] = await some_at_once(partial(read_json, archive), state.older)
    commits = [CommitRef.model_validate(each) for page in pages for each in page]
    commits += state.commits
    erased = {commit.erases for commit in commits}
    named = (commit.task for commit in commits if commit.task not in erased)
    # Turns that no task has committed have a name that begins with "-".
    return list(dict.fromkeys(task for task in named if task and not task.startswith("-")))
