"""When a person decided, next to when the task read it."""

import uuid

import pytest

from holdfast.reading.audit.audit import audit_events
from holdfast.task.data.records import Entry, EventRecord
from holdfast.values.checks.ids import timed_id

NOW = 1_800_000_000.25


@pytest.mark.parametrize(
    ("id", "read", "sent"),
    [
        (timed_id(NOW), NOW + 34, NOW),
        (timed_id(NOW), NOW + 1, 0),  # read at once
        (timed_id(NOW), NOW - 60, 0),  # a clock that is ahead says nothing
        (uuid.uuid4().hex, NOW, 0),
        ("my request", NOW, 0),
        ("", NOW, 0),
    ],
    ids=["waited", "at once", "ahead", "no time", "own id", "none"],  # the ids are random
)
def test_a_command_that_waited_for_a_worker_has_two_times(
    id: str, read: float, sent: float
) -> None:
    body = {"id": id, "verb": "approve", "arguments": {"approval": "t:1"}}
    entry = Entry(event=EventRecord(kind="command", at=read, by="anna", body=body))
    [event] = audit_events([entry])
    assert (event.time, event.sent) == (read, sent)
