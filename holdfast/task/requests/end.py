"""The end of a task: what was accepted stays, also when closing fails and is tried again."""

from __future__ import annotations

from holdfast.task.data.failures import CLOSING, Failure
from holdfast.task.data.state import Closing
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.refusals import CLOSED, abandoned
from holdfast.values.steps import TaskStatus

LONGEST_PAUSE_SECONDS = 3600.0


class Ending:
    """The end that a task is to come to. It is part of the carried state: no rollover forgets it.

    A task is open, is closing, or has failed to close ("stuck"): then closing is tried again after
    a pause, and by the next request or command; no step runs in between.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Keep the end in this ledger."""
        self._ledger = ledger

    @property
    def _wanted(self) -> Closing | None:
        return self._ledger.s.closing

    def _change(self, **fields: object) -> None:
        if self._wanted is not None:
            self._ledger.change(closing=self._wanted.model_copy(update=fields))

    @property
    def status(self) -> TaskStatus | None:
        """The status with which the task is to be closed; None while it is open."""
        return self._wanted.status if self._wanted is not None else None

    @property
    def why(self) -> str:
        """Who ends it and why, where somebody does."""
        return self._wanted.why if self._wanted is not None else ""

    @property
    def is_stuck(self) -> bool:
        """Whether closing has failed, and the next attempt is yet to come."""
        return self._wanted is not None and self._wanted.due > 0

    @property
    def is_due(self) -> bool:
        """Whether closing goes on now."""
        return self._wanted is not None and not self.is_stuck

    @property
    def due(self) -> float:
        """Time of the next attempt, seconds since the epoch; 0 for none."""
        return self._wanted.due if self._wanted is not None else 0.0

    @property
    def failures(self) -> int:
        """How many attempts have failed."""
        return self._wanted.failures if self._wanted is not None else 0

    def begin(self, status: TaskStatus, why: str = "") -> None:
        """Accept an end; the one that was accepted first stays."""
        if self._wanted is None:
            self._ledger.change(closing=Closing(status=status, why=why))

    def abandon(self, why: str) -> None:
        """Accept an abandon; it also takes the place of another end that cannot be reached."""
        if self.is_stuck and self.status != "abandoned":
            self._ledger.change(verdict=None)
            self._change(status="abandoned", why=why, is_prepared=False)
        self.begin("abandoned", why)
        self.try_again()

    def prepare(self) -> bool:
        """Return whether what comes before the archive is still to be done, which is once."""
        wanted = self._wanted
        self._change(is_prepared=True)
        return wanted is not None and not wanted.is_prepared

    def failed(self, failure: Failure, *, now: float, pause: float) -> Failure:
        """Note that an attempt has failed, and return what the task waits with then.

        Args:
            failure: Why.
            now: Time, seconds since the epoch.
            pause: Seconds until the first new attempt; each later pause is twice as long.
        """
        pause = min(pause * 2.0 ** min(self.failures, 20), LONGEST_PAUSE_SECONDS)
        self._change(failures=self.failures + 1, due=now + pause)
        text = (
            f"The task is to be {self._end}, and closing it failed: {failure.message} No step runs"
            " any more. Closing is tried again from time to time, and at once by `resume` or by the"
            " same request."
        )
        return Failure(
            type=failure.type,
            message=text,
            remedy=failure.remedy,
            parks=True,
            data={CLOSING: True},
        )

    def try_again(self) -> None:
        """Let the next attempt to close begin now."""
        if self.is_stuck:
            self._change(due=0.0)
            self._ledger.change(failure=None)

    @property
    def _end(self) -> str:
        how = "ended by its verdict" if self.status == "failed" else str(self.status)
        return f"{how} ({self.why})" if self.why else how

    def refusal(self) -> Failure:
        """Say why nothing else can be asked of the task."""
        failure = self._ledger.s.failure
        if failure is None or not self.is_stuck:
            return CLOSED
        return Failure(type="CommandRefusedError", message=failure.message, remedy=failure.remedy)

    def failure(self) -> Failure | None:
        """Return what whoever waits for the task's answer is told of its end."""
        return abandoned(self.why) if self.status == "abandoned" else self._ledger.s.verdict
