"""Heartbeats, leases and attempts of activities.

Heartbeats show that a worker process lives, and bring cancellations to activities. A lease answers,
just before an activity acts, whether its attempt still belongs to this process: one that was
stopped for a while, or suspended, or moved to another machine, does not notice. Meanwhile the
server may have given up the attempt, and another worker process may have made the call.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from copy import copy
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.converter import ActivitySerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import ModelUnavailableError
from holdfast.task.data.failures import NOT_STARTED, Losses, losses_in
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_object

CLOCKS_SECONDS = 300.0
"""How long a difference between the clocks is remembered, at least."""


def now() -> float:
    """Return seconds of a clock that goes on while the machine is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = time.CLOCK_MONOTONIC  # the one of time.monotonic() stops there
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Clocks:
    """For how long activities were in transit from the server to this process.

    Of the differences between this machine's time and the server's time of the start, the least one
    of the last minutes is the difference of the two clocks.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._least, self._least_before = math.inf, math.inf
        self._end = 0.0

    def delay(self, started: float, here: float) -> float | None:
        """Return for how long an activity was in transit; None for the first one.

        Args:
            started: When the server started it, by the server's clock.
            here: The time, by this machine's clock.
        """
        if now() > self._end:
            self._least_before, self._least = self._least, math.inf
            self._end = now() + CLOCKS_SECONDS
        least, difference = min(self._least, self._least_before), here - started
        self._least = min(self._least, difference)
        return None if least == math.inf else max(difference - least, 0.0)


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

    def __init__(self, pulse: Pulse) -> None:
        """Begin unconfirmed: this process may have received the attempt long ago.

        Args:
            pulse: Heartbeats of the attempt.
        """
        info = activity.info()
        self.ask: Callable[[str], Awaitable[None]] = partial(_ask, pulse=pulse)
        self._confirmed: float | None = None
        self._started: float | None = None
        if info.is_local:
            self.ask = _refuse
        else:
            self._started = _time_of(info.started_time.timestamp())
        timeout = info.heartbeat_timeout or timedelta(seconds=ASKING_SECONDS)
        self._trusted = TRUSTED_SHARE * timeout.total_seconds()

    def trust_start(self) -> None:
        """Count the server as asked when it started the attempt, where the clocks tell the time.

        It saves a request; clocks may be set meanwhile.
        """
        if self._confirmed is None:
            self._confirmed = self._started

    def trust_workflow_task(self, begun: float) -> None:
        """Let a local activity trust the begin of its workflow task, where the clocks tell when.

        It is the only thing that it can trust. Until the workflow task times out, after ten seconds
        by default, the server gives it to no other worker.

        Args:
            begun: When the server gave it to this worker, in seconds since the epoch.
        """
        self._confirmed = _time_of(begun)

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


_clocks = Clocks()


def _time_of(started: float) -> float | None:
    """Return the time of `now()` at which the server started something, by its clock."""
    delay = _clocks.delay(started, time.time())
    return None if delay is None else now() - delay


_lease: ContextVar[Lease] = ContextVar("holdfast_lease")


def current_lease() -> Lease:
    """Return the lease of the current attempt."""
    return _lease.get()


async def ensure_ours(what: str) -> None:
    """Return if the current attempt still belongs to this process, see `Lease.ensure`."""
    await _lease.get().ensure(what)


async def tell_server(*details: Json) -> None:
    """Send a heartbeat of the current attempt past the worker, and wait until the server has it.

    The details replace those of the heartbeat before, also when there are none now.

    Raises:
        AsyncActivityCancelledError: The server has it, and wants the attempt to be cancelled.
        RPCError: The server does not have it, or has given up the attempt.
    """
    handle = current_handle()
    await handle.heartbeat(*details, rpc_timeout=timedelta(seconds=ASKING_SECONDS))


def current_handle() -> AsyncActivityHandle:
    """Return the handle of the current attempt, by which others than the worker report on it."""
    info = activity.info()
    handle = activity.client().get_async_activity_handle(task_token=info.task_token)
    return handle.with_context(serialization_context(info.activity_type, info.activity_id))


def serialization_context(kind: str, activity_id: str) -> ActivitySerializationContext:
    """Return the context by which a data converter knows an activity of the current task."""
    info = activity.info()
    return ActivitySerializationContext(
        namespace=info.namespace,
        activity_id=activity_id,
        activity_type=kind,
        activity_task_queue=info.task_queue,
        workflow_id=info.workflow_id,
        workflow_type=info.workflow_type,
        is_local=False,
    )


async def _ask(what: str, pulse: Pulse) -> None:
    """Send a heartbeat; the server refuses that of an attempt which it has given up."""
    try:
        await tell_server(*pulse.details())
    except AsyncActivityCancelledError:
        pulse.show()  # the worker learns of the cancellation only from a heartbeat of its own
        await asyncio.sleep(CANCEL_SECONDS)
        msg = f"The {what} was not begun: the server is cancelling this attempt."
        raise NotOursError(msg, type=NOT_STARTED) from None
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            msg = f"The {what} was not begun: the server has given up this attempt."
        else:
            why = f"the server cannot say whose attempt it is: {error.message}"
            msg = f"The {what} was not begun: {why}"
        raise NotOursError(msg, type=NOT_STARTED) from None


async def _refuse(what: str) -> None:
    """Refuse what a local activity is too late for: the server cannot be asked whose it is."""
    msg = f"The {what} was not begun: another worker may have the workflow task by now."
    raise NotOursError(msg, type=NOT_STARTED)


FASTEST_SECONDS = 5.0
"""Longest time between two heartbeats, and so between a cancellation and its arrival in the
activity."""

RESTING_SHARE = 0.6
"""Part of the heartbeat timeout after which an activity that only waits sends the next one."""

FAILED = "failed"
"""Member of a detail of heartbeats: the `FailedCalls` of the activity."""


class FailedCalls(NamedTuple):
    """The model calls of an activity that have failed and are made again, over all its attempts.

    The number of an attempt does not tell that: a lost worker is not a failed call. The server
    keeps the details of the newest heartbeat, also when an attempt fails or is lost.

    Attributes:
        repeated: Failed calls that the usage counts.
        limits: Failed calls that a rate limit of the provider refused: such attempts do not count.
        since: When the first of these attempts began, seconds since the epoch.
    """

    repeated: int = 0
    limits: int = 0
    since: float = 0.0

    @classmethod
    def known(cls) -> FailedCalls:
        """Return what the attempts of the running activity before this one have said."""
        details = activity.info().heartbeat_details
        if not details:
            return cls()
        said = (each[FAILED] for each in details if is_object(each) and FAILED in each)
        return cls(*next(said, ()))

    @property
    def attempt(self) -> int:
        """Number of the running attempt, without attempts that a rate limit ended."""
        return activity.info().attempt - self.limits

    def after(self, error: ModelUnavailableError) -> FailedCalls:
        """Return these and the one that has failed in this attempt."""
        refused = error.is_limit and not error.is_unasked
        began = activity.info().started_time.timestamp() if refused else 0.0
        return FailedCalls(
            self.repeated + error.is_repeated, self.limits + error.is_limit, self.since or began
        )


HASTE_SECONDS, HASTY_SECONDS = 0.05, 2.0
"""Time between heartbeats of an activity that the task is likely to cancel, and for how long."""

NEWS_SECONDS = 0.02
"""Shortest time between two heartbeats with news. The worker throttles them to the newest one in
0.1 s."""

PROGRESS_SECONDS = 0.5
"""Shortest time between two heartbeats that show how far an answer is: each is billed."""


class Pulse:
    """The heartbeats of one activity, with their details. Safe from any thread.

    Attributes:
        news: Set when a heartbeat must be sent soon.
        send: Sends a heartbeat with these details; to be called in the heartbeats' own loop.
        moved: Whether the task has continued as new since the activity was scheduled.
        failed: The model calls that have failed; each heartbeat carries them.
        pause: Longest time between two heartbeats, in seconds.
        usual: The same of an activity that does not only wait.
    """

    def __init__(self, send: Callable[..., None] = activity.heartbeat) -> None:
        """Send heartbeats without details from the running loop."""
        self.news = asyncio.Event()
        self.send = send
        self.moved = False
        self.failed = FailedCalls()
        self.hasty_until = 0.0
        self.pause = self.usual = FASTEST_SECONDS
        self._tells, self._told = False, 0.0
        self._rested = 0.0
        self._heir: Pulse | None = None
        self._home = asyncio.get_running_loop()
        self._make_details: Callable[[], Json] | None = None

    @property
    def has_moved(self) -> bool:
        """Whether the task has continued as new since the activity was scheduled."""
        return self.moved if self._heir is None else self._heir.has_moved

    def hand_over(self, heir: Pulse) -> None:
        """Send heartbeats as this other activity, the current one, which takes over the work."""
        self._heir = heir
        self.send = heir.teller()

    def carry(self, details: Callable[[], Json]) -> None:
        """Have later heartbeats carry what this function returns then."""
        self._make_details = details

    def rest(self, details: Callable[[], Json]) -> None:
        """Carry what the activity waits for, and send heartbeats as seldom as the timeout allows.

        Each heartbeat is billed.
        """
        self._make_details = details
        timeout = activity.info().heartbeat_timeout
        self.pause = RESTING_SHARE * timeout.total_seconds() if timeout else self.usual
        self._rested = now()

    def go_on(self) -> None:
        """Carry nothing, and send heartbeats as often as usual: the wait is over."""
        self._make_details = None
        self.pause = self.usual
        if now() - self._rested > self.pause:  # else no heartbeat has told of the wait
            self.show()

    def tell_progress(self) -> None:
        """Send a heartbeat, but no two of these within `PROGRESS_SECONDS`."""
        if not self._tells:
            self._tells = True
            self._home.call_soon_threadsafe(self._tell_later)

    def _tell_later(self) -> None:
        self._home.call_later(max(self._told + PROGRESS_SECONDS - now(), 0.0), self._tell)

    def _tell(self) -> None:
        self._tells, self._told = False, now()
        self.news.set()

    def show(self) -> None:
        """Send a heartbeat soon, with details from the same function as before."""
        self._home.call_soon_threadsafe(self.news.set)

    def hasten(self) -> None:
        """Send heartbeats fast for a moment: the task is likely to cancel the activity."""
        self.hasty_until = now() + HASTY_SECONDS
        self.show()

    def beat(self) -> None:
        """Have the worker send a heartbeat; to be called in the heartbeats' own loop."""
        self.send(*self.details())

    def beat_soon(self) -> None:
        """Send a heartbeat, from any thread, before any later one."""
        self._home.call_soon_threadsafe(self.beat, context=copy_context())

    def details(self) -> list[Json]:
        """Return what a heartbeat carries now: a value, if any, and the failed model calls."""
        details = None if self._make_details is None else self._make_details()
        if any(self.failed):
            return [details, {FAILED: list(self.failed)}]
        return [] if details is None else [details]

    def teller(self) -> Callable[..., None]:
        """Return a function that sends a heartbeat with details, as `activity.heartbeat` does.

        Temporal's own works only in the worker's loop. This one works in every thread; once the
        activity is over it does nothing.
        """
        here = copy_context()

        def beat(details: tuple[Any, ...]) -> None:
            with suppress(RuntimeError):  # the activity is over
                self.send(*details)

        def send(*details: Any) -> None:
            self._home.call_soon_threadsafe(beat, details, context=here.copy())

        return send


