"""Messages to people about open approvals, sent by activities next to the task's own work.

A message that cannot be delivered never holds up the task.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.task.data.wire import NoticeInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.workflows.activity_calls import begin, now

ONE_ATTEMPT = timedelta(seconds=60)
LONGEST = timedelta(days=1)
PATIENT = RetryPolicy(maximum_interval=timedelta(minutes=10))


class Notices:
    """Sends the messages of one task."""

    def __init__(self, ledger: Ledger) -> None:
        """Send messages about the approvals of this task."""
        self._ledger = ledger
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._began: dict[str, float] = {}

    @property
    def are_on_their_way(self) -> bool:
        """Whether the first attempt to send a message may be in progress."""
        latest = now() - ONE_ATTEMPT.total_seconds()
        return any(
            not task.done() and self._began[key] > latest for key, task in self._sending.items()
        )

    async def send(self) -> None:
        """Send a message for each approval, and another one when it is escalated.

        What was decided meanwhile is not sent any more. Runs until it is cancelled.
        """
        try:
            while True:
                await workflow.wait_condition(self._has_changed)
                due = self._due()
                # Decided meanwhile: whoever is asked after that would decide nothing.
                for key in [key for key in self._sending if key not in due]:
                    self._sending.pop(key).cancel()
                for key, notice in due.items():
                    if self._is_new(key):
                        self._began[key] = now()
                        self._sending[key] = begin(self._deliver(key, notice))
        finally:
            for task in self._sending.values():
                task.cancel()

    def _due(self) -> dict[str, NoticeInput]:
        """Return the newest message about each open approval, by an id of its own."""
        described = self._ledger.s.described
        if described is None or not described.notifies:
            return {}
        found = approvals.messages(self._ledger)
        return {id: NoticeInput(id=id, approval=approval) for id, approval in found.items()}

    def _is_new(self, key: str) -> bool:
        return key not in self._sending and key not in self._ledger.s.noticed

    def _has_changed(self) -> bool:
        due = self._due()
        return any(map(self._is_new, due)) or any(key not in due for key in self._sending)

    async def _deliver(self, key: str, notice: NoticeInput) -> None:
        try:
            await workflow.execute_activity(
                "notify",
                notice,
                start_to_close_timeout=ONE_ATTEMPT,
                schedule_to_close_timeout=LONGEST,
                heartbeat_timeout=timedelta(seconds=self._ledger.given.heartbeat),
                retry_policy=PATIENT,
                summary=f"{notice.approval.stage}: {notice.approval.tool or notice.approval.kind}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            workflow.logger.warning("No one was notified of %s: %s", key, error.cause)
        due = self._due()
        kept = [each for each in self._ledger.s.noticed if each in due]
        self._ledger.change(noticed=(*kept, key))
