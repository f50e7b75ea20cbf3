"""Attempts of a task's activities, as the server tells of them while they are pending."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.service import RPCError

from holdfast.archive.archive import Archive
from holdfast.archive.kept_answers import find_answer
from holdfast.errors import ArchiveError
from holdfast.reading.ended import activities_of, cause_of
from holdfast.reading.reader import Reader
from holdfast.reading.step_events import Attempt
from holdfast.task.data.calls import call_digest
from holdfast.task.data.records import OpenState
from holdfast.task.data.wire import AdvanceInput, ToolInput, activity_key
from holdfast.values.text.logs import log

LOOK_SECONDS = 1.0
"""Least time between two looks at the pending activities of a task."""


class _Place(NamedTuple):
    """Where an activity belongs.

    Attributes:
        step_id: Its step; empty when it has none.
        names: What is tried: "model", a tool's name, or the activity's type.
        tried: Attempts that were begun in the activity of the step.
    """

    step_id: str
    names: tuple[str, ...]
    tried: int = 0


class Attempts:
    """Reads which activities of a task are tried again; each attempt comes once.

    One look costs one request to the server and no work of the task's. Only a new attempt has the
    history read, for the step and the call that it belongs to.
    """

    def __init__(self, reader: Reader, task_id: str) -> None:
        """Have read nothing yet."""
        self._reader = reader
        self._task_id = task_id
        self._seen: set[tuple[str, str, int]] = set()
        self._due = 0.0

    async def new(self, opens: Sequence[OpenState], *, number: int) -> list[Attempt]:
        """Return the second and later attempts that were not returned yet.

        Args:
            opens: The steps in progress.
            number: Number of the last recorded event.

        Raises:
            TaskNotFoundError: Temporal knows no such task.
            ConnectError: The server could not be reached.
        """
        if time.monotonic() < self._due:
            return []
        self._due = time.monotonic() + LOOK_SECONDS
        found = await self._reader.describe(self._task_id)
        run_id = found.run_id
        events: list[Attempt] = []
        for pending in activities_of(found):
            mark = (run_id, pending.activity_id, pending.attempt)
            if pending.attempt <= 1 or mark in self._seen:
                continue
            self._seen.add(mark)
            try:
                place = await self._place(run_id, pending, opens)
            except Exception as error:  # noqa: BLE001  a codec raises what it likes: no reader ends
                log.warning("What activity %r was given cannot be read: %r", mark[1], error)
                place = _Place("", (pending.activity_type.name,))
            events += [
                Attempt(
                    number=number,
                    task_id=self._task_id,
                    step_id=place.step_id,
                    name=name,
                    attempt=place.tried + pending.attempt,
                    why=await cause_of(self._reader.client, pending.last_failure),
                    seconds=seconds_until(pending),
                )
                for name in place.names
            ]
        return events

    async def _place(
        self, run_id: str, pending: PendingActivityInfo, opens: Sequence[OpenState]
    ) -> _Place:
        """Return the step of an activity, as far as it has one, and what is tried."""
        kind = pending.activity_type.name
        if kind not in ("step", "tool"):
            return _Place("", (kind,))
        converter = self._reader.client.data_converter
        handle = self._reader.client.get_workflow_handle(self._task_id, run_id=run_id)
        with suppress(RPCError):  # the run is gone, or the server is: the next look finds out
            async for event in handle.fetch_history_events():
                sent = event.activity_task_scheduled_event_attributes
                if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED or (
                    sent.activity_id != pending.activity_id
                ):
                    continue
                payloads = list(sent.input.payloads)
                if kind == "step":
                    [step] = await converter.decode(payloads, [AdvanceInput])
                    ours = (activity_key(run_id, pending.activity_id), step.lost)
                    lost = await lost_calls(self._reader.archive, self._task_id, step.lane, ours)
                    names = () if lost else ("model",)  # recorded once they are lost
                    return _Place(_step_id(opens, step.n), names)
                [given] = await converter.decode(payloads, [ToolInput])
                return _Place(_step_id(opens, given.n), (_tool(opens, given),), given.tried)
        return _Place("", (kind,))


async def lost_calls(
    archive: Archive, task_id: str, lane: int, activities: tuple[str, str]
) -> tuple[str, ...]:
    """Name the calls that an earlier attempt of a step's activity may have begun.

    Args:
        archive: The namespace's archive; while it is down, no call is known.
        task_id: The task.
        lane: The lane of its step.
        activities: Keys of the activity, and of the one that was lost before it.
    """
    try:
        kept = await find_answer(archive, task_id, lane, activities)
    except ArchiveError as error:
        log.warning("The calls that a lost worker had begun are not known now: %s", error)
        return ()
    calls = kept.paid.answer.message.calls if kept.paid and kept.paid.answer else ()
    names = {call_digest(each): each.name for each in calls}
    return tuple(names.get(kept.runs[i], "tool") for i in sorted({*kept.runs} - {*kept.done}))


def seconds_until(pending: PendingActivityInfo) -> float:
    """Return how long it is until the next attempt of an activity begins; 0 when it has begun."""
    when = pending.next_attempt_schedule_time
    if not pending.HasField("next_attempt_schedule_time"):
        return 0.0
    return max(round(when.ToMicroseconds() / 1e6 - time.time(), 1), 0.0)


def _step_id(opens: Sequence[OpenState], n: int) -> str:
    return next((each.open.step.step_id for each in opens if each.n == n), "")


def _tool(opens: Sequence[OpenState], given: ToolInput) -> str:
    calls = next((each.calls for each in opens if each.n == given.n), ())
    call = given.call or (calls[given.i] if given.i < len(calls) else None)
    return call.name if call is not None else "tool"
