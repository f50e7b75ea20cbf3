"""Marks in the archive of calls that must not be repeated, for a history that went back in time.

A database of Temporal that is restored from a backup has forgotten what tasks did since. The task
would make its payments again. So before such a call begins, the archive gets a mark of it. A mark
of an activity that the history does not have makes the call *unknown*: its tool's probe, or a
person, says whether it happened.

Without a restore a mark costs two small writes of a call, and nothing reads it.
"""

from __future__ import annotations

import time

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.data.source import task_id, worker_identity
from holdfast.archive.archive import Archive
from holdfast.archive.names import effects_of
from holdfast.errors import ArchiveError
from holdfast.task.data.failures import INTERRUPTED
from holdfast.values.base import Value
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


class Begun(Value):
    """The mark of a call.

    Attributes:
        task: The task.
        what: Tool, or undo of a tool, with its arguments.
        activity: Id of the activity in its run.
        scheduled: When it was scheduled by the server's clock, seconds since the epoch.
        begun: When the call began, by the clock of its worker.
        worker: Identity of that worker.
        ended: When its outcome was known; 0 before.
        status: That outcome: "done", "failed"; "asked" where nothing was called, and a person was
            asked about an older mark.
    """

    task: str
    what: str
    activity: str
    scheduled: float
    begun: float
    worker: str
    ended: float = 0.0
    status: str = ""


async def begin_effect(archive: Archive, place: str, what: str) -> Begun | ApplicationError:
    """Mark that a call begins; nothing may be called before.

    Args:
        archive: The namespace's archive.
        place: Place of the call in its task: it is the same when a restored task makes the call
            again, whatever it calls there then.
        what: What is called, for a person.

    Returns:
        The mark. Or an error of type "Interrupted", to be raised where it does not count as
        certain: a forgotten activity has begun a call there. When the call is scheduled again, a
        person has answered, and it begins.

    Raises:
        RPCError: The server does not answer, and nothing was called.
        ArchiveError: The archive cannot be read or written, and nothing was called.
    """
    info, name = activity.info(), f"{effects_of(task_id())}/{place}.json"
    mine = Begun(
        task=task_id(),
        what=shown(what, 1000),
        activity=info.activity_id,
        scheduled=info.scheduled_time.timestamp(),
        begun=time.time(),
        worker=worker_identity(),
    )
    before = await read_mark(archive, name)
    if before is None or await is_known(activity.client(), before, info.workflow_run_id):
        await archive.aput_record(name, mine.wire())
        return mine
    await archive.aput_record(name, mine.model_copy(update={"status": "asked"}).wire())
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(before.begun))
    ended = f" and ended ({before.status})" if before.ended else ""
    msg = (
        f"At this place of the task, {before.what} was begun at {when} UTC{ended}, and the history"
        " of the task does not have it: Temporal's database was probably restored from a backup."
        f" It is not known whether {mine.what} is still to be called."
    )
    return ApplicationError(msg, type=INTERRUPTED, non_retryable=True)


async def end_effect(archive: Archive, place: str, begun: Begun, status: str) -> None:
    """Add to the mark how the call has ended; that only helps people."""
    done = begun.model_copy(update={"ended": time.time(), "status": status})
    name = f"{effects_of(task_id())}/{place}.json"
    try:
        await archive.aput_record(name, done.wire(), forced=False)
    except ArchiveError as error:
        log.warning("The end of a call is not marked in the archive: %s", error)


async def read_mark(archive: Archive, name: str) -> Begun | None:
    """Read a mark by the name of its record; None if nothing has that name.

    Raises:
        ArchiveError: It cannot be read.
    """
    found = await archive.afind_record(name)
    try:
        return None if found is None else Begun.model_validate(found)
    except ValidationError as error:
        msg = f"The mark {name!r} of a call cannot be read: {error.error_count()} fields."
        raise ArchiveError(msg, remedy="Restore it from a backup, or delete it.") from None


async def is_known(client: Client, mark: Begun, run: str | None = None) -> bool:
    """Whether the history of a task has the activity that made a mark.

    The history is that of one run and of the runs that it continues. A run that `temporal workflow
    reset` has ended does not count. Activities are numbered: after a restore another activity has
    the same id, at another time.

    Args:
        client: A client of the namespace.
        mark: The mark.
        run: The run; the newest one by default.

    Raises:
        RPCError: The server does not answer.
    """
    while run is None or run:
        handle, run = client.get_workflow_handle(mark.task, run_id=run), ""
        try:
            async for event in handle.fetch_history_events():
                sent = event.activity_task_scheduled_event_attributes
                if event.HasField("activity_task_scheduled_event_attributes"):
                    at = event.event_time.ToMicroseconds() / 1e6
                    is_its_time = abs(at - mark.scheduled) < _SAME_SECONDS
                    if sent.activity_id == mark.activity and is_its_time:
                        return True
                elif event.HasField("workflow_execution_started_event_attributes"):
                    began = event.workflow_execution_started_event_attributes
                    run = began.continued_execution_run_id
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
    return False


_SAME_SECONDS = 0.001
"""Rounding of a time that two messages have. A restore takes longer."""
