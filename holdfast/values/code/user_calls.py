"""Calls the user's functions: async ones on an event loop, all others in threads.

The name of each call in progress is kept, so that messages can name code that hangs. If the caller
that started its run is in this process, a function sees the caller's context variables and, if it
is async, runs in the caller's loop, to which locks, futures and connections of the program belong.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import itertools
import os
import queue
import re
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakSet

from holdfast.errors import HoldfastError, OutcomeUnknownError, UserError, message_of
from holdfast.values.checks.ids import outermost
from holdfast.values.text.shown import shown

LOOK_SECONDS = 1.0
"""How often a call that runs in the caller's loop looks whether the loop was closed."""

_LOOP_ENDED = "The program ended the event loop in which this call ran."

MOST_KEPT = 10_000
"""Most tasks whose context variables are kept; those of the oldest tasks are dropped."""

_lock = threading.Lock()
_kept: OrderedDict[str, Context] = OrderedDict()


own_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Loops of Holdfast's own threads, which are no caller's."""

callers_loop: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar(
    "holdfast_callers_loop", default=None
)
"""The loop of the program that has called, where code runs on another one on its behalf."""


def context_here() -> Context:
    """Return a copy of this context that knows the caller's loop."""
    seen, loop = copy_context(), asyncio.get_running_loop()
    if loop not in own_loops:
        seen.run(callers_loop.set, loop)
    return seen


def carry(task_id: str) -> None:
    """Keep the caller's context variables for a task that this process runs itself."""
    seen = context_here()
    with _lock:
        _kept[task_id] = seen
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)


def carry_loop(task_id: str) -> None:
    """Keep the caller's loop for such a task, and its variables as they are kept."""
    loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    if loop in own_loops:
        loop = callers_loop.get()
    with _lock:
        _kept.setdefault(task_id, Context()).run(callers_loop.set, loop)
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)


def is_carried(task_id: str) -> bool:
    """Whether the caller of a task's run is in this process."""
    with _lock:
        return task_id in _kept


def release(task_id: str) -> None:
    """Drop the context variables of a task that is closed."""
    with _lock:
        _kept.pop(task_id, None)


def context_of(task_id: str) -> Context:
    """Return a context for an activity: the variables of the run, overridden by the activity's.

    A child task sees those of the outermost task. In any process but the caller's, the run has no
    variables.
    """
    with _lock:
        known = _kept.get(outermost(task_id))
        made = Context() if known is None else known.copy()
    for variable, value in copy_context().items():
        made.run(variable.set, value)
    return made


class RaisedBy(str):
    """A note on an exception that names the user's function which raised it."""

    __slots__ = ()


@dataclass(eq=False)
class Calls:
    """Calls of the user's code that are in progress in one activity.

    Attributes:
        names: Names of the calls, in the order in which they began.
    """

    names: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        """Describe the calls in progress: role of the outermost, then the innermost function."""
        if not self.names:
            return ""
        first, last = self.names[0], self.names[-1]
        return first if first == last else f"{first} ({last})"


current: ContextVar[Calls | None] = ContextVar("holdfast_calls", default=None)
"""The calls of the activity that runs in this context."""


@contextmanager
def calling(name: str) -> Generator[None]:
    """Keep the name of a call of the user's code while the block runs."""
    calls = current.get()
    if calls is None:
        yield
        return
    calls.names.append(name)
    try:
        yield
    finally:
        calls.names.remove(name)


class StoppedError(HoldfastError):
    """Code of the user's raised what is not for it to raise: the end of a process or of a task."""


def heard(over: asyncio.Future[Any]) -> None:
    """Retrieve the exception of unawaited work, as asyncio logs exceptions never retrieved."""
    if not over.cancelled():
        over.exception()


@contextmanager
def kept_alive(*, is_coroutine: bool = True) -> Generator[None]:
    """Make an error of a BaseException, which may end the worker process: `sys.exit()` raises one.

    An event loop ends with some, and with it all that other tasks do there. Temporal takes others,
    such as the panic of a Rust extension, for a lost worker, and runs the code again and again.
    Ctrl-C reaches the main thread only.

    Args:
        is_coroutine: Whether the block may be dropped where it awaits, which raises GeneratorExit.

    Raises:
        StoppedError: The block raised one.
    """
    pid = os.getpid()
    try:
        yield
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        is_main = threading.current_thread() is threading.main_thread()
        is_closed = is_coroutine and isinstance(error, GeneratorExit) and _task() is None
        if is_closed or (isinstance(error, KeyboardInterrupt) and is_main):
            raise
        text = error.code if isinstance(error, SystemExit) else message_of(error)
        if isinstance(error, SystemExit) and os.getpid() != pid:  # of the code's own fork
            os._exit(text if isinstance(text, int) else bool(text))
        kind = type(error).__name__
        said = kind if isinstance(error, KeyboardInterrupt) else f"{kind}: {text}"
        msg = f"Code raised what would end the process ({said})"
        raise StoppedError(msg, remedy="Raise an error of your own instead.") from error


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # there is no loop
        return None


