"""The event loop of users' code: its own thread, apart from the loop of the Temporal worker.

Tools, hooks, AgentWorkers and models run there, with the rest of each activity. Code that blocks
the loop delays the others, but no heartbeat, no workflow and no stop of the worker.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.failures import LoggedError
from holdfast.activities.heartbeat import heartbeats
from holdfast.engine.loop import LoopThread
from holdfast.errors import with_remedy
from holdfast.models import close_models
from holdfast.task.data.failures import INTERRUPTED, NOT_STARTED, facts
from holdfast.task.data.head import TaskHead
from holdfast.values.code import user_calls
from holdfast.values.code.user_calls import heard
from holdfast.values.text.logs import log

MOST_HANGS = 3
"""Attempts of users' code that does not return, before the task waits for a person."""

HANGS = "CodeHangsError"
"""Type of the failure of an activity whose users' code did not return in time."""

BLOCKED = "Blocked"
"""Type of the failure of a tool call that blocks its event loop."""

NOT_OURS = "code that no task of Holdfast began"
"""Names what blocks a loop when no activity does, such as a callback that was posted to it."""

INLINE = "step with tools"
"""Kind of the work of a step that runs tools: its next attempt leaves them to their activities."""


@dataclass(eq=False, repr=False)
class Work:
    """One activity's work on a user loop.

    Attributes:
        kind: Type of the activity.
        task_id: The task that it works for.
        given: The activity's input; None where it has none.
        head: The task's head, once it was looked up.
        calls: The users' code that it is calling.
        done: How it ended, or that it was given up.
    """

    kind: str
    task_id: str
    given: object = None
    head: TaskHead | None = None
    calls: user_calls.Calls = field(default_factory=user_calls.Calls)
    done: Future[Any] = field(default_factory=Future[Any])
    task: asyncio.Task[Any] | None = None

    def __str__(self) -> str:
        """Name the code that is running, for logs and errors."""
        called = str(self.calls) or f"activity {self.kind!r}"
        return f"{called} of task {self.task_id!r}"


working: ContextVar[Work | None] = ContextVar("holdfast_work", default=None)
"""The activity's work in whose context a task is made."""

called: ContextVar[tuple[Work | None, str]] = ContextVar("holdfast_called", default=(None, ""))
"""The tool call that runs here, by its id, and the work that it is a part of."""


@contextmanager
def inline_calls() -> Generator[None]:
    """Mark the current activity's work as running tools that have activities as well."""
    work = working.get()
    if work is None:
        yield
        return
    kind, work.kind = work.kind, INLINE
    try:
        yield
    finally:
        work.kind = kind


def hangs(work: Work, seconds: float) -> LoggedError:
    """Return the failure of users' code that did not return in time; the last parks the task."""
    attempt = activity.info().attempt
    text = (
        f"{work.calls} did not come back within {seconds:g} seconds, in attempt {attempt} of"
        f" {MOST_HANGS}."
    )
    remedy = "Find out what it waits for, restart the worker process and ask again."
    log.warning("%s", with_remedy(text, remedy))
    known, last = facts(remedy=remedy, parks=True), attempt >= MOST_HANGS
    return LoggedError(text, *known, type=HANGS, non_retryable=last)


def given_up(work: Work, seconds: float) -> LoggedError:
    """Return the failure of users' code that blocks its loop, and would block the next one."""
    text = (
        f"{str(work.calls) or work.kind} blocked the event loop of its worker process for"
        f" {seconds:g} seconds and was given up."
    )
    remedy = (
        "Make it await what it waits for, or make it a plain function (def), which runs in a"
        " thread; then restart the worker process."
    )
    kind, known = BLOCKED if work.kind == "tool" else HANGS, facts(remedy=remedy, parks=True)
    return LoggedError(text, *known, type=kind, non_retryable=work.kind != INLINE)


def cut_off(work: Work) -> LoggedError:
    """Return the failure of work that code of its loop has cancelled, its own or other work's."""
    attempt = activity.info().attempt
    text = (
        f"{str(work.calls) or work.kind} was cut off, in attempt {attempt} of {MOST_HANGS}: code in"
        " the event loop of tools cancelled all tasks there."
    )
    remedy = "Let code cancel only the tasks of asyncio that it has made itself."
    log.warning("%s", with_remedy(text, remedy))
    kind, known = BLOCKED if work.kind == "tool" else HANGS, facts(remedy=remedy, parks=True)
    is_last = attempt >= MOST_HANGS and work.kind != INLINE
    return LoggedError(text, *known, type=kind, non_retryable=is_last)


def held_up(work: Work, blocking: Work | None) -> ApplicationError:
    """Return the failure of work that other code held up; its next attempt gets another loop."""
    what = blocking or NOT_OURS
    if work.task is None:
        text = f"Activity {work.kind!r} was not begun: {what} blocks the event loop."
        return ApplicationError(text, type=NOT_STARTED)
    text = f"{str(work.calls) or work.kind} was cut off: {what} blocks the event loop."
    return ApplicationError(text, type=INTERRUPTED)


