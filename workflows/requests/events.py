"""The mailbox of an event's name: a small workflow that keeps events, and gives them to calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from pydantic import ValidationError
from pydantic_core import from_json
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast.engine.converter import Opening
from holdfast.task.mailbox import (
    MAILBOX,
    Delivery,
    Event,
    Heard,
    Mailbox,
    Waiter,
    check_match,
    event_name,
)
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.workflows.activity_calls import time_left

MOST_AT_ONCE = 50
"""Deliveries at the same time."""

DELIVERY_SECONDS = timedelta(seconds=30)
DELIVERY_MINUTES = timedelta(minutes=2)
"""How long a delivery is tried; then another one begins, as the mailbox may have to roll."""

PAUSE = timedelta(seconds=30)
"""After a delivery that has failed."""

MOST_WORK = 50_000
"""Events and calls that are looked at in one go: the engine stops a workflow that takes 2 s."""


@workflow.defn(name=MAILBOX, sandboxed=False)
class EventMailbox(Opening):
    """The events of one name in an app. It ends when nothing is kept and no call waits."""

    takes = Mailbox

    @workflow.init
    def __init__(self, box: Mailbox) -> None:
        """Begin empty, or go on after continue-as-new."""
        self._box = box
        self._going: dict[str, asyncio.Task[None]] = {}
        self._inbox = deque[tuple[str, Sequence[RawValue]]]()
        self._erased = set[str]()  # tasks
        self._news = True

    @workflow.run
    async def run(self, box: Mailbox) -> None:
        """Run until nothing is left, or it continues as new; events and calls arrive as signals."""
        del box
        while True:
            # Before anything is looked at: what comes during an await below is looked at again.
            self._news = False
            await self._take_all()
            # No await from here on: what was taken is looked at, and not lost when it rolls.
            self._box.expire(now=workflow.time(), but=self._going)
            self._settle()
            if self._rolls():
                # No delivery begins; those that are tried end within minutes.
                if not self._going:
                    self._box.erase(self._erased)
                    workflow.continue_as_new(self._box)
            else:
                self._deliver()
                # The server takes no end from a workflow task that has not seen all signals.
                if self._box.is_empty and not self._going:
                    return
            due = self._box.next_end()
            left = time_left(due, now=workflow.time()) if due else None
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: self._news, timeout=left)

    def _settle(self) -> None:
        for key in [key for key, each in self._going.items() if each.done()]:
            self._going.pop(key).result()

    def _deliver(self) -> None:
        name = event_name(workflow.info().workflow_id)
        room = MOST_AT_ONCE - len(self._going)
        for each in self._box.deliveries(name, self._going, room):
            self._going[each.waiter.key] = asyncio.create_task(self._send(each))

    async def _send(self, sent: Delivery) -> None:
        """Send one event to one call; where that fails, it is sent again."""
        try:
            taken = await workflow.execute_activity(
                "deliver",
                sent,
                result_type=bool,
                start_to_close_timeout=DELIVERY_SECONDS,
                schedule_to_close_timeout=DELIVERY_MINUTES,
                summary=f"{sent.event.id} to {sent.waiter.task}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            workflow.logger.warning("An event is sent again: %s", error.cause)
            self._box.put_off(sent.waiter.key)
            await workflow.sleep(PAUSE)
        else:
            self._box.delivered(sent, taken=taken)
        finally:
            self._news = True

    def _rolls(self) -> bool:
        # Of erased tasks the history tells: the next run has another one.
        return bool(self._erased) or workflow.info().is_continue_as_new_suggested()

    @workflow.signal(dynamic=True)
    def signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Note an event, a call that waits or waits no longer, or tasks that are erased."""
        self._inbox.append((name, args))
        self._news = True

    async def _take_all(self) -> None:
        """Take what has come, with pauses: each may be compared with all that is kept."""
        box, work = self._box, 0
        box.expire(now=workflow.time(), but=self._going)
        while self._inbox:
            self._take(*self._inbox.popleft())
            work += 1 + len(box.waiters) + len(box.events)
            if work > MOST_WORK:
                work = 0
                await workflow.sleep(timedelta(milliseconds=1))
                box.expire(now=workflow.time(), but=self._going)

    def _take(self, name: str, args: Sequence[RawValue]) -> None:
        """Take a signal.

        It never raises, whatever was sent: that would block the mailbox.
        """
        try:
            [data] = [arg.payload.data for arg in args]
            match name:
                case "event":
                    event = Event.model_validate_json(data)
                    if why := gate.flaw([event.id, event.data], "The event"):
                        self._box.refuse(event.id, why)
                    else:
                        self._box.take_event(event, now=workflow.time())
                case "wait":
                    waiter = Waiter.model_validate_json(data)
                    gate.check_value(waiter, "The call")
                    check_match(waiter.match)
                    self._box.take_waiter(waiter)
                case "leave":
                    self._box.leave(Waiter.model_validate_json(data).key)
                case "erase":
                    self._erased.update(map(str, gate.as_array(from_json(data))))
                case _:
                    workflow.logger.warning("A signal %r that is no event was dropped", name[:80])
        except (ValidationError, ValueError) as error:
            workflow.logger.warning("A signal %r was dropped: %s", name[:80], error)

    @workflow.query(name="heard")
    def heard(self, key: str) -> Heard:
        """Say how an event was taken, by its id.

        Raises:
            ApplicationError: It may not have been taken yet.
        """
        if self._inbox:
            msg = f"{len(self._inbox):,} signals have not been taken yet. Ask again."
            raise ApplicationError(msg)
        return self._box.heard(key)

    @workflow.query(name="state")
    def state(self) -> dict[str, Json]:
        """Show the events that are kept, and whose calls wait for which."""
        waiters = [{"task": each.task, "match": each.match} for each in self._box.waiters.values()]
        return {"events": [each.wire() for each in self._box.events.values()], "waiters": waiters}
