"""The calls of one activity that cost something: model calls and memos, each recorded at once."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Handed, JournalEntry
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.workers.context.call_ids import without_repeated
from holdfast.workers.context.journal import (
    Interrupt,
    OverBudget,
    StepJournal,
    StepStop,
    memo_json,
)
from holdfast.workers.context.model_calls import read

Respond = Callable[[ModelRequest], Awaitable[ModelAnswer]]


class PaidCalls:
    """Makes the costly calls of one run of a step, and adds their answers to its journal."""

    def __init__(
        self,
        record: StepJournal,
        stop: StepStop,
        respond: Respond,
        ensure_ours: Callable[[], Awaitable[None]] | None,
        transcript: Sequence[Message],
    ) -> None:
        """Make no call yet.

        Args:
            record: The journal of the step.
            stop: Interrupts the run of the step.
            respond: Makes one model call.
            ensure_ours: Called before a costly memo; raises when another worker process has taken
                the step over.
            transcript: The task's messages before the step.
        """
        self._record = record
        self._transcript = transcript
        self._stop = stop
        self._respond = respond
        self._ensure_ours = ensure_ours
        self._idle = asyncio.Event()  # no call is in flight
        self._idle.set()

    async def settled(self) -> None:
        """Wait for the call in flight: stopping it would lose a paid answer."""
        while not self._idle.is_set():
            await self._idle.wait()

    async def answer(
        self, request: ModelRequest, key: str, head: TaskHead, *, last: bool
    ) -> ModelAnswer:
        """Make the one model call of this activity.

        A call that the AgentWorker cancels, as by a timeout of its own, has no answer and does not
        count: another call may be made in this activity.

        Args:
            request: The request.
            key: Its digest.
            head: The task's head.
            last: Whether the budget allows no call after it.
        """
        self._idle.clear()
        try:
            known = self._record.paid_for(key)
            paid = None if known is None else known.answer
            made = paid or await self._respond(request)
            answer = read(made, renames=not head.ends_by_answers)
            if answer.has_unique_ids:
                if head.dialect.unknown_tool == "raise":
                    answer = without_repeated(answer, self._transcript)
                answer = answer.model_copy(update={"has_unique_ids": False})  # as it is recorded
            self._record.add(JournalEntry(request=key, answer=answer, last=last), costly=True)
            return answer
        except OverBudget as over:
            self._idle.set()
            await self._stop.interrupt(Interrupt(kind="limit", needs=over.needs))
        except Exception as error:  # noqa: BLE001  handed to the driver, which raises it
            self._idle.set()  # before `fail`, which never returns: the driver waits for idle first
            await self._stop.fail(error)
        finally:
            self._idle.set()

    async def memo(
        self, name: str, key: str, make: Callable[[], Awaitable[Any] | Any], *, costly: bool
    ) -> Json:
        """Make the value of a memo, unless it was paid for already, and record it.

        Args:
            name: Name of the value.
            key: Digest of the name.
            make: Makes it; async or not.
            costly: Whether it must be recorded before the next costly call.

        Raises:
            InvalidArgumentError: The value cannot be stored as JSON.
            Exception: An error that `make` raised; it is not recorded.
        """
        known = self._record.paid_for(key) if costly else None
        if known is not None and known.memo is not None:
            value = known.memo.output
        else:
            if costly:
                await self._ensure_step_is_ours()
            value = await self._make(name, make)
        entry = JournalEntry(request=key, memo=Handed(output=value), name=name)
        self._record.add(entry, costly=costly)
        return copy.deepcopy(value)

    async def _make(self, name: str, make: Callable[[], Awaitable[Any] | Any]) -> Json:
        with self._in_flight():
            made = make()
            if inspect.isawaitable(made):
                made = await made
        return memo_json(name, made)

    async def _ensure_step_is_ours(self) -> None:
        """Stop here when another worker process has taken the step over."""
        if self._ensure_ours is None:
            return
        try:
            await self._ensure_ours()
        except Exception as error:  # noqa: BLE001  handed to the driver, which raises it
            await self._stop.fail(error)

    @contextmanager
    def _in_flight(self) -> Generator[None]:
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()