current: ContextVar[Pulse] = ContextVar("holdfast_pulse")
"""The heartbeats of the activity that runs in this context."""


class Signs(NamedTuple):
    """Heartbeats and lease of a part of an activity, which another activity may take over."""

    pulse: Pulse
    lease: Lease

    def hand_over(self, pulse: Pulse) -> None:
        """Go on with the heartbeats and the lease of the current activity."""
        self.pulse.hand_over(pulse)
        self.lease.ask = current_lease().ensure


def begin_part() -> Signs:
    """Give what runs in this context heartbeats and a lease that are its own.

    Its heartbeats are not sent until another activity takes it over: their details would replace
    those of the activity in which it runs.
    """
    part = Signs(Pulse(_not_sent), copy(current_lease()))
    current.set(part.pulse)
    _lease.set(part.lease)
    return part


def _not_sent(*_details: Any) -> None:
    """Drop a heartbeat: one whose details would replace others, or of a local activity."""


@asynccontextmanager
async def heartbeats(*, trusts_start: bool = False) -> AsyncGenerator[Pulse]:
    """Heartbeat while the block runs, at a third of the timeout or every five seconds.

    The heartbeat comes from the event loop of the outermost such block, which is the worker's: a
    loop that is blocked sends none.

    Args:
        trusts_start: Whether to trust the start of the attempt, see `Lease.trust_start`; a block
            inside of another may decide that as well.
    """
    if current.get(None) is not None:
        if trusts_start:
            _lease.get().trust_start()
        yield current.get()
        return
    pulse = Pulse(_not_sent) if activity.info().is_local else Pulse()
    lease = Lease(pulse)
    _lease.set(lease)  # for all coroutines of the attempt
    if trusts_start:
        lease.trust_start()
    token = current.set(pulse)
    beat = asyncio.create_task(_beat(pulse))
    mine = (activity.info().workflow_id, pulse)
    _pulses.add(mine)
    try:
        yield pulse
    finally:
        current.reset(token)
        _pulses.discard(mine)
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)


