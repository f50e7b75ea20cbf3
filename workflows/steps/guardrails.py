"""Guardrails as the task runs them: each in an activity of its own, those of a kind at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.task.data.failures import Failure
from holdfast.task.data.wire import Advanced
from holdfast.task.guardrails_due import Due, outputs_due, record_found
from holdfast.task.ledger.ledger import Ledger
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import begin, now

ANSWER_SECONDS = 0.25
"""How long a guardrail that has stopped the step waits for the answer of the call next to it."""

CANCELLED_SECONDS = 1.0
"""How long the step waits for the end of what it has cancelled, before it goes on without."""


class Checks:
    """Guardrails that look at the same thing at the same time.

    The first that trips, or fails, cancels the others, and the turn next to them; a turn that fails
    cancels them.
    """

    def __init__(self, ledger: Ledger, n: int, due: Sequence[Due]) -> None:
        """Begin to run the due ones."""
        self._running: list[asyncio.Task[Failure | None]] = [
            begin(self._check(ledger, n, each)) for each in due
        ]
        self._failure: Failure | None = None
        self._is_over = False

    async def beside(self, work: Coroutine[Any, Any, Advanced]) -> Advanced | None:
        """Do the first turn's work meanwhile, whose tools wait for the guardrails anyway.

        Returns:
            What it gave; None when a guardrail tripped or failed first: the work is cancelled then.
            An answer that is just arriving is taken, since it has been paid for.

        Raises:
            ActivityError: The work failed first.
        """
        doing = begin(work)
        try:
            await workflow.wait_condition(lambda: doing.done() or self._has_failed())
            # If both are done in one activation, the answer was paid for: it is recorded, and the
            # guardrail stops the step behind it.
            is_first = doing.done()
            if not is_first:
                self._failure = self._first_failure()
                self._cancel()
                await workflow.wait([doing], timeout=ANSWER_SECONDS)
                doing.cancel()
                await self._end(doing)
            if _has_result(doing):
                return doing.result()
            if not is_first or self._has_failed():
                return None
            self._cancel()
            await self._end()
        except asyncio.CancelledError:  # not `finally`, as in `Steps._run_lanes`
            doing.cancel()
            self._cancel()
            await self._end()
            await asyncio.gather(doing, return_exceptions=True)
            raise
        return doing.result()

    async def failure(self) -> Failure | None:
        """Wait until all have passed, or for the first that has not."""
        waited: list[asyncio.Task[Failure | None]] = list(self._running)
        try:
            while waited and self._failure is None:
                done, _ = await workflow.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                waited = [each for each in waited if each not in done]
                ended = [each.result() for each in self._running if each in done]  # in their order
                self._failure = next((found for found in ended if found is not None), None)
        except asyncio.CancelledError:
            self._cancel()
            await self._end()
            raise
        if not self._is_over:
            self._cancel()
            await self._end()
        return self._failure

    def _has_failed(self) -> bool:
        ended = (each for each in self._running if each.done() and not each.cancelled())
        return any(each.exception() is not None or each.result() is not None for each in ended)

    def _first_failure(self) -> Failure | None:
        found = (each.result() for each in self._running if _has_result(each))
        return next((failure for failure in found if failure is not None), None)

    def _cancel(self) -> None:
        """Cancel the ones that still run."""
        for each in self._running:
            each.cancel()

    async def _end(self, *beside: asyncio.Task[Any]) -> None:
        """Wait a moment for the end of what was cancelled: activities hear of it by heartbeats.

        What they find later is not recorded.
        """
        running = [each for each in (*beside, *self._running) if not each.done()]
        if running:
            await workflow.wait(running, timeout=CANCELLED_SECONDS)
        self._is_over = True

    async def _check(self, ledger: Ledger, n: int, due: Due) -> Failure | None:
        """Run one guardrail; one that raises parks the task until its code is mended."""
        try:
            found = await calls.guard(ledger, n, due, now=now())
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return calls.failure_of(error).model_copy(update={"parks": True})
        if self._is_over or ledger.find(n) is None:  # an undo has taken the step away meanwhile
            return None
        return record_found(ledger, n, due, found, now=now())


async def check_output(ledger: Ledger, n: int) -> Failure | None:
    """Run the guardrails of a step's final output, before the step is recorded as completed."""
    due = outputs_due(ledger, n)
    return await Checks(ledger, n, due).failure() if due else None


def _has_result(each: asyncio.Task[Any]) -> bool:
    return each.done() and not each.cancelled() and each.exception() is None
