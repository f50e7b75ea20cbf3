"""Streamed work: a task that runs on its own while its events are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from holdfast.engine.converter import without_plumbing
from holdfast.errors import ConnectError, EngineError, NoWorkerError, QueryFailedError
from holdfast.reading.streams.hub import Reading, StreamedTurns
from holdfast.reading.streams.reader import StreamEvent, StreamReader
from holdfast.values.base import pauses
from holdfast.values.text.html import InNotebook

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
TRIES = 5
"""Attempts to read a record once the work is over."""

T = TypeVar("T")
V = TypeVar("V")

Open = Callable[[int | None], StreamReader]
"""Makes a reader that begins after an offset; with None, where the work began."""


class Wrap(Protocol):
    """Awaits a coroutine in the loop of the engine."""

    def __call__(self, coro: Coroutine[Any, Any, V], /) -> Coroutine[Any, Any, V]:
        """Await it."""
        ...


async def direct(coro: Coroutine[Any, Any, V], /) -> V:
    """Await a coroutine in the caller's own loop."""
    return await coro


@without_plumbing
class Streamed(InNotebook, Generic[T]):
    """Work on a task, and a stream of its events.

    The work goes on whether or not its events are read, also when a reader breaks off.

    Attributes:
        task_id: The task.
    """

    def __init__(
        self,
        task_id: str,
        work: Callable[[Callable[[Open], None]], Coroutine[Any, Any, T]],
        *,
        wrap: Wrap = direct,
    ) -> None:
        """Start the work.

        Args:
            task_id: The task.
            work: The work; it gets a function to call, from any thread, once the task exists and is
                known to be its own: reading begins only then.
            wrap: How to reach the engine's loop.

        Raises:
            RuntimeError: No event loop is running in this thread.
        """
        self.task_id = task_id
        self._own_turns = StreamedTurns(task_id)
        self._wrap = wrap
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cut = asyncio.Event()
        self._over: list[Callable[[], None]] = []
        self._opened: asyncio.Future[Open] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def opened(made: Open) -> None:
            loop.call_soon_threadsafe(self._open, made)

        self._work: asyncio.Task[T] = loop.create_task(work(opened))
        self._work.add_done_callback(self._ended)

    @property
    def is_complete(self) -> bool:
        """Whether the work has ended, with a result or an error, or waits for a person."""
        return self._work.done()

    @property
    def run_loop_exception(self) -> BaseException | None:
        """The error that ended the work, or None."""
        if not self._work.done() or self._work.cancelled():
            return None
        return self._work.exception()

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        error = self.run_loop_exception
        status = "failed" if error else "complete" if self.is_complete else "running"
        return f"Stream of task {self.task_id}", {"status": status, "error": error or ""}

    async def result(self) -> T:
        """Wait for the work and return its result, or raise its error."""
        await asyncio.wait([self._work])
        return self._work.result()

    async def stream_events(self, offset: int | None = None) -> AsyncGenerator[StreamEvent]:
        """Yield the events, each once, until the work has ended.

        Args:
            offset: Go on after the event of this offset; None reads all of the work.

        Raises:
            Exception: The error of the work, after all events.
        """
        reading = self._own_turns.read()
        try:
            if await self._is_begun():
                async with aclosing(self._events(offset, reading)) as events:
                    async for event in events:
                        self._note(event)
                        reading.hand_over()
                        yield event
        finally:
            reading.end()
        await self._settle()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        """Read all events."""
        return self.stream_events()

    async def _events(self, offset: int | None, reading: Reading) -> AsyncGenerator[StreamEvent]:
        """Read until the work is over or reading is cut off."""
        async with aclosing(self._batches(offset, reading)) as batches:
            async for batch in batches:
                for event in batch:
                    if self._cut.is_set():
                        return
                    yield event
                if self._cut.is_set():
                    return

    async def _batches(
        self, offset: int | None, reading: Reading
    ) -> AsyncGenerator[list[StreamEvent]]:
        """Read until the work is over; a read that fails is tried again, and does not end the work.

        Raises:
            EngineError: The record still cannot be read when the work is over.
        """
        make, newest, left = self._opened.result(), -1, TRIES
        waits = pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while not self._cut.is_set():
            try:
                async with aclosing(self._read(make(offset), reading)) as batches:
                    async for batch in batches:
                        yield [event for event in batch if event.offset > newest]
                        if batch:
                            offset = newest = batch[-1].offset
                            waits = pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            except (ConnectError, QueryFailedError, NoWorkerError):
                left -= self._work.done()
                if left < 0 or isinstance(self.run_loop_exception, EngineError):
                    raise
            else:
                return
            pause = next(waits)
            await self._unless_cut(asyncio.wait([self._work], timeout=pause))
            if self._work.done():
                await self._unless_cut(asyncio.sleep(pause))

    async def _read(
        self, reader: StreamReader, reading: Reading
    ) -> AsyncGenerator[list[StreamEvent]]:
        """Read in the engine's loop until the work is over."""
        over = asyncio.Event()

        async def end() -> None:
            over.set()

        def notify() -> None:
            self._keep(asyncio.get_running_loop().create_task(self._wrap(end())))

        batches = reader.batches(over)

        async def following() -> list[StreamEvent] | None:
            return await anext(batches, None)

        self._over.append(notify)
        if self._work.done():
            notify()
        try:
            while (batch := await self._unless_cut(self._wrap(following()))) is not None:
                yield batch
                reading.came_back(reader.opened)
        finally:
            self._over.remove(notify)
            await self._wrap(batches.aclose())

    async def _unless_cut(self, reading: Coroutine[Any, Any, V]) -> V | None:
        """Wait for a read; cancel it and return None once reading is cut off."""
        read, cut = asyncio.ensure_future(reading), asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait({read, cut}, return_when=asyncio.FIRST_COMPLETED)
            return None if self._cut.is_set() else read.result()
        finally:
            read.cancel()
            cut.cancel()
            await asyncio.gather(read, cut, return_exceptions=True)

    async def _is_begun(self) -> bool:
        """Wait until the task is known to be the work's own; return False if it never was."""
        begins: list[asyncio.Future[Any]] = [self._work, self._opened]
        await asyncio.wait(begins, return_when=asyncio.FIRST_COMPLETED)
        return self._opened.done() and not self._opened.cancelled()

    async def _settle(self) -> None:
        """Raise the error of the work, if it has one."""
        await self.result()

    def _note(self, event: StreamEvent) -> None:
        """Update the state of the stream by an event."""

    def _keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task until it is done: the loop keeps none."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open(self, made: Open) -> None:
        if not self._opened.done():
            self._opened.set_result(made)

    def _ended(self, work: asyncio.Task[T]) -> None:
        self._own_turns.end()
        if not work.cancelled():
            work.exception()  # retrieved, or asyncio logs it when the stream is never read
        if not self._opened.done():
            self._opened.cancel()
        for notify in self._over:
            notify()