def is_cancelled() -> bool:
    """Whether a CancelledError comes from a cancellation of the task of asyncio in which it is."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def naming(what: str, function: Any) -> Generator[None]:
    """Keep the name of a call while the block runs, and add it to an exception as a note.

    A CancelledError of the function's own becomes an error: to Temporal it would look like an
    activity that was cancelled, and be repeated for ever.

    Args:
        what: Role of the function, in words.
        function: The function, whose name, file and line are in the note; ignored if it is not
            callable.

    Raises:
        StoppedError: The function raised CancelledError or the like.
    """
    with calling(what):
        try:
            with kept_alive(), _cancelled_by_others():
                yield
        except Exception as error:
            place = f": {place_of(function, error)}" if callable(function) else ""
            error.add_note(RaisedBy(f"Raised by {what}{place}"))
            raise


@contextmanager
def _cancelled_by_others() -> Generator[None]:
    try:
        yield
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        msg = "Code raised CancelledError, though nothing has cancelled it"
        raise StoppedError(msg, remedy="Raise an error of your own instead.") from error


def message_with_place(error: BaseException) -> str:
    """Return an error's message, with notes that name the user's function that raised it."""
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, RaisedBy)]
    return "\n".join([message_of(error), *notes])


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's module and qualified name, without calling any of its own methods."""
    function = _plain(function)
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def place_of(function: Callable[..., Any], error: BaseException) -> str:
    """Name a function that raised, with its file and the last line there in the error's traceback.

    If the traceback has no line of that file, as after a call with wrong arguments, it is the line
    of the function's definition.
    """
    name, function = name_of(function), inspect.unwrap(_plain(function))
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return name
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f"{name}, {code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"


def yes_or_no(function: Callable[..., Any], said: object, wanted: str = "True or False") -> bool:
    """Return what a predicate said. Nothing else than a bool is an answer: None is a lost return.

    Args:
        function: The predicate, for the error.
        said: What it returned.
        wanted: What it may return.

    Raises:
        UserError: It said something else.
    """
    if isinstance(said, bool):
        return said
    hint = " (did you forget return?)" if said is None else ""
    raise UserError(f"{name_of(function)} returned {shown(said)}{hint}; it must return {wanted}.")


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


T = TypeVar("T")


class BusyError(HoldfastError):
    """All threads are in use; the text names the functions that run in them."""


class DaemonThreads(Executor):
    """Runs calls in daemon threads; a new one is started only when none is idle.

    The interpreter waits at its end for the threads of a `ThreadPoolExecutor`, so a single call
    that hangs would keep the process from ending.
    """

    def __init__(self, most: int, name: str) -> None:
        """Start with no thread.

        Args:
            most: Most threads at once.
            name: Beginning of their names.
        """
        self._most = most
        self._name = name
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: set[threading.Thread] = set()

    @property
    def names(self) -> list[str]:
        """Names of the threads; that of a busy one includes the name of its call."""
        with self._lock:
            return sorted(thread.name for thread in self._threads)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call, without a name; see `named`."""
        return self.named("", fn, *args, **kwargs)

    def named(self, name: str, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in a thread whose name includes this name meanwhile.

        Raises:
            BusyError: All threads are in use.
        """
        done: Future[T] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():
                return
            thread = threading.current_thread()
            before, thread.name = thread.name, f"{thread.name} {name}".strip()
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  handed on
                done.set_exception(error)
            finally:
                thread.name = before

        if not self._idle.acquire(blocking=False):
            self._start()
        self._waiting.put(work)
        return done

    def _start(self) -> None:
        with self._lock:
            if len(self._threads) >= self._most:
                running = sorted({thread.name.partition(" ")[2] for thread in self._threads})
                raise BusyError(
                    f"All {self._most} threads {self._name!r} of this process are in use. They run:"
                    f" {', '.join(running)[:500]}. Mend what does not come back, and restart the"
                    " process."
                )
            name = f"{self._name}_{next(self._numbers)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            work = self._waiting.get()
            work()
            del work  # so that an idle thread keeps no arguments or results alive
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  the signature of Executor
        """Do nothing: the threads are shared, and end with the process."""


MOST_THREADS = 1000
"""Far above the number of activities that a worker runs at the same time (100 by default), so that
no call waits for a thread, not even next to timed out calls that still run."""


