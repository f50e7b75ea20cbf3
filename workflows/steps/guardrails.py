"""Guardrails as the task runs them: each in an activity of its own, those of a kind at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.task.data.failures import Failure
from holdfast.task.data.wire import Advanced
from holdfast.task.guardrails_due import INPUT_TRIPPED, Due, outputs_due, record_found
from holdfast.task.ledger.ledger import Ledger
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import now

LAST_ANSWER_SECONDS = 1.0
"""How long a tripped guardrail waits for the answer of the model call beside it."""


class Checks:
    """Guardrails that look at the same thing at the same time.

    The first that trips, or fails, cancels the others.
    """

    def __init__(self, ledger: Ledger, n: int, due: Sequence[Due]) -> None:
        """Begin to run those that are due."""
        self._running: list[asyncio.Task[Failure | None]] = [
            asyncio.create_task(_check(ledger, n, each)) for each in due
        ]
        for each in self._running:
            each.add_done_callback(_retrieve)
        self._failure: Failure | None = None

    @property
    def are_due(self) -> bool:
        """Whether there are any."""
        return bool(self._running)

    async def beside(self, work: Coroutine[Any, Any, Advanced]) -> Advanced | None:
        """Do the first turn's work meanwhile, whose tools wait for the guardrails anyway.

        Returns:
            What it gave; None when a guardrail tripped first: the work is cancelled then, without
            waiting until its activity has noticed. An answer that is just arriving is taken, since
            it has been paid for.

        Raises:
            ActivityError: The work failed, and no guardrail has tripped.
        """
        if not self._running:
            return await work
        doing = asyncio.create_task(work)
        doing.add_done_callback(_retrieve)
        try:
            await workflow.wait_condition(lambda: doing.done() or self._has_tripped())
            if not doing.done():
                await workflow.wait([doing], timeout=LAST_ANSWER_SECONDS)
            if not doing.done():
                doing.cancel()
                return None
            if doing.exception() is not None and await self.failure() is not None:
                return None
        except asyncio.CancelledError:  # not `finally`, as in `Steps._run_lanes`
            doing.cancel()
            self._stop()
            await asyncio.gather(doing, *self._running, return_exceptions=True)
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
            self._stop()
            await asyncio.gather(*self._running, return_exceptions=True)
            raise
        self._stop()
        return self._failure

    def _has_tripped(self) -> bool:
        ended = [each for each in self._running if each.done() and not each.cancelled()]
        found = [each.result() for each in ended if each.exception() is None]
        return any(failure is not None and failure.type == INPUT_TRIPPED for failure in found)

    def _stop(self) -> None:
        for each in self._running:
            each.cancel()


async def check_output(ledger: Ledger, n: int) -> Failure | None:
    """Run the guardrails of a step's final output, before the step is recorded as completed."""
    due = outputs_due(ledger, n)
    return await Checks(ledger, n, due).failure() if due else None


async def _check(ledger: Ledger, n: int, due: Due) -> Failure | None:
    """Run one guardrail; one that raises parks the task until its code is mended."""
    try:
        found = await calls.guard(ledger, n, due, now=now())
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        return calls.failure_of(error).model_copy(update={"parks": True})
    if ledger.find(n) is None:  # an undo has taken the step away meanwhile
        return None
    return record_found(ledger, n, due, found, now=now())


def _retrieve(done: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a cancelled task, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()
