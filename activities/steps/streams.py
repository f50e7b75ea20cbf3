"""Telling readers what a model says while it answers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.activities.heartbeat import Pulse
from holdfast.models.base import Delta, Tell
from holdfast.models.draft import Draft
from holdfast.reading.streams.hub import StreamHub, StreamKey
from holdfast.reading.streams.progress import write_progress
from holdfast.values.base import Json


@contextmanager
def telling(hub: StreamHub, pulse: Pulse, key: StreamKey, attempt: int) -> Generator[Tell]:
    """Give a function that tells the hub and, by heartbeats, readers in other processes.

    Args:
        hub: Carries pieces to readers in this process.
        pulse: The activity's signs of life.
        key: The call.
        attempt: Number of this attempt to make it.
    """
    draft = Draft(attempt)

    def say() -> Json:
        return write_progress(key, draft.window())

    def tell(delta: Delta) -> None:
        draft.add(delta)
        hub.publish(key, shared, delta)
        pulse.tell(say)

    shared = hub.begin(key, attempt)
    pulse.tell(say)
    try:
        yield tell
    finally:
        hub.end(key, shared)
