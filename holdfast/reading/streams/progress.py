"""What a heartbeat says of an unfinished answer, for readers in other processes."""

from __future__ import annotations

from holdfast.models.base import Delta
from holdfast.models.draft import Frame
from holdfast.reading.streams.hub import StreamKey
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_array, is_object


def write_progress(key: StreamKey, frame: Frame) -> dict[str, Json]:
    """Write a frame as the details of a heartbeat; the activity itself names the task."""
    return {
        "n": key.n,
        "k": key.answer,
        "a": frame.attempt,
        "at": frame.at,
        "d": [_short(delta) for delta in frame.deltas],
    }


def read_progress(task_id: str, details: Json) -> tuple[StreamKey, Frame] | None:
    """Read the details of a heartbeat; None for one that says nothing of an answer."""
    if not is_object(details) or not is_array(details.get("d")):
        return None
    key = StreamKey(task_id, details["n"], details["k"])
    deltas = tuple(Delta(*told) for told in details["d"])
    return key, Frame(details["a"], details["at"], deltas)


def _short(delta: Delta) -> list[Json]:
    """Leave out at the end what is at its default."""
    told: list[Json] = list(delta)
    while told and not told[-1]:
        told.pop()
    return told
