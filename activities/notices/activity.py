"""The activity `notify`: tells people that a task waits for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.data.source import task_id
from holdfast.activities.failures import clean_message, typed_failures
from holdfast.activities.heartbeat import heartbeats
from holdfast.activities.notices.notifiers import (
    DESK_VARIABLE,
    Notice,
    Notifier,
    card_url,
)
from holdfast.errors import NotificationError
from holdfast.task.data.wire import NoticeInput
from holdfast.values.checks.json_shapes import is_array, is_object
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.text.decided import exact, for_decision

LONGEST_SECONDS = 30.0
"""How long a notifier may take; the attempt of the activity takes at most a minute."""


class NoticeActivities:
    """Sends messages for the tasks of one worker process."""

    def __init__(self, notifiers: Sequence[Notifier]) -> None:
        """Send messages by these."""
        self.notifiers = notifiers

    @activity.defn(name="notify")
    async def notify(self, given: NoticeInput) -> None:
        """Send a message by each notifier that has not delivered it at an earlier attempt.

        They send side by side, each within its time: one that hangs keeps no other from sending.
        """
        if not self.notifiers:
            msg = "This worker process has no notifiers, though another one of its app has."
            raise ApplicationError(msg, type="NotificationError")
        with typed_failures():
            notice = notice_of(given)
            async with heartbeats() as pulse:
                sent = _sent_before()
                pulse.carry(lambda: {"sent": [*sent]})

                async def send(n: int) -> Exception | None:
                    failure = await _failure(self.notifiers[n], notice)
                    if failure is None:
                        sent.append(n)
                        pulse.beat_soon()
                    return failure

                left = [n for n in range(len(self.notifiers)) if n not in sent]
                ends = await asyncio.gather(*map(send, left))
                failures = [each for each in ends if each is not None]
        if failures:
            text = " ".join(clean_message(each) for each in failures)
            is_final = all(isinstance(e, NotificationError) and e.is_final for e in failures)
            raise ApplicationError(text, type="NotificationError", non_retryable=is_final)


async def _failure(notifier: Notifier, notice: Notice) -> Exception | None:
    """Send a message by one notifier; return why it was not delivered, or None."""
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            # A plain method runs in a daemon thread: it may hang.
            await invoke_here(notifier.send, notice)
    except TimeoutError:
        text = f"{type(notifier).__name__} has not delivered the message {notice.id!r} in time."
        return NotificationError(text)
    except Exception as error:  # noqa: BLE001  the others get the message all the same
        return error
    return None


def notice_of(given: NoticeInput) -> Notice:
    """Make the message, without secrets."""
    approval = given.approval
    return Notice(
        id=given.id,
        type=f"approval.{approval.stage}",
        at=approval.stage_began,
        task=task_id(),
        agent=exact(approval.agent),
        approval=approval.id,
        kind=approval.kind,
        tool=exact(approval.tool),
        arguments=for_decision(approval.as_agreed),
        defaults=tuple(map(for_decision, approval.filled_in)),
        text=for_decision(approval.text),
        digest=approval.bound or approval.digest,
        who=approval.may_decide,
        expires=approval.expires,
        url=card_url(os.environ.get(DESK_VARIABLE, ""), approval.id),
    )


def _sent_before() -> list[int]:
    """Return the positions of the notifiers that have delivered the message already."""
    for details in activity.info().heartbeat_details:
        if is_object(details) and is_array(numbers := details.get("sent")):
            return [number for number in numbers if isinstance(number, int)]
    return []
