"""Marks in the archive of calls that must not be repeated, for a history that went back in time.

A database of Temporal that is restored from a backup has forgotten what tasks did since. The task
would make its payments again. So before such a call begins, the archive gets a mark of it. A mark
of an activity that the history does not have makes the call *unknown*: its tool's probe, or a
person, says whether it happened.

Without a restore a mark costs two small reads and two small writes of a call.
"""

from __future__ import annotations

import asyncio
import time

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
from holdfast.values.base import Json
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


async def begin_effect(archive: Archive, place: str, what: str) -> EffectMark:
    """Mark that a call begins; nothing may be called before.

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
    info, name = activity.info(), _name(place)
    mine = EffectMark(
        task=task_id(),
        what=shown(what, 1000),
        activity=info.activity_id,
        scheduled=info.scheduled_time.timestamp(),
        started=info.started_time.timestamp(),
        begun=time.time(),
        worker=worker_identity(),
    )
    before = await read_mark(archive, name)
    if before is None:  # not written blindly: a worker of the other database may come first
        before = mark_of(name, await archive.acreate_record(name, mine.wire()))
    # An activity makes one attempt. If it finds its own mark, it was handed out twice: also by the
    # database of a backup, where it still waited for a worker.
    elif (before.activity, before.scheduled) != (mine.activity, mine.scheduled) and await is_known(
        activity.client(), before, info.workflow_run_id
    ):
        if before.scheduled > mine.scheduled:  # its mark must stay: the call may have been made
            text = f"{mine.what} was begun again elsewhere."
            raise NotOursError(text, type=NOT_STARTED, non_retryable=True)
        before = mine
        await archive.aput_record(name, mine.wire())
    if before == mine:
        return mine
    who = mine.model_dump(include={"activity", "scheduled", "started"})
    await archive.aput_record(name, before.model_copy(update={**who, "asks": True}).wire())
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(before.begun))
    ended = f" and ended ({before.status})" if before.ended else ""
    msg = (
        f"At this place of the task, {before.what} was begun at {when} UTC{ended}, and the history"
        " of the task does not have it: Temporal's database was probably restored from a backup."
    )
    raise OutcomeUnknownError(msg)


def end_effect(archive: Archive, place: str, begun: EffectMark, status: str) -> None:
    """Add to the mark how the call has ended. It only helps people, so nothing waits for it."""
    done = begun.model_copy(update={"ended": time.time(), "status": status})
    writing = asyncio.create_task(_write_end(archive, _name(place), done))
    _ends.add(writing)
    writing.add_done_callback(_ends.discard)


_ends = set[asyncio.Task[None]]()
"""Ends that are being written: an event loop does not keep its tasks alive."""


async def _write_end(archive: Archive, name: str, done: EffectMark) -> None:
    try:
        now = await read_mark(archive, name)
        # A call that the server had given up may end after a later one has begun.
        if now is not None and (now.activity, now.scheduled) == (done.activity, done.scheduled):
            await archive.aput_record(name, done.wire())
    except ArchiveError as error:
        log.warning("The end of a call is not marked in the archive: %s", error)


def _name(place: str) -> str:
    """Return the name of the mark at a place of the running activity's task."""
    return f"{folder_of(EFFECTS, task_id())}/{place}.json"


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


async def is_known(client: Client, mark: EffectMark, run: str | None = None) -> bool:
    """Whether the history of a task has the activity that made a mark.

    Of one that was to ask a person, it must have the error with which the activity asks: else
    no person was asked. The history is that of one run and of the runs that it continues. A run
    that `temporal workflow reset` has ended does not count. Activities are numbered: after a
    restore another activity has the same id, at another time. Or the same one starts again, which
    waited for a worker at the time of the backup.

    Args:
        client: A client of the namespace.
        mark: The mark.
        run: The run; the newest one by default.

    Raises:
        RPCError: The server does not answer.
    """
    while run is None or run:
        handle, run, sent_at = client.get_workflow_handle(mark.task, run_id=run), "", -1
        is_this, has_asked = True, False
        try:
            async for event in handle.fetch_history_events():
                began = event.workflow_execution_started_event_attributes
                sent = event.activity_task_scheduled_event_attributes
                taken = event.activity_task_started_event_attributes
                failed = event.activity_task_failed_event_attributes
                run, at = run or began.continued_execution_run_id, event.event_time.ToMicroseconds()
                if sent.activity_id == mark.activity and abs(at / 1e6 - mark.scheduled) < ROUNDING:
                    sent_at = event.event_id
                elif taken.scheduled_event_id == sent_at:
                    is_this = abs(at / 1e6 - mark.started) < ROUNDING
                elif failed.scheduled_event_id == sent_at:
                    kind = failed.failure.application_failure_info.type
                    has_asked = kind == OutcomeUnknownError.__name__
            if sent_at > 0:
                return is_this and (has_asked or not mark.asks)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
    return False


ROUNDING = 0.001
"""Of a time that two messages have, in seconds. A restore takes longer."""
