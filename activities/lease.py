"""Whether an attempt of an activity is still this process's, asked just before it acts.

A process that was stopped for a while, a laptop that was suspended and a virtual machine that was
moved know nothing of it: they go on where they were. Meanwhile the server has given up their
attempt, and another worker process may have made the call.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from functools import partial

from temporalio import activity
from temporalio.api.workflowservice.v1 import RecordActivityTaskHeartbeatRequest
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.task.data.failures import NOT_STARTED

TRUSTED_SHARE = 0.5
"""Part of the heartbeat timeout for which an answer of the server is believed. What is left of it
is for the way from the question to the act."""

ASKING_SECONDS = 10.0
CANCEL_SECONDS = 2.0
"""How long an attempt that is to be cancelled waits for that."""


class NotOursError(ApplicationError):
    """This process may not act for the attempt (any more): nothing was done.

    It is made as every ApplicationError, because it is copied when it is marked as certain.
    """


class Lease:
    """What is known of who owns one attempt of an activity.

    Attributes:
        ask: Asks the server whose attempt it is before what is named to it; raises NotOursError.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        """Know nothing: even the task may have been received long ago.

        Args:
            beat: Shows a sign of life, from any thread and event loop.
        """
        self.ask: Callable[[str], Awaitable[None]] = partial(_ask, beat=beat)
        self._confirmed: float | None = None
        timeout = activity.info().heartbeat_timeout or timedelta(seconds=ASKING_SECONDS)
        self._trusted = TRUSTED_SHARE * timeout.total_seconds()

    async def ensure(self, what: str) -> None:
        """Return if the attempt is this process's; ask the server unless it has said so just now.

        Args:
            what: What is about to be done, for a person.

        Raises:
            NotOursError: It is another's, or nobody can say whose.
        """
        while self._confirmed is None or now() - self._confirmed > self._trusted:
            before = now()
            await self.ask(what)
            self._confirmed = before  # the answer may have come late


_lease: ContextVar[Lease] = ContextVar("holdfast_lease")


def begin_lease(beat: Callable[[], None]) -> None:
    """Know nothing yet of the current attempt, in all of its coroutines; `beat` as of `Lease`."""
    _lease.set(Lease(beat))


def current_lease() -> Lease:
    """Return what is known of the current attempt."""
    return _lease.get()


async def ensure_ours(what: str) -> None:
    """Return if the current attempt is still this process's, see `Lease.ensure`."""
    await _lease.get().ensure(what)


def now() -> float:
    """Return seconds of a clock that goes on while the machine is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = time.CLOCK_MONOTONIC  # the one of time.monotonic() stops there
    return time.monotonic() if clock is None else time.clock_gettime(clock)


async def _ask(what: str, beat: Callable[[], None]) -> None:
    """Tell the server that the attempt is alive; it refuses that of an attempt it has given up."""
    info, client = activity.info(), activity.client()
    request = RecordActivityTaskHeartbeatRequest(
        namespace=info.namespace, task_token=info.task_token, identity=client.identity
    )
    try:
        said = await client.workflow_service.record_activity_task_heartbeat(
            request, retry=True, timeout=timedelta(seconds=ASKING_SECONDS)
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            msg = f"The {what} was not begun: the server has given up this attempt."
        else:
            msg = f"The {what} was not begun: nobody can say whose attempt it is: {error.message}"
        raise NotOursError(msg, type=NOT_STARTED) from None
    if said.cancel_requested or said.activity_paused or said.activity_reset:
        beat()  # by it the worker learns of it; Temporal's own works in the worker's loop alone
        await asyncio.sleep(CANCEL_SECONDS)
        msg = f"The {what} was not begun: this attempt is to be cancelled."
        raise NotOursError(msg, type=NOT_STARTED)
