"""Signs of life: how a task learns that a worker process is gone, and an activity of an abandon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio import activity

FASTEST_SECONDS = 5.0


@asynccontextmanager
async def heartbeats() -> AsyncGenerator[None]:
    """Heartbeat while the block runs, at a third of the timeout or every five seconds.

    The heartbeat comes from this event loop: a loop that is blocked shows no sign of life.
    """
    beat = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)


async def _beat() -> None:
    timeout = activity.info().heartbeat_timeout
    seconds = timeout.total_seconds() / 3 if timeout else FASTEST_SECONDS
    while True:
        await asyncio.sleep(min(seconds, FASTEST_SECONDS))
        activity.heartbeat()
