"""Virtual time: the clocks of this process, and an event loop that never waits."""

import asyncio
import itertools
import logging
import selectors
import time
import uuid
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from holdfast.values.code import user_calls

T = TypeVar("T")

EPOCH = 1_700_000_000.0
"""When each simulation begins, in seconds since the epoch."""


LEAST = 1e-6
"""Least time that goes by, in seconds: what is less is lost in the sum."""


class StuckError(BaseException):
    """An activity would never end: a defect of the simulator, or of the activity."""


MOST_WAITS = 100_000
"""Most turns of the loop in one activity."""


class Clock:
    """The one clock of a simulation.

    Attributes:
        now: Seconds since the epoch.
    """

    def __init__(self) -> None:
        self.now = EPOCH

    def read(self, *_: object) -> float:
        """Return the time, as any clock of the process."""
        return self.now

    def tick(self) -> None:
        """Go on by a millisecond, so that what follows has a time of its own."""
        self.now = round(self.now + 0.001, 6)


class _NeverWaiting(selectors.DefaultSelector):
    """A selector that puts the clock forward in place of waiting."""

    clock: Clock
    waits = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.waits += 1
        if timeout is None or self.waits > MOST_WAITS:
            msg = "An activity waits for something that nothing will bring."
            raise StuckError(msg)
        self.clock.now += max(timeout, LEAST) if timeout > 0 else 0.0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, whose threads are plain calls."""

    def __init__(self, clock: Clock) -> None:
        self._quick = _NeverWaiting()
        self._quick.clock = self._virtual = clock
        super().__init__(self._quick)
        self._clock_resolution = LEAST

    def time(self) -> float:
        return self._virtual.now

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end."""
        self._quick.waits = 0
        return self.run_until_complete(work)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Call a function here and now: a second thread could come first or last."""
        return asyncio.wrap_future(_here(executor, "", func, *args), loop=self)


def _here(_: object, name: str, fn: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """Call a function here and now, in place of a thread."""
    done: Future[T] = Future()
    try:
        done.set_result(fn(*args, **kwargs))
    except Exception as error:  # noqa: BLE001  it is the future's
        done.set_exception(error)
    return done


@contextmanager
def virtual_time(clock: Clock) -> Generator[None]:
    """Have all code of this process see this clock, and ids that a seed repeats; log nothing."""
    numbers = itertools.count(1)
    before = logging.root.manager.disable

    def made() -> uuid.UUID:
        return uuid.UUID(int=next(numbers))

    logging.disable(logging.CRITICAL)
    try:
        with (
            mock.patch.object(time, "time", clock.read),
            mock.patch.object(time, "monotonic", clock.read),
            mock.patch.object(time, "clock_gettime", clock.read),
            mock.patch.object(user_calls.DaemonThreads, "named", _here),
            mock.patch.object(uuid, "uuid4", made),
        ):
            yield
    finally:
        logging.disable(before)
