"""The clock of a task: it ends what waits for a time. A task without such a wait has none."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import workflow

from holdfast.task import waits
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.command_effects import resume
from holdfast.values.base import Json
from holdfast.workflows.activity_calls import now, time_left


class Clock:
    """Ends pauses, and waits of calls, when their time has come. It owns no state."""

    def __init__(self, ledger: Ledger, after: Callable[[str], None]) -> None:
        """Watch this task.

        Args:
            ledger: The task.
            after: Called when something has ended, with the pause that was in force before.
        """
        self._ledger = ledger
        self._after = after

    async def run(self) -> None:
        """Wait for the next time, and for an earlier one meanwhile. Runs until it is cancelled."""
        while True:
            # No timer while nothing waits: each is two events of history.
            await workflow.wait_condition(lambda: self._due > 0)
            due = self._due

            def is_other(due: float = due) -> bool:
                return self._due != due

            try:
                left = time_left(due, now=now())
                await workflow.wait_condition(is_other, timeout=left, timeout_summary="a wait ends")
            except TimeoutError:
                # A person may have changed it in the same activation: `_end` looks again.
                was = self._ledger.paused
                self._end()
                self._after(was)

    @property
    def _due(self) -> float:
        """When the next wait is over; 0 for never, and while the task ends or is undone."""
        s = self._ledger.s
        if s.closing is not None or s.undo is not None:
            return 0.0
        return min(filter(None, (s.paused_until, waits.next_end(self._ledger))), default=0.0)

    def _end(self) -> None:
        """End what is over."""
        ledger = self._ledger
        waits.end_due(ledger, now=now())
        if 0 < ledger.s.paused_until <= now():
            body: dict[str, Json] = {"verb": "resume", "arguments": {}}
            ledger.note("command", now=now(), text="Its time has come.", body=body)
            resume(ledger)