@asynccontextmanager
async def counting_failed(pulse: Pulse) -> AsyncGenerator[None]:
    """Have the next attempt of the activity know which of its model calls have failed.

    Raises:
        ModelUnavailableError: That of the block, of a model call of ours or of the user's code.
    """
    pulse.failed = FailedCalls.known()
    try:
        yield
    except ModelUnavailableError as error:
        pulse.failed = pulse.failed.after(error)
        # Else the worker sends an older one at the end, which would replace this.
        pulse.beat_soon()
        with suppress(RPCError, AsyncActivityCancelledError):
            await tell_server(*pulse.details())
        raise


_pulses: set[tuple[str | None, Pulse]] = set()
"""The heartbeats of this process, each with its task."""


def beside() -> tuple[Pulse, ...]:
    """Return the heartbeats of the other activities of the task in this process."""
    own, task = current.get(None), activity.info().workflow_id
    known = _pulses.copy()  # activities in other threads come and go
    return tuple(each for of, each in known if of == task and each is not own)


async def _beat(pulse: Pulse) -> None:
    timeout = activity.info().heartbeat_timeout
    seconds = min(timeout.total_seconds() / 3 if timeout else FASTEST_SECONDS, FASTEST_SECONDS)
    pulse.pause = pulse.usual = seconds
    while True:
        pause = HASTE_SECONDS if now() < pulse.hasty_until else pulse.pause
        try:
            async with asyncio.timeout(pause):  # wait_for may swallow the cancellation at the end
                await pulse.news.wait()
        except TimeoutError:
            pulse.beat()
            continue
        pulse.news.clear()
        pulse.beat()
        await asyncio.sleep(NEWS_SECONDS)