P = ParamSpec("P")
T = TypeVar("T")

BLOCKED_SECONDS = 10.0
"""After this time a loop that is blocked is logged, with the code that blocks it."""

GIVEN_UP_SECONDS = 120.0
"""After this time the call that blocks a loop is given up, and others get a loop of their own."""

WATCH_SECONDS = 1.0

MOST_LOOPS = 8
"""Loops of one process, blocked ones included."""

SHORT = frozenset(
    {"describe", "find_tools", "gate", "check", "rejected", "screen", "probe", "handle", "close"}
)
"""Activities that call users' code which should answer at once."""

LONGEST_CALL_SECONDS = 100.0
"""How long such code may take, less than the activity: so it can be said what did not answer."""


STOP_SECONDS = 10.0
"""How long code may go on that a stopping worker has cancelled."""


class UserLoop:
    """One loop in its thread, and a watch that notices when it is blocked."""

    def __init__(self) -> None:
        """Start the loop and its watch."""
        self.blocked_for = 0.0
        self.thread = LoopThread("holdfast-tools")
        self._loop = self.thread.loop
        # Weak on both sides: a work names its task, so a strong value would keep its key for good.
        self._works: WeakKeyDictionary[asyncio.Task[Any], ReferenceType[Work]] = WeakKeyDictionary()
        self._begun: dict[Future[Any], Work] = {}
        self._lock = threading.Lock()  # held to become stuck, and to begin work if not stuck
        self._loop.call_soon_threadsafe(self._loop.set_task_factory, self._make_task)
        threading.Thread(target=self._watch, name="holdfast-watch", daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether it has been blocked for so long that no new work may begin here."""
        return self.blocked_for >= GIVEN_UP_SECONDS

    def begin(self, work: Work, coro: Coroutine[Any, Any, Any], context: Context) -> None:
        """Start a coroutine in a context; its end sets `work.done`.

        A loop that has become stuck since it was chosen begins nothing: the work is given up.
        """

        def start() -> None:
            if work.done.done():  # given up, because earlier work blocked the loop
                coro.close()
                return
            work.task = asyncio.create_task(coro)
            work.task.add_done_callback(functools.partial(_pass_on, work.done))

        context.run(user_calls.current.set, work.calls)
        context.run(working.set, work)
        with self._lock:
            is_stuck = self.is_stuck
            if not is_stuck:
                self._begun[work.done] = work
        if is_stuck:
            coro.close()
            _set_error(work.done, held_up(work, self._blocking()))
            return
        work.done.add_done_callback(self._begun.pop)
        self._loop.call_soon_threadsafe(start, context=context)

    def cancel(self, work: Work) -> None:
        """Cancel what `begin` has started: callbacks run in the order in which they were posted."""

        def stop() -> None:
            if work.task is not None:
                work.task.cancel()

        self._loop.call_soon_threadsafe(stop)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Make a task and remember the work that it belongs to: tools make tasks as well."""
        work = working.get(None) if context is None else context.get(working)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
        if work is not None:
            self._works[task] = ref(work)
        return task

    def _watch(self) -> None:
        """Check each second whether the loop still runs callbacks, until it is closed."""
        while True:
            seen = threading.Event()
            try:
                self._loop.call_soon_threadsafe(seen.set)
            except RuntimeError:
                return
            if not seen.wait(BLOCKED_SECONDS):
                self._wait_blocked(seen)
            time.sleep(WATCH_SECONDS)

    def _wait_blocked(self, seen: threading.Event) -> None:
        """Log what blocks the loop, and wait until it is free; after a while give its work up.

        Seconds are counted, not read from a clock, which goes on while the process is stopped.
        """
        self.blocked_for = BLOCKED_SECONDS
        work = self._blocking()
        log.warning(
            "The event loop of tools and AgentWorkers has been blocked for %g seconds by %s. All"
            " others of this process wait. Make it await what it waits for, or make it a plain"
            " function, which runs in a thread. It is here:\n%s",
            BLOCKED_SECONDS,
            work or NOT_OURS,
            self._stack(),
        )
        while not seen.wait(WATCH_SECONDS) and not self._loop.is_closed():
            was_stuck, work = self.is_stuck, self._blocking()
            with self._lock:
                self.blocked_for += WATCH_SECONDS
            if self.is_stuck and not was_stuck:
                log.error("Given up: %s. Later work gets another event loop.", work or NOT_OURS)
                if work is not None:
                    _set_error(work.done, given_up(work, GIVEN_UP_SECONDS))
                self._leave_others(work)
        self.blocked_for = 0.0

    def _leave_others(self, blocking: Work | None) -> None:
        """Give up the work on a loop that may stay blocked; a retry may use another loop."""
        for work in list(self._begun.values()):
            log.error("Given up, because it waits for %s: %s", blocking or NOT_OURS, work)
            self.cancel(work)
            _set_error(work.done, held_up(work, blocking))

    def _stack(self) -> str:
        """Return the stack of the loop's thread."""
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  documented
        return "".join(traceback.format_stack(frames.get(self.thread.ident)))

    def _blocking(self) -> Work | None:
        """Return the work whose code the loop is running at this moment, if it is known."""
        task = asyncio.current_task(self._loop)
        found = self._works.get(task) if task is not None else None
        return found() if found is not None else None


class UserLoops:
    """The user loops of the workers that share them: one, unless one is blocked for long.

    Attributes:
        works: The work in progress, by the future that is its end.
        closing: What else ends with the loops, before them.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self.closing: list[Callable[[], Awaitable[None]]] = []
        self._lock = threading.Lock()
        self._loops: list[UserLoop] = []
        self.works: dict[Future[Any], Work] = {}
        self._workers = 0

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[None]:
        """Keep the loops while a worker runs: when the last one has ended, they end."""
        self._workers += 1
        try:
            yield
        finally:
            self._workers -= 1
            if not self._workers:
                await self.close()

    def free(self) -> UserLoop:
        """Return a loop for new work.

        Raises:
            ApplicationError: All are blocked; nothing was begun.
        """
        with self._lock:
            for loop in self._loops:
                if not loop.is_stuck:
                    return loop
            if len(self._loops) >= MOST_LOOPS:
                msg = (
                    f"All {MOST_LOOPS} event loops for tools of this worker process are blocked."
                    " Its log says by what. Mend that, and restart the process."
                )
                raise ApplicationError(msg, type="NotStarted")
            self._loops.append(UserLoop())
            return self._loops[-1]

    def apart(
        self, function: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Wrap an activity: its work runs on a user loop, in the context of the task's run.

        Its heartbeats come from the worker's loop.
        """

        @functools.wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            info = activity.info()
            task_id = info.workflow_id or ""

            async with heartbeats():
                given = args[0] if args else None
                loop, work = self.free(), Work(info.activity_type, task_id, given)
                self.works[work.done] = work
                work.done.add_done_callback(self.works.pop)
                loop.begin(work, function(*args, **kwargs), user_calls.context_of(task_id))
                result: T = await _result(loop, work)
                return result

        return run

    async def close(self, seconds: float = STOP_SECONDS) -> None:
        """Close the models' connections and end the threads; one that is blocked is left."""
        for close in self.closing:
            await close()
        with self._lock:
            loops, self._loops = self._loops, []
        for loop in loops:
            done = asyncio.wrap_future(loop.thread.submit(close_models()))
            closed, _ = await asyncio.wait([done], timeout=seconds)
            if closed:
                done.result()
            await asyncio.to_thread(loop.thread.close, seconds)


async def _result(loop: UserLoop, work: Work) -> Any:
    """Wait for the end of work on another loop; cancelling the caller cancels it."""
    outer = asyncio.wrap_future(work.done)
    outer.add_done_callback(heard)
    is_ours = False
    try:
        is_short = activity.info().activity_type in SHORT
        limit = LONGEST_CALL_SECONDS if is_short else None
        while limit is not None and not outer.done():
            # Looked at again: on a busy machine users' code may not have begun by then.
            await asyncio.wait([outer], timeout=limit)
            if not outer.done() and work.calls.names:
                error = hangs(work, limit)  # made first: cancelled code is named no more
                loop.cancel(work)
                raise error
        await asyncio.wait([outer])
    except asyncio.CancelledError:
        is_ours = True
        loop.cancel(work)
        await _until_stopped(outer, work)
    # To the server a CancelledError is a failure that passes: it would be repeated without end.
    if outer.cancelled() and not (is_ours or activity.is_worker_shutdown()):
        raise cut_off(work)
    return outer.result()


async def _until_stopped(outer: asyncio.Future[Any], work: Work) -> None:
    """Wait for cancelled work; a worker that stops does not wait for ever.

    Raises:
        CancelledError: It does not end, and is left behind.
        ApplicationError: It does not end, and is a tool call: the outcome is unknown.
    """
    waited = 0.0
    while not outer.done():
        if waited >= STOP_SECONDS:
            log.warning("The worker stops without %s, which does not end", work)
            if work.kind != "tool":
                raise asyncio.CancelledError
            msg = f"The worker process was stopped while {str(work.calls) or 'the tool'} ran."
            raise ApplicationError(msg, type="Interrupted")
        await asyncio.wait([outer], timeout=WATCH_SECONDS)
        waited += WATCH_SECONDS if activity.is_worker_shutdown() else 0


def _pass_on(done: Future[Any], task: asyncio.Task[Any]) -> None:
    """Pass the end of a task on to a future, unless the work was given up before."""
    if task.cancelled():
        done.cancel()
        done.set_running_or_notify_cancel() if done.cancelled() else None
    elif (error := task.exception()) is not None:
        _set_error(done, error)
    else:
        with suppress(InvalidStateError):
            done.set_result(task.result())


def _set_error(done: Future[Any], error: BaseException) -> None:
    with suppress(InvalidStateError):
        done.set_exception(error)
