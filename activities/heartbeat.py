"""Signs of life: how a task learns that a worker process is gone, and an activity of an abandon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any

from temporalio import activity

from holdfast.activities.lease import begin_lease
from holdfast.values import Json

FASTEST_SECONDS = 5.0
"""Longest time between two signs of life of an activity that has nothing to say, and so between a
cancellation and its arrival in the activity."""

NEWS_SECONDS = 0.02
"""Shortest time between two that have news. The worker's throttle passes on one in 0.1 s, the
newest."""


class Pulse:
    """What the signs of life of one activity say. Safe from any thread.

    Attributes:
        news: Set when a sign of life is to be shown soon.
        send: Sends one with these details, from the loop that the signs of life come from.
        has_moved: Whether the task that is worked for has continued as new meanwhile.
    """

    def __init__(self) -> None:
        """Say nothing; signs of life come from the running loop."""
        self.news = asyncio.Event()
        self.send: Callable[..., None] = activity.heartbeat
        self.has_moved = False
        self._home = asyncio.get_running_loop()
        self._say: Callable[[], Json] | None = None

    def tell(self, say: Callable[[], Json]) -> None:
        """Show a sign of life soon; it and later ones say what this function returns then."""
        self._say = say
        self.show()

    def show(self) -> None:
        """Show a sign of life soon, which says what the newest one said."""
        self._home.call_soon_threadsafe(self.news.set)

    def beat(self) -> None:
        """Show a sign of life; to be called in the loop that the signs of life come from."""
        said = None if self._say is None else self._say()
        self.send(*([] if said is None else [said]))

    def teller(self) -> Callable[..., None]:
        """Return a function that shows a sign of life with details, as `activity.heartbeat`.

        Temporal's own works in the worker's loop alone; this one anywhere, and until the end of the
        process: after that of the activity it says nothing.
        """
        here = copy_context()

        def beat(details: tuple[Any, ...]) -> None:
            with suppress(RuntimeError):  # the activity is over
                self.send(*details)

        def tell(*details: Any) -> None:
            self._home.call_soon_threadsafe(beat, details, context=here.copy())

        return tell


current: ContextVar[Pulse] = ContextVar("holdfast_pulse")
"""The signs of life of the activity that runs in this context."""


@asynccontextmanager
async def heartbeats() -> AsyncGenerator[Pulse]:
    """Heartbeat while the block runs, at a third of the timeout or every five seconds.

    The heartbeat comes from the event loop of the outermost such block, which is the worker's: a
    loop that is blocked shows no sign of life.
    """
    if current.get(None) is not None:
        yield current.get()
        return
    pulse = Pulse()
    begin_lease(pulse.show)
    token = current.set(pulse)
    beat = asyncio.create_task(_beat(pulse))
    try:
        yield pulse
    finally:
        current.reset(token)
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)


async def _beat(pulse: Pulse) -> None:
    timeout = activity.info().heartbeat_timeout
    seconds = min(timeout.total_seconds() / 3 if timeout else FASTEST_SECONDS, FASTEST_SECONDS)
    while True:
        try:
            async with asyncio.timeout(seconds):  # wait_for may swallow the cancellation at the end
                await pulse.news.wait()
        except TimeoutError:
            pulse.beat()
            continue
        pulse.news.clear()
        pulse.beat()
        await asyncio.sleep(NEWS_SECONDS)
