"""Heartbeats: they show that a worker process lives, and bring cancellations to activities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any

from temporalio import activity

from holdfast.activities.lease import begin_lease
from holdfast.values.base import Json

FASTEST_SECONDS = 5.0
"""Longest time between two heartbeats, and so between a cancellation and its arrival in the
activity."""

NEWS_SECONDS = 0.02
"""Shortest time between two heartbeats with news. The worker throttles them to the newest one in
0.1 s."""


class Pulse:
    """The heartbeats of one activity, with their details. Safe from any thread.

    Attributes:
        news: Set when a heartbeat is to be sent soon.
        send: Sends a heartbeat with these details; to be called in the heartbeats' own loop.
        has_moved: Whether the task has continued as new since the activity was scheduled.
    """

    def __init__(self) -> None:
        """Send heartbeats without details from the running loop."""
        self.news = asyncio.Event()
        self.send: Callable[..., None] = activity.heartbeat
        self.has_moved = False
        self._home = asyncio.get_running_loop()
        self._make_details: Callable[[], Json] | None = None

    def publish(self, details: Callable[[], Json]) -> None:
        """Send a heartbeat soon; it and later ones carry what this function returns then."""
        self._make_details = details
        self.show()

    def show(self) -> None:
        """Send a heartbeat soon, with details from the same function as before."""
        self._home.call_soon_threadsafe(self.news.set)

    def beat(self) -> None:
        """Send a heartbeat; to be called in the heartbeats' own loop."""
        details = None if self._make_details is None else self._make_details()
        self.send(*([] if details is None else [details]))

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


@asynccontextmanager
async def heartbeats() -> AsyncGenerator[Pulse]:
    """Heartbeat while the block runs, at a third of the timeout or every five seconds.

    The heartbeat comes from the event loop of the outermost such block, which is the worker's: a
    loop that is blocked sends none.
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
