"""The journal of a step, and the interruption of a run of the step.

The journal holds the answered calls, in the order in which the step made them. A later activity
runs the step again from its top, and its calls get the recorded answers by position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Literal, Never

from holdfast.errors import InvalidArgumentError, StepCodeChangedError
from holdfast.task.data.records import JournalEntry
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, Value
from holdfast.values.messages import ToolCall


class Interrupt(Value):
    """Why the step cannot go on in this activity.

    Attributes:
        kind: "tools": the task must run tools. "more": a second model call, or costly memo, needs
            the next activity. "limit": the task's limit forbids the call. "over": the budget's last
            model call has been made, so its answer ends the step.
        request: Digest of the request.
        calls: The calls, for "tools".
        needs: For "limit" by a budget in money: what the call can cost at most.
    """

    kind: Literal["tools", "more", "limit", "over"]
    request: str = ""
    calls: tuple[ToolCall, ...] = ()
    needs: Decimal | None = None


class OverBudget(Exception):  # noqa: N818  no error: the task decides what follows
    """The money that is reserved for a model call may not suffice; it was not made.

    Attributes:
        needs: What the call can cost at most.
        lost: The most that an earlier attempt of it can have cost.
    """

    def __init__(self, needs: Decimal, lost: Decimal) -> None:
        """Say what the call can cost, and its earlier attempt can have cost."""
        super().__init__(needs, lost)
        self.needs = needs
        self.lost = lost


class StepStop:
    """Interrupts the one run of a step that an activity makes.

    The step's coroutine then waits at its call until the driver cancels it.

    Attributes:
        interrupted: Why the step was interrupted: an Interrupt, or the error of a model call.
    """

    def __init__(self) -> None:
        """Make the future that the driver waits for, in the running loop."""
        self.interrupted: asyncio.Future[Interrupt] = asyncio.get_running_loop().create_future()
        self._closed = asyncio.Event()

    def go_on(self) -> None:
        """Refuse a call after the step was interrupted, such as one made in a `finally` block.

        This activity cannot answer it any more, so a run that waited for it would never end.

        Raises:
            asyncio.CancelledError: The step is interrupted.
        """
        if self.interrupted.done():
            raise asyncio.CancelledError

    async def fail(self, error: Exception) -> Never:
        """Interrupt the step with the error of a model call, which the AgentWorker never sees.

        If it saw the error, it could make another call instead, whose answer would take the failed
        call's place in the journal.
        """
        if not self.interrupted.done():
            self.interrupted.set_exception(error)
        await self._halt()

    async def interrupt(self, why: Interrupt) -> Never:
        """Interrupt the step for this reason."""
        self.go_on()
        self.interrupted.set_result(why)
        await self._halt()

    def close(self) -> None:
        """Cancel the waiting calls of the step, and refuse further ones."""
        if not self.interrupted.done():
            self.interrupted.cancel()
        self._closed.set()

    async def _halt(self) -> Never:
        """Wait for the driver, which cancels the step."""
        await self._closed.wait()
        raise asyncio.CancelledError


class StepJournal:
    """The answered calls of a step: those that the task has recorded, and those made here.

    Attributes:
        fresh: Calls that were answered in this activity.
        has_spent: Whether a model call or a costly memo is among them: the task must record it
            before the next costly call is made.
    """

    def __init__(
        self,
        recorded: Sequence[JournalEntry] = (),
        *,
        unrecorded: JournalEntry | None = None,
        keep: Callable[[JournalEntry], None] | None = None,
    ) -> None:
        """Begin at the step's first call.

        Args:
            recorded: Calls that earlier runs of this step had answered.
            unrecorded: An answer that was paid for but never reached the task: the same request
                gets it without a call.
            keep: Called with each costly answer at once, before anything that may fail.
        """
        self.fresh: list[JournalEntry] = []
        self.has_spent = False
        self._recorded = tuple(recorded)
        self._unrecorded = unrecorded
        self._keep = keep
        self._position = 0

    @property
    def all(self) -> tuple[JournalEntry, ...]:
        """All answered calls of the step, oldest first."""
        return (*self._recorded, *self.fresh)

    @property
    def answered(self) -> JournalEntry | None:
        """The model call that was made here, if one was."""
        return next((entry for entry in self.fresh if entry.answer is not None), None)

    @property
    def is_paid(self) -> bool:
        """Whether an answer was paid for that has not reached the task yet."""
        return self._unrecorded is not None

    @property
    def is_finished(self) -> bool:
        """Whether the last model call that the budget allows has its answer."""
        return any(entry.last for entry in self.all)

    @property
    def next_is_last(self) -> bool | None:
        """Whether the next recorded call is the last that the budget allows; None without one."""
        for entry in self._recorded[self._position :]:
            if entry.memo is None:
                return entry.last
        return None

    def next(self, key: str, what: str, *, n: int, task_id: str) -> JournalEntry | None:
        """Return the recorded answer to the next call; None without one yet.

        Args:
            key: Digest of the call.
            what: The call in words, for the error.
            n: Ordinal of the step.
            task_id: The task.

        Raises:
            StepCodeChangedError: The journal holds the answer to another call here.
        """
        position, self._position = self._position, self._position + 1
        if position >= len(self._recorded):
            return None
        entry = self._recorded[position]
        if entry.request == key:
            return entry
        msg = (
            f"Step {n} now makes {what} where its journal holds the answer to another request"
            f" (call {position + 1} of the step): the code or the prompt changed in mid-step."
            ' Nothing is lost. run_step(task, restart="step") starts the step again, or put the'
            " earlier code back and run the step again."
        )
        raise StepCodeChangedError(msg, task_id=task_id, step_id="")

    def paid_for(self, key: str) -> JournalEntry | None:
        """Return the answer to this call that was paid for but never reached the task, if any."""
        known = self._unrecorded
        return known if known is not None and known.request == key else None

    def add(self, entry: JournalEntry, *, costly: bool) -> None:
        """Add an answer; pass a costly one to `keep`, so that it outlives the activity."""
        self.fresh.append(entry)
        self.has_spent = self.has_spent or costly
        if costly and self._keep is not None:
            self._keep(entry)


def memo_json(name: str, made: object) -> Json:
    """Return the value of a memo as JSON data.

    Raises:
        InvalidArgumentError: It cannot be stored as JSON.
    """
    try:
        return merge_patch.written(made, "memo")
    except InvalidArgumentError as cause:
        reason = str(cause).rstrip(".")
        msg = f"Memo {name!r} cannot be stored as JSON: {reason}. Return plain data."
        raise InvalidArgumentError(msg) from cause
