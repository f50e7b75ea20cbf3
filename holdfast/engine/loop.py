"""A background thread with its own asyncio loop, for embedded workers and the sync API.

A caller that blocks its own loop does not block the heartbeats of activities that run here.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextvars import Context
from typing import Any, TypeVar

from holdfast.engine.converter import shortened
from holdfast.errors import HoldfastError
from holdfast.values.code import user_calls
from holdfast.values.text.logs import log

T = TypeVar("T")


class LoopThread:
    """A daemon thread that runs an asyncio loop until `close`."""

    def __init__(self, name: str = "holdfast-loop") -> None:
        """Start the thread; the loop runs when this returns.

        Args:
            name: Name of the thread, as debuggers show it.
        """
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        user_calls.own_loops.add(self._loop)
        self._started = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; other threads may call only its thread-safe methods."""
        return self._loop

    @property
    def ident(self) -> int:
        """Identifier of the thread."""
        return self._thread.ident or 0

    @property
    def is_inside(self) -> bool:
        """Whether the caller runs in this loop's thread."""
        return threading.current_thread() is self._thread

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and block until it is done.

        An interrupt (Ctrl-C) cancels the coroutine.

        Raises:
            RuntimeError: Called from inside this loop, after `close`, or in a forked child.
        """
        if self.is_inside:
            coro.close()
            raise RuntimeError(
                "A blocking call was made from inside Holdfast's own loop, which would then wait"
                " for itself. Use the async method of the same name and await it."
            )
        future = self.submit(coro)
        try:
            return future.result()
        except HoldfastError as error:
            raise shortened(error)  # noqa: B904  it is the same error
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Read an async iterator in the loop, and block for each item.

        Raises:
            RuntimeError: As in `run`.
        """

        async def following() -> list[T]:
            try:
                return [await anext(items)]
            except StopAsyncIteration:
                return []

        while item := self.run(following()):
            yield item[0]

    def submit(self, coro: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop; cancelling the future cancels it.

        Raises:
            RuntimeError: Called after `close`, or in a forked child.
        """
        self._check(coro)
        return asyncio.run_coroutine_threadsafe(coro, self._loop)

    async def wrap(self, coro: Coroutine[Any, Any, T], *, context: Context | None = None) -> T:
        """Await, from any loop, a coroutine that runs in this one.

        Cancelling the caller cancels the coroutine and waits until it has cleaned up.

        Args:
            coro: The coroutine.
            context: Context variables for the coroutine when the caller is on another loop; the
                caller's by default.

        Raises:
            RuntimeError: Called after `close`, or in a forked child.
        """
        if self.is_inside:
            return await coro
        self._check(coro)
        seen = user_calls.context_here() if context is None else context
        outer, cancel = user_calls.begin_in(self._loop, coro, seen)
        try:
            await asyncio.wait([outer])
        except asyncio.CancelledError:
            cancel()
            await asyncio.wait([outer])
            if not outer.cancelled():
                outer.exception()  # Retrieved, as asyncio logs exceptions never retrieved.
            raise
        return outer.result()

    def close(self, seconds: float | None = None) -> None:
        """Cancel the tasks that still run, wait for them, and end the thread.

        A second call does nothing.

        Args:
            seconds: How long to wait; tasks that still run then end with the process.

        Raises:
            RuntimeError: Called from inside this loop.
        """
        if self.is_inside:
            raise RuntimeError("A loop cannot close itself. Call close() from another thread.")
        if self._pid == os.getpid() and not self._loop.is_closed():
            self._is_closing = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(seconds)

    def _check(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Refuse a coroutine that this loop can never run."""
        if self._pid != os.getpid():
            coro.close()
            raise RuntimeError(
                "This loop belongs to the process that was forked, and does not run in the child."
                " Create what uses it after the fork."
            )
        if self._loop.is_closed() or not self._thread.is_alive():
            coro.close()
            raise RuntimeError("This loop is closed. Create a new LoopThread.")

    def _serve(self) -> None:
        """Run the loop; afterwards cancel the remaining tasks and close the loop."""
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._started.set)
        try:
            while not self._is_closing:  # code may stop the loop, too
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:  # its task has it, too
                    log.warning("Code on %s raised %s", self._thread.name, type(error).__name__)
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


class LoopOfProcess:
    """A loop thread of the process, never closed; a forked child begins without one."""

    def __init__(self, name: str) -> None:
        """Name the thread, which is started when it is first asked for."""
        self._name = name
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Drop loop and lock; a thread that the child lacks may have held the lock."""
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None

    def get(self) -> LoopThread:
        """Return the loop thread."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread(self._name)
            return self._thread


shared_loop = LoopOfProcess("holdfast-loop").get
"""Returns this process's loop thread, started at the first call and never closed."""


CLOSE_SECONDS = 30.0
"""How long the end of the process waits for each close; open tasks go on at the next start."""


class _Closing:
    """Functions to await on the shared loop when the process ends."""

    def __init__(self) -> None:
        self._pid = 0
        self._closes: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def add(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Add a function."""
        if self._pid != os.getpid():  # a forked child must not close its parent's objects
            self._pid = os.getpid()
            self._closes.clear()
            # Thread pools, which a worker needs to stop, end before the functions of `atexit` run,
            # and after what was registered when their module had been imported.
            importlib.import_module("concurrent.futures.thread")
            at_end = getattr(threading, "_register_atexit", atexit.register)
            at_end(self._close)
        if close not in self._closes:
            self._closes.append(close)

    def discard(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Remove a function."""
        if close in self._closes:
            self._closes.remove(close)

    def _close(self) -> None:
        if self._pid != os.getpid():
            return
        closes, self._closes = self._closes, []
        for close in reversed(closes):
            done = shared_loop().submit(close())
            try:
                done.result(timeout=CLOSE_SECONDS)
            except FutureTimeoutError:
                done.cancel()


_closing = _Closing()


def close_at_exit(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await a function on the shared loop when the process ends, for objects not closed before.

    Args:
        close: A bound method that does nothing if its object is closed already.
    """
    _closing.add(close)


def keep_at_exit(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Cancel `close_at_exit` for an object that was closed."""
    _closing.discard(close)