class InlineCall(NamedTuple):
    """A call that runs in the activity of its step.

    Attributes:
        i: Its position among the calls of the step.
        began: When it was begun, seconds since the epoch.
    """

    i: int
    began: float


inline_call: ContextVar[InlineCall | None] = ContextVar("holdfast_inline_call", default=None)
"""The call that runs here in the activity of its step; None in an activity of its own."""


def attempt_of(tried: int) -> int:
    """Number the attempt of what runs here, from 1.

    Args:
        tried: Attempts before this activity was scheduled.
    """
    return tried + (1 if inline_call.get() is not None else activity.info().attempt)


def begun_at() -> float:
    """Return when the current call was begun, seconds since the epoch."""
    call = inline_call.get()
    return activity.info().started_time.timestamp() if call is None else call.began


def place_here() -> str:
    """Name the place of what runs here among all activities of the task's run."""
    call, id = inline_call.get(), activity.info().activity_id
    return id if call is None else f"{id}.{call.i}"


async def losses() -> Losses:
    """Return which attempts before this one count as lost.

    The server keeps why the last attempt ended, and of earlier ones only their number. A failed
    attempt says what it knew (`LOST`). When the last one was lost, or the server cannot be asked,
    all count as lost, except attempts that a rate limit ended.
    """
    info = activity.info()
    if info.attempt == 1 or info.workflow_id is None:
        return Losses()
    handle = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
    try:
        described = await handle.describe()
    except RPCError:
        return Losses(FailedCalls.known().attempt - 1)
    pending = described.raw_description.pending_activities
    mine = [each.last_failure for each in pending if each.activity_id == info.activity_id]
    if any(each.HasField("timeout_failure_info") for each in mine):
        return Losses(FailedCalls.known().attempt - 1)
    return await _said_in(mine[0]) if mine else Losses()


async def _said_in(failure: Failure) -> Losses:
    """Return what a failed attempt has said of those before it."""
    payloads = list(failure.application_failure_info.details.payloads)
    details = await activity.client().data_converter.decode(payloads) if payloads else []
    return losses_in(details) or Losses()
