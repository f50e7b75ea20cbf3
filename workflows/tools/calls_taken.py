"""The calls of a step that are being taken further side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from holdfast.task.data.failures import Failure
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.tool_calls import Call, Room
from holdfast.workflows.activity_calls import failure_of
from holdfast.workflows.children.background import begin

Take = Callable[[Call], Coroutine[Any, Any, Failure | None]]
"""Takes a call further, and returns why its step stops, if it does."""


class CallsTaken:
    """The calls of a step that are being taken further.

    Attributes:
        tasks: The work on each, by its position.
        ended: Why the step stops, or the error, for those that ended so.
        found: Positions of calls that were looked up before any began, and could run then.
        room: Room for calls, shared by all steps.
    """

    def __init__(self, take: Take, ledger: Ledger, n: int, room: Room) -> None:
        """Begin with none.

        Args:
            take: Takes one call further.
            ledger: The task.
            n: The step.
            room: Room for calls, shared by all steps.
        """
        self.tasks: dict[int, asyncio.Task[Failure | None]] = {}
        self.ended: dict[int, Failure | BaseException] = {**ledger.at(n).stops}
        self.found: set[int] = set()
        self.room = room
        self._take, self._ledger, self._n = take, ledger, n

    @property
    def has_ended(self) -> bool:
        """Whether one of them has ended."""
        return any(call.done() for call in self.tasks.values())

    def take(self, positions: Iterable[int]) -> None:
        """Take calls further."""
        for i in positions:
            taking = self._take(Call(self._ledger, self._n, i))
            self.tasks[i] = begin(taking)
            self.room.taken += 1

    def settle(self) -> None:
        """Take out those that have ended, and record what stops the step for a later run."""
        done = {i: self.tasks.pop(i) for i in [i for i, c in self.tasks.items() if c.done()]}
        # In the same activation as the calls' ends: `lets_go` compares this room with the long
        # calls.
        self.room.taken -= len(done)
        found = {i: _end_of(call) for i, call in done.items()}
        self.ended |= {i: each for i, each in found.items() if each is not None}
        self._record()

    def stop(self, i: int, failure: Failure) -> None:
        """Let no further call begin: the step stops with a call that has not begun."""
        self.ended[i] = failure
        self._record()

    def _record(self) -> None:
        stops = {
            i: each if isinstance(each, Failure) else failure_of(each)
            for i, each in self.ended.items()
        }
        self._ledger.stop(self._n, stops if self.tasks else {})

    async def cancel(self) -> None:
        """Cancel them all, and wait for their ends."""
        for call in self.tasks.values():
            call.cancel()
        # Each may still record an outcome while it is cancelled. Only then is the room given back.
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self.room.taken -= len(self.tasks)
        self._ledger.stop(self._n, {})


def _end_of(call: asyncio.Task[Failure | None]) -> Failure | BaseException | None:
    """Return why a call that has ended stops its step, or its error; None when it does not."""
    if call.cancelled():
        return asyncio.CancelledError()
    return call.exception() or call.result()
