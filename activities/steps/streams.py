"""Publishing a model's answer to readers while it is made."""

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
def publishing(hub: StreamHub, pulse: Pulse, key: StreamKey, attempt: int) -> Generator[Tell]:
    """Yield a function that publishes deltas: by the hub and, for other processes, by heartbeats.

    Args:
        hub: Carries pieces to readers in this process.
        pulse: The activity's heartbeats.
        key: The call.
        attempt: Number of this attempt to make it.
    """
    draft = Draft(attempt)

    def window() -> Json:
        return write_progress(key, draft.window())

    def publish(delta: Delta) -> None:
        draft.add(delta)
        hub.publish(key, shared, delta)
        pulse.publish(window)

    shared = hub.begin(key, attempt)
    pulse.publish(window)
    try:
        yield publish
    finally:
        hub.end(key, shared)