@functools.cache
def tool_threads() -> DaemonThreads:
    """Return the threads for sync tools; a new one is started only when none is idle.

    The loop's default executor is not used: it has few threads (six on two processors), which the
    archive needs, so a few slow tools would block all tasks of the process.
    """
    return DaemonThreads(MOST_THREADS, "holdfast-tool")


def begin_in(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], context: Context
) -> tuple[asyncio.Future[T], Callable[[], object]]:
    """Begin a coroutine in another thread's loop; return a future here, and what cancels it."""
    done: Future[T] = Future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        task = loop.create_task(coro)
        tasks.append(task)
        task.add_done_callback(lambda ended: _copy_outcome(ended, done))

    def cancel() -> None:  # callbacks run in the order they were posted, so the task exists
        tasks[0].cancel()

    loop.call_soon_threadsafe(start, context=context)
    return asyncio.wrap_future(done), functools.partial(loop.call_soon_threadsafe, cancel)


def _copy_outcome(task: asyncio.Task[T], done: Future[T]) -> None:
    """Set a future, which another thread waits for, to a task's outcome."""
    if task.cancelled():
        done.cancel()
        done.set_running_or_notify_cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


async def with_caller(call: Callable[[], Any]) -> Any:
    """Await what a call returns: both in the caller's loop while that runs, else here.

    Raises:
        OutcomeUnknownError: The caller's program ended its loop meanwhile.
    """
    loop, asked = callers_loop.get(), False
    if loop is None or not loop.is_running() or loop is asyncio.get_running_loop():
        return await _apart(call)

    async def there() -> Any:
        try:
            return await _apart(call)
        except asyncio.CancelledError:
            if asked or not is_cancelled():
                raise
            raise OutcomeUnknownError(_LOOP_ENDED) from None

    outer, cancel = begin_in(loop, there(), copy_context())
    while not outer.done():
        try:
            await asyncio.wait([outer], timeout=LOOK_SECONDS)
        except asyncio.CancelledError:
            asked = True
        if loop.is_closed() and not outer.done():
            raise OutcomeUnknownError(_LOOP_ENDED)
        if asked:
            cancel()
    return outer.result()


async def _apart(call: Callable[[], Any]) -> Any:
    """Await what a call returns in a task of its own, the one that its code can cancel.

    A cancel scope that leaks, or `current_task().cancel()`, is then told from a cancellation of the
    activity, after which the call would be made again.
    """

    async def kept() -> Any:
        with kept_alive():
            return await call()

    return await asyncio.create_task(kept())


async def invoke(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call an async function with its caller, any other in a thread with the context variables.

    Cancelling this call does not stop the thread: its function can check
    `ToolContext.is_cancelled`. The thread's name includes that of the function.

    Raises:
        BusyError: All threads are in use.
        StoppedError: The function wanted to end the process.
        Exception: An error that the function raised.
    """
    return await _invoke(with_caller, functools.partial(function, *args, **kwargs))


async def invoke_here(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function as `invoke`, an async one on this loop: step logic calls models on it."""
    return await _invoke(_here, functools.partial(function, *args, **kwargs))


async def _here(call: Callable[[], Any]) -> Any:
    return await call()


async def _invoke(
    where: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]], call: functools.partial[Any]
) -> Any:
    name = name_of(call)
    with calling(name), kept_alive(), _loops_named():
        if is_async(call):
            return await where(call)
        seen = contextvars.copy_context()
        done = tool_threads().named(name, seen.run, _shielded, call)
        result = await asyncio.wrap_future(done)
        return await where(lambda: result) if inspect.isawaitable(result) else result


class OtherLoopError(HoldfastError, RuntimeError):
    """A function used what belongs to another event loop than the one in which it runs."""


@contextmanager
def _loops_named() -> Generator[None]:
    """Say more than asyncio about a lock, future or connection of another event loop."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, OtherLoopError) or not _OTHER_LOOP.search(str(error)):
            raise
        remedy = (
            "Async tools and hooks run in the event loop that calls the runner where that is in the"
            " same process and still runs, else in one of Holdfast's own. Make the object in the"
            " function that uses it, or keep one for each running loop."
        )
        raise OtherLoopError(message_of(error), remedy=remedy) from error


_OTHER_LOOP = re.compile(r"different (event )?loop|Event loop is closed")


def is_async(function: Any) -> bool:
    """Whether calling this returns a coroutine: an async function, method, partial or object."""
    function = _plain(function)
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  the method itself is wanted


def _shielded(call: Callable[[], Any]) -> Any:
    """Make a call; turn a StopIteration, with which the await never ends, into a RuntimeError.

    See cpython#112182.
    """
    try:
        with kept_alive(is_coroutine=False):  # a GeneratorExit would close who awaits the thread
            return call()
    except StopIteration as error:
        raise RuntimeError(f"{getattr(call, 'func', call)!r} raised StopIteration") from error
