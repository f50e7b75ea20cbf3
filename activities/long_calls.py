"""Tool calls that run for long: they go on although their task continues as new meanwhile.

An activity belongs to one run of its task. When that run ends because the task continues as new,
the server forgets the activity and refuses its heartbeats and its result; the tool itself goes on.
The next run schedules the activity `rejoin`, which does nothing, under an id that was announced to
the task before. The process that runs the tool sends heartbeats for `rejoin`, and completes it.
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NoReturn

from temporalio import activity
from temporalio.client import (
    AsyncActivityCancelledError,
    AsyncActivityHandle,
    WorkflowExecutionStatus,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError, TemporalError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.failures import LASTING, check_readable, text_of
from holdfast.activities.heartbeat import (
    NotOursError,
    Pulse,
    current,
    current_handle,
    current_lease,
    heartbeats,
    serialization_context,
)
from holdfast.engine.search_attributes import HF_STATUS
from holdfast.task.data.calls import AWAITED, LONG_CALL, SECRET, LongCall, Outcome
from holdfast.task.data.failures import AGAIN, INTERRUPTED, NOT_STARTED
from holdfast.task.data.wire import ToolInput
from holdfast.values.runs.status import CLOSED
from holdfast.values.text.logs import log

ASKING = timedelta(seconds=10)
"""How long one request to the server may take, and the pause before it is made again."""


class OwningTask:
    """Asks the task of the current activity about a long call, and announces the call to it.

    The call was scheduled by one run of the task. It is announced to that run, which alone knows
    the activity; whether it is still awaited is asked of the newest run, because the task may have
    continued as new.

    Attributes:
        id: The task's id.
    """

    def __init__(self) -> None:
        """Use the task that scheduled the current activity."""
        info, client = activity.info(), activity.client()
        self.id = info.workflow_id or ""
        self._newest: WorkflowHandle[Any, Any] = client.get_workflow_handle(self.id)
        self._scheduling: WorkflowHandle[Any, Any] = client.get_workflow_handle(
            self.id, run_id=info.workflow_run_id
        )

    async def secret(self) -> str | None:
        """Return what proves to the task that a signal comes from one of its activities.

        Returns:
            None when the server no longer knows the run: the attempt is over.
        """
        while True:
            try:
                return str(
                    await self._scheduling.query(SECRET, result_type=str, rpc_timeout=ASKING)
                )
            except (RPCError, TemporalError) as error:
                if is_not_found(error):
                    return None
                log.info("Task %r does not answer: %s", self.id, error)
            except Exception:  # as of a data converter
                log.exception("Task %r cannot be asked what its signals carry", self.id)
            await asyncio.sleep(ASKING.total_seconds())

    async def announce(self, call: LongCall) -> bool:
        """Signal that a call runs for long.

        Returns:
            Whether the signal is recorded, or the run is over and can record nothing more.
        """
        try:
            await self._scheduling.signal(LONG_CALL, call, rpc_timeout=ASKING)
        except RPCError as error:
            return is_not_found(error)
        except Exception:  # as of a data converter
            log.exception("Task %r cannot be told of a call that runs for long", self.id)
            return False
        return True

    async def awaits(self, call_id: str) -> bool:
        """Whether the task awaits a long call; while the task cannot be asked, it does."""
        try:
            found = await self._newest.describe(rpc_timeout=ASKING)
            if found.status is not WorkflowExecutionStatus.RUNNING:
                return False
            awaited = await self._newest.query(AWAITED, result_type=list[str], rpc_timeout=ASKING)
        except (RPCError, TemporalError) as error:
            return not is_not_found(error)
        except Exception:  # as of a data converter
            log.exception("Task %r cannot be asked about a call that runs for long", self.id)
            return True
        return call_id in awaited


async def ensure_wanted(root: str) -> None:
    """Return unless the task has ended that a nested one works for, before it asks a model.

    The request to end comes down from one nested task to the next, which takes its time.

    Raises:
        ApplicationError: It has, and no such request has come since.
    """
    try:
        found = await activity.client().get_workflow_handle(root).describe(rpc_timeout=ASKING)
    except RPCError as error:
        if not is_not_found(error):
            return  # what cannot be asked now is no reason to stop
    else:
        known = found.typed_search_attributes.get(HF_STATUS)
        if found.status is WorkflowExecutionStatus.RUNNING and known not in CLOSED:
            return
    current.get().hasten()
    await asyncio.sleep(ASKING.total_seconds())
    msg = f"No model is asked: task {root!r}, which this one works for, has ended."
    raise ApplicationError(msg, type="TaskClosedError", non_retryable=True)


def is_not_found(error: BaseException) -> bool:
    """Whether the server says that it does not know what was asked for."""
    return isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND


LONG_SECONDS = 60.0
"""After this time a call is announced to its task as a long one: one event more in its history."""

FASTEST_SECONDS = 0.1
"""Shortest time between two heartbeats."""

MOVING_SECONDS = 0.5
"""Time between two attempts to find the activity `rejoin` of a call in the next run."""

LAST_SECONDS = 10.0
"""How long a process that is being stopped tries to hand over the outcome of a call."""

ToolActivity = Callable[[ToolInput], Awaitable[Outcome]]


class LongCalls:
    """Runs tool calls, and keeps those alive that run for long.

    Attributes:
        grace: How long a call may go on once its worker is being stopped.
    """

    def __init__(self, run: ToolActivity) -> None:
        """Use this activity to run the calls."""
        self.grace = timedelta()

        @functools.wraps(run)
        async def tool(given: ToolInput) -> Outcome:
            async with heartbeats() as pulse:
                return await _Call(given, pulse, self).outcome(run)

        self.tool = tool

    @activity.defn(name="rejoin")
    async def rejoin(self) -> Outcome:
        """Stand for a call that was begun in an earlier run of the task; see `_Call`."""
        activity.raise_complete_async()


class _Call:
    """One call: an ordinary activity at first, kept alive from here once it runs for long.

    Attributes:
        is_announced: Whether the task may know that the call runs for long. From then on heartbeats
            and the outcome are sent from here, and not by the worker.
        is_cancelled: Whether the tool was cancelled.
    """

    def __init__(self, given: ToolInput, pulse: Pulse, calls: LongCalls) -> None:
        self.is_announced = self.is_cancelled = False
        self._given, self._pulse, self._calls = given, pulse, calls
        self._signalled = self._is_moving = False
        self._is_asked_to_stop = self._is_dropped = self._is_ending = False
        self._news, self._details = asyncio.Event(), tuple[Any, ...]()
        self._work: asyncio.Future[Outcome] = asyncio.Future()

    def _reach(self) -> None:
        """Make what reaches the task and its activities, which only a long call needs."""
        self._id, self._task, self._mine = uuid.uuid4().hex[:16], OwningTask(), current_handle()
        following = activity.client().get_async_activity_handle(
            workflow_id=self._task.id, run_id=None, activity_id=self._id
        )
        self._next = following.with_context(serialization_context("rejoin", self._id))

    @property
    def _handle(self) -> AsyncActivityHandle:
        """The activity of this call in the task's present run, as far as it is known."""
        return self._next if self._pulse.has_moved else self._mine

    async def outcome(self, run: ToolActivity) -> Outcome:
        """Run the call.

        Raises:
            ApplicationError: As the activity `tool`.
            BaseException: Temporal's own, by which the worker leaves the outcome to this class.
        """
        self._work = asyncio.ensure_future(run(self._given))
        beside = self._beside = [asyncio.create_task(self._live())]
        try:
            await self._until(self._work)
            if self.is_announced:
                beside.append(asyncio.create_task(self._hand_over()))
                await self._until(beside[-1])
                activity.raise_complete_async()
        finally:
            for each in beside:
                each.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        return self._work.result()

    async def _until(self, done: asyncio.Future[Any]) -> None:
        """Wait for the end of the tool, or of the hand-over; a cancelled activity stops the tool.

        Temporal also cancels an activity that the server does not know any more. That does not stop
        an announced call: its task may have continued as new.
        """
        while not done.done():
            try:
                await asyncio.wait({done})
            except asyncio.CancelledError:
                why = activity.cancellation_details()
                if self.is_announced and why is not None and (why.not_found or why.timed_out):
                    self._news.set()
                elif self._is_ending:
                    raise
                else:
                    self._is_ending = True
                    self._stop()

    def _stop(self) -> None:
        """Cancel the tool, once: it may be ending already."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._work.cancel()

    async def _stop_at_shutdown(self) -> None:
        """Stop the tool when its worker stops: Temporal cancels no activity a second time."""
        await activity.wait_for_worker_shutdown()
        await asyncio.sleep(self._calls.grace.total_seconds())
        if self.is_announced:
            self._stop()

    # ---- heartbeats

    async def _live(self) -> None:
        """Once the call runs for long, keep it alive from here."""
        await asyncio.sleep(LONG_SECONDS)
        self._beside.append(asyncio.create_task(self._stop_at_shutdown()))
        try:
            await self._show_signs()
        except Exception:
            log.exception("A long call shows no signs of life any more")

    async def _show_signs(self) -> None:
        """Announce the call to the task, and send its heartbeats from then on."""
        self._reach()
        secret = await self._task.secret()
        if secret is None:
            return
        self.is_announced = True
        self._pulse.send = self._show
        current_lease().ask = self._ensure
        while not self._is_dropped:
            self._news.clear()
            if await self._beat() and not self._signalled:
                self._signalled = await self._task.announce(self._announcement(secret))
            await asyncio.sleep(FASTEST_SECONDS)
            is_known = self._signalled and not self._is_moving
            await _wait_for(self._news, None if is_known else MOVING_SECONDS)

    def _show(self, *details: Any) -> None:
        """Have a heartbeat sent soon: at regular times, and when the tool has sent details."""
        self._details = details
        self._news.set()

    def _announcement(self, secret: str) -> LongCall:
        """What the task has to know of this call to await it in its next run."""
        given, started = self._given, activity.info().started_time.timestamp()
        return LongCall(
            id=self._id,
            branch=given.branch,
            n=given.n,
            i=given.i,
            tried=given.tried,
            started=round(started, 3),
            secret=secret,
        )

    async def _beat(self) -> bool:
        """Send a heartbeat; return whether the server knows the call."""
        try:
            await self._handle.heartbeat(*self._details, rpc_timeout=ASKING)
        except AsyncActivityCancelledError:
            self._is_asked_to_stop = True
            self._stop()
        except RPCError as error:
            if is_not_found(error):
                return await self._move()
            return False  # the server will be there again
        except Exception:
            log.exception("A tool's heartbeat of task %r cannot be sent", self._task.id)
            self._details = ()
            return False
        self._is_moving = False
        return True

    async def _move(self) -> bool:
        """Switch to the task's next run; stop the tool if no run awaits the call any more."""
        if not self._pulse.has_moved:
            self._pulse.moved = True
            return await self._beat()
        self._is_moving = True
        if not await self._task.awaits(self._id):
            self._is_dropped = True
            self._stop()
        return False

    async def _ensure(self, what: str) -> None:
        """Return once the server confirms that the call belongs to this process; see `Lease`.

        Raises:
            NotOursError: It does not any more.
        """
        while True:
            try:
                await self._handle.heartbeat(*self._details, rpc_timeout=ASKING)
            except AsyncActivityCancelledError:
                _refuse(what, "the server is cancelling this attempt")
            except RPCError as error:
                if not is_not_found(error):
                    _refuse(what, f"the server cannot say whose attempt it is: {error.message}")
                if self._pulse.has_moved and not await self._task.awaits(self._id):
                    _refuse(what, "the task does not wait for this attempt any more")
                self._pulse.moved = True
            else:
                return
            await asyncio.sleep(MOVING_SECONDS)

    # ---- the outcome

    async def _hand_over(self) -> None:
        """Complete the activity in the run of the task that awaits the call, if one does."""
        giving, late = asyncio.create_task(self._offer()), asyncio.create_task(_late())
        try:
            await asyncio.wait({giving, late}, return_when=asyncio.FIRST_COMPLETED)
            if not giving.done():
                log.error("The outcome of a call of task %r is not handed over", self._task.id)
        finally:
            giving.cancel()
            late.cancel()
            said, _ = await asyncio.gather(giving, late, return_exceptions=True)
            if isinstance(said, Exception):
                log.error("An outcome of task %r is lost", self._task.id, exc_info=said)

    async def _offer(self) -> None:
        """Try to complete the activity until that succeeds or the call is not awaited any more."""
        while not self._is_dropped:
            if await self._is_handed_over():
                return
            await asyncio.sleep(MOVING_SECONDS)

    async def _is_handed_over(self) -> bool:
        """Try once to complete the activity; return whether no further attempt is needed."""
        handle = self._handle
        try:
            await self._give(handle)
        except RPCError as error:
            if error.status in LASTING and not is_not_found(error):
                log.exception("The outcome of a call of task %r is refused", self._task.id)
                await self._lose(handle, error)
                return True
            if not is_not_found(error):
                return False
            self._pulse.moved = self._is_moving = True
            return not await self._task.awaits(self._id)
        except Exception as error:  # as of a data converter
            log.exception("The outcome of a call of task %r cannot be sent", self._task.id)
            await self._lose(handle, error)
        return True

    async def _give(self, handle: AsyncActivityHandle) -> None:
        if self._work.cancelled():
            if self._is_asked_to_stop:
                await handle.report_cancellation(rpc_timeout=ASKING)
            else:
                await handle.fail(_interrupted("its activity was cancelled"), rpc_timeout=ASKING)
            return
        error = self._work.exception()
        if error is None:
            try:
                check_readable(self._work.result(), Outcome)
            except ApplicationError as unreadable:
                error = unreadable
            else:
                await handle.complete(self._work.result(), rpc_timeout=ASKING)
                return
        await handle.fail(_final(error), rpc_timeout=ASKING)

    async def _lose(self, handle: AsyncActivityHandle, error: Exception) -> None:
        try:
            await handle.fail(_interrupted(text_of(error)), rpc_timeout=ASKING)
        except RPCError:  # without heartbeats the call counts as lost
            log.exception("The end of a call of task %r is refused", self._task.id)


async def _late() -> None:
    """Wait until the process is being stopped, and then for a while."""
    await activity.wait_for_worker_shutdown()
    await asyncio.sleep(LAST_SECONDS)


def _final(error: BaseException) -> Exception:
    """Return a failure that is not retried by the server; the task may repeat the call itself."""
    if not isinstance(error, ApplicationError):
        return _interrupted(f"{type(error).__name__}: {error}")
    if error.non_retryable:
        return error
    return ApplicationError(
        error.message, *error.details, AGAIN, type=error.type, non_retryable=True
    )


def _interrupted(why: str) -> ApplicationError:
    text = f"The tool was run, but its outcome is lost: {why}"
    return ApplicationError(text, type=INTERRUPTED, non_retryable=True)


def _refuse(what: str, why: str) -> NoReturn:
    raise NotOursError(f"The {what} was not begun: {why}.", type=NOT_STARTED)


async def _wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until an event is set, or for so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
