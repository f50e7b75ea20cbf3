"""Leases: whether an attempt of an activity still belongs to this process, checked before it acts.

A process that was stopped for a while, a laptop that was suspended and a virtual machine that was
moved do not notice: they go on where they were. Meanwhile the server may have given up their
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
"""Part of the heartbeat timeout for which an answer of the server is trusted. The rest of it is for
the time between the question and the action."""

ASKING_SECONDS = 10.0
CANCEL_SECONDS = 2.0
"""How long an attempt that the server wants cancelled waits for the cancellation."""


class NotOursError(ApplicationError):
    """This process may not act for the attempt (any more): nothing was done.

    Its constructor is that of ApplicationError, because `marked` copies it.
    """


class Lease:
    """The right of this process to act for one attempt of an activity.

    Attributes:
        ask: Asks the server for it, before the action that it is given; raises NotOursError.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        """Begin unconfirmed: this process may have received the attempt long ago.

        Args:
            beat: Sends a heartbeat, from any thread and event loop.
        """
        self.ask: Callable[[str], Awaitable[None]] = partial(_ask, beat=beat)
        self._confirmed: float | None = None
        timeout = activity.info().heartbeat_timeout or timedelta(seconds=ASKING_SECONDS)
        self._trusted = TRUSTED_SHARE * timeout.total_seconds()

    async def ensure(self, what: str) -> None:
        """Return if the attempt belongs to this process; ask the server unless it was just asked.

        Args:
            what: What is about to be done, for a person.

        Raises:
            NotOursError: It does not, or the server cannot say.
        """
        while self._confirmed is None or now() - self._confirmed > self._trusted:
            before = now()
            await self.ask(what)
            self._confirmed = before  # the answer may have come late


_lease: ContextVar[Lease] = ContextVar("holdfast_lease")


def begin_lease(beat: Callable[[], None]) -> None:
    """Begin the lease of the current attempt, for all of its coroutines; `beat` as in `Lease`."""
    _lease.set(Lease(beat))


def current_lease() -> Lease:
    """Return the lease of the current attempt."""
    return _lease.get()


async def ensure_ours(what: str) -> None:
    """Return if the current attempt still belongs to this process, see `Lease.ensure`."""
    await _lease.get().ensure(what)


def now() -> float:
    """Return seconds of a clock that goes on while the machine is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = time.CLOCK_MONOTONIC  # the one of time.monotonic() stops there
    return time.monotonic() if clock is None else time.clock_gettime(clock)


async def _ask(what: str, beat: Callable[[], None]) -> None:
    """Send a heartbeat; the server refuses that of an attempt which it has given up."""
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
        beat()  # the worker learns of the cancellation only from a heartbeat of its own
        await asyncio.sleep(CANCEL_SECONDS)
        msg = f"The {what} was not begun: this attempt is to be cancelled."
        raise NotOursError(msg, type=NOT_STARTED)
