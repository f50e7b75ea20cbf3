"""Marks in the archive of calls that must not be repeated, for a history that went back in time.

A database of Temporal that is restored from a backup has forgotten what tasks did since. The task
would make its payments again. So before such a call begins, the archive gets a mark of it. A mark
of an activity that the history does not have makes the call *unknown*: its tool's probe, or a
person, says whether it happened.

Without a restore a mark costs two small writes of a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.data.source import task_id, worker_identity
from holdfast.activities.heartbeat import NotOursError
from holdfast.archive.archive import Archive
from holdfast.archive.names import EFFECTS, folder_of
from holdfast.errors import ArchiveError, OutcomeUnknownError
from holdfast.task.data.failures import NOT_STARTED
from holdfast.task.data.wire import EffectMark
from holdfast.values.base import Json, digest
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


class Begun(NamedTuple):
    """A call that was marked.

    Attributes:
        mark: The mark.
        name: Name of its record.
    """

    mark: EffectMark
    name: str


async def begin_effect(archive: Archive, place: str, what: str) -> Begun:
    """Mark that a call begins; nothing may be called before.

    Each mark at a place follows an older one by name, and is created exclusively: of two databases
    that know the same marks, one begins the call.

    Args:
        archive: The namespace's archive.
        place: Place of the call in its task: it is the same when a restored task makes the call
            again, whatever it calls there then.
        what: What is called, for a person.

    Returns:
        The mark.

    Raises:
        OutcomeUnknownError: A forgotten activity, or one of another database, has begun a call
            there. When this error has reached the history and the call is scheduled again, a person
            has answered, and it begins.
        RPCError: The server does not answer, and nothing was called.
        ArchiveError: The archive cannot be read or written, and nothing was called.
        NotOursError: A later activity has begun the call: the server has given this one up.
    """
    info = activity.info()
    mine = EffectMark(
        task=task_id(),
        what=shown(what, 1000),
        activity=info.activity_id,
        scheduled=info.scheduled_time.timestamp(),
        started=info.started_time.timestamp(),
        begun=time.time(),
        worker=worker_identity(),
    )
    name, before = f"{folder_of(EFFECTS, task_id())}/{place}.json", None
    new = mine
    while True:
        # The first place is free, except in a restored task: to take it shows whether it is.
        found = None if before is None else await read_mark(archive, name)
        if found is None:
            if before is not None:
                new = await _following(before, mine, info.workflow_run_id)
            found = mark_of(name, await archive.acreate_record(name, new.wire()))
            if found == new:
                break
        name, before = name_after(name, found), found
    if before is None or not new.asks:
        return Begun(mine, name)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(before.begun))
    ended = f" and ended ({before.status})" if before.ended else ""
    raise OutcomeUnknownError(
        f"At this place of the task, {before.what} was begun at {when} UTC{ended}, and the history"
        " of the task does not have it: Temporal's database was probably restored from a backup."
    )


async def _following(before: EffectMark, mine: EffectMark, run: str | None) -> EffectMark:
    """Return the mark that follows another: of this call, or of the question about the other.

    Raises:
        NotOursError: The other is of a later activity.
    """
    # An activity makes one attempt. If it finds its own mark, it was handed out twice: also by the
    # database of a backup, where it still waited for a worker.
    is_mine = (before.activity, before.scheduled) == (mine.activity, mine.scheduled)
    if is_mine or await unknown_of(activity.client(), [before], run):
        who = mine.model_dump(include={"activity", "scheduled", "started"})
        return before.model_copy(update={**who, "asks": True})
    if before.scheduled > mine.scheduled:
        text = f"{mine.what} was begun again elsewhere."
        raise NotOursError(text, type=NOT_STARTED, non_retryable=True)
    return mine


def name_after(name: str, mark: EffectMark) -> str:
    """Return the name of what follows a mark at its place, however the marked call ends."""
    folder, _, last = name.rpartition("/")
    place = last.removesuffix(".json").partition("~")[0]
    made = digest(f"{name} {mark.activity} {mark.scheduled} {mark.started}".encode())
    return f"{folder}/{place}~{made[:32]}.json"


def end_effect(archive: Archive, begun: Begun, status: str) -> None:
    """Add to the mark how the call has ended. It only helps people, so nothing waits for it."""
    done = begun.mark.model_copy(update={"ended": time.time(), "status": status})
    writing = asyncio.create_task(_write_end(archive, begun.name, done))
    _ends.add(writing)
    writing.add_done_callback(_ends.discard)


_ends = set[asyncio.Task[None]]()
"""Ends that are being written: an event loop does not keep its tasks alive."""


async def _write_end(archive: Archive, name: str, done: EffectMark) -> None:
    try:
        await archive.aput_record(name, done.wire())
    except ArchiveError as error:
        log.warning("The end of a call is not marked in the archive: %s", error)


async def read_mark(archive: Archive, name: str) -> EffectMark | None:
    """Read a mark by the name of its record; None if nothing has that name.

    Raises:
        ArchiveError: It cannot be read.
    """
    found = await archive.afind_record(name)
    return None if found is None else mark_of(name, found)


def mark_of(name: str, found: Json) -> EffectMark:
    """Return the mark that a record holds.

    Raises:
        ArchiveError: It holds none.
    """
    try:
        return EffectMark.model_validate(found)
    except ValidationError as error:
        msg = f"The mark {name!r} of a call cannot be read: {error.error_count()} fields."
        raise ArchiveError(msg, remedy="Restore it from a backup, or delete it.") from None


async def unknown_of(
    client: Client, marks: Collection[EffectMark], run: str | None = None
) -> list[EffectMark]:
    """Return the marks of a task whose activities its history does not have.

    Of one that was to ask a person, it must have the error with which the activity asks: else
    no person was asked. The history is that of one run and of the runs that it continues. A run
    that `temporal workflow reset` has ended does not count. Activities are numbered: after a
    restore another activity has the same id, at another time. Or the same one starts again, which
    waited for a worker at the time of the backup.

    Args:
        client: A client of the namespace.
        marks: Marks of one task.
        run: The run; the newest one by default.

    Raises:
        RPCError: The server does not answer.
    """
    left, unknown = list(marks), list[EffectMark]()
    while left and (run is None or run):
        handle, run = client.get_workflow_handle(left[0].task, run_id=run), ""
        seen = dict[int, _Seen]()
        try:
            async for event in handle.fetch_history_events():
                began = event.workflow_execution_started_event_attributes
                sent = event.activity_task_scheduled_event_attributes
                taken = event.activity_task_started_event_attributes
                failed = event.activity_task_failed_event_attributes
                run, at = run or began.continued_execution_run_id, event.event_time.ToMicroseconds()
                if sent.activity_id:
                    seen[event.event_id] = _Seen(sent.activity_id, at / 1e6)
                elif taken.scheduled_event_id in seen:
                    seen[taken.scheduled_event_id].started = at / 1e6
                elif failed.scheduled_event_id in seen:
                    kind = failed.failure.application_failure_info.type
                    has_asked = kind == OutcomeUnknownError.__name__
                    seen[failed.scheduled_event_id].has_asked = has_asked
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        ids = {each.id: each for each in seen.values()}
        here = [mark for mark in left if mark.activity in ids and ids[mark.activity].is_of(mark)]
        unknown += [mark for mark in here if not ids[mark.activity].has(mark)]
        left = [mark for mark in left if mark not in here]
    return unknown + left


@dataclass
class _Seen:
    """An activity in a history, with the times of its events in seconds since the epoch."""

    id: str
    scheduled: float
    started: float | None = None
    has_asked: bool = False

    def is_of(self, mark: EffectMark) -> bool:
        """Whether it was scheduled when the activity of a mark was."""
        return abs(self.scheduled - mark.scheduled) < ROUNDING

    def has(self, mark: EffectMark) -> bool:
        """Whether it is the one that has made a mark, and has asked if that says so."""
        is_this = self.started is None or abs(self.started - mark.started) < ROUNDING
        return is_this and (self.has_asked or not mark.asks)


ROUNDING = 0.001
"""Of a time that two messages have, in seconds. A restore takes longer."""
