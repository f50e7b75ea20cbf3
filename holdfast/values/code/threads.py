"""Threads for code that may block: each is named after what it runs, none holds up an exit."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from holdfast.errors import HoldfastError

T = TypeVar("T")


class BusyError(HoldfastError):
    """All threads are in use; the text names what runs in them."""


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
        """Names of the threads, of which a busy one names what it runs."""
        with self._lock:
            return sorted(thread.name for thread in self._threads)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call; `named` gives its thread a name."""
        return self.named("", fn, *args, **kwargs)

    def named(self, name: str, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in a thread that bears this name meanwhile.

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
                msg = (
                    f"All {self._most} threads {self._name!r} of this process are in use. They run:"
                    f" {', '.join(running)[:500]}. Mend what does not come back, and restart the"
                    " process."
                )
                raise BusyError(msg)
            name = f"{self._name}_{next(self._numbers)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            work = self._waiting.get()
            work()
            del work  # and all that it holds
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  the signature of Executor
        """Leave the threads to the end of the process: others may use them."""
