"""Sending events to the calls that wait for them, of all tasks of an app."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from holdfast.client.agent_runner.base import RunnerBase
from holdfast.errors import CommandRefusedError, InvalidArgumentError
from holdfast.reading.queries import server_errors
from holdfast.task.mailbox import DAY, LARGEST_EVENT, LONGEST_KEPT, Event
from holdfast.values.base import Json, Value, canonical
from holdfast.values.checks import gate
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import check_name, queue_of

LONGEST_ID = 200
Kept = Annotated[timedelta, Field(gt=timedelta(), le=timedelta(seconds=LONGEST_KEPT))]


class EventReceipt(Value):
    """How an event was taken.

    Attributes:
        id: Its id.
        status: "kept", or "recorded" while no worker process has seen it.
        waiters: How many calls it has found so far.
    """

    id: str
    status: Literal["kept", "recorded"] = "kept"
    waiters: int = 0


class EventSending(RunnerBase):
    """The part of AgentRunner that sends events."""

    async def send_event(
        self,
        name: str,
        data: Mapping[str, Json] | None = None,
        *,
        id: str | None = None,
        keep: Kept = timedelta(seconds=DAY),
    ) -> EventReceipt:
        """Send an event to all calls of the app's tasks that wait for it, now or soon.

        It is durable once this returns, also while no worker process is up.

        Args:
            name: Its name, as "order.paid".
            data: What is known of it, at most 32 KB: calls wait for some of its fields.
            id: Tells it apart: sent again with the same id while it is kept, it changes nothing.
                Made up by default.
            keep: How long it is kept for calls that wait later, at most 30 days.

        Raises:
            InvalidArgumentError: The data are no JSON object, or too large.
            CommandRefusedError: Too many events of this name are kept.
            ConnectError: The server could not be reached.
        """
        from holdfast.agents.tools.events import heard, tell_mailbox

        check_arguments(EventSending.send_event, data=data, keep=keep)
        known = uuid.uuid4().hex if id is None else check_name("id", id, LONGEST_ID)
        gate.check(dict(data or {}), "The data of the event")
        sent = Event(id=known, data=dict(data or {}), keep=keep.total_seconds())
        if (size := len(canonical(sent.data))) > LARGEST_EVENT:
            raise InvalidArgumentError(
                f"The data of the event have {size:,} bytes; there may be {LARGEST_EVENT:,}. Store"
                " the rest elsewhere, and send its address."
            )
        queue = self._queue or queue_of(self.app)
        with server_errors():
            await tell_mailbox(self.client, queue, name, "event", sent)
        found = await heard(self.client, queue, name, known)
        if found is None:
            return EventReceipt(id=known, status="recorded")
        if found.refused:
            raise CommandRefusedError(found.refused)
        return EventReceipt(id=known, waiters=found.waiters)
