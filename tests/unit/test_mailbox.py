"""What a mailbox keeps, and what it refuses to keep."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from holdfast.task import mailbox
from holdfast.task.mailbox import Event, Mailbox, Waiter, same


def waiter(key: str, task: str = "t", **match: object) -> Waiter:
    """Make a call that waits for the fields, whose names have `_` for a dot."""
    named = {name.replace("_", "."): value for name, value in match.items()}
    return Waiter.model_validate(
        {"key": key, "token": f"{task}:0.1.0.0:x", "match": named, "until": 100}
    )


def test_events_are_refused_in_words_once_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailbox, "MOST_EVENTS", 2)
    box = Mailbox()
    for id in ("a", "b", "c", "a"):
        box.take_event(Event(id=id, data={"x": 1}, keep=10), now=1)
    assert [*box.events] == ["a", "b"]
    assert "2 events of this name with 14 bytes are kept" in box.heard("c").refused
    box.expire(now=11)
    assert box.size == 0
    box.take_event(Event(id="c"), now=12)
    assert not box.heard("c").refused
    assert [*box.events] == ["c"]


def test_large_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Mailbox()
    box.take_event(Event(id="a", data={"x": "x" * mailbox.LARGEST_EVENT}), now=1)
    assert "an event may have 32,768" in box.heard("a").refused
    monkeypatch.setattr(mailbox, "MOST_BYTES", 10)
    box.take_event(Event(id="b", data={"x": "x" * 10}), now=1)
    assert "there may be 10,000 with 10" in box.heard("b").refused
    assert box.is_empty


def test_calls_are_refused_once_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MOST_WAITERS", 1)
    box = Mailbox()
    box.take_waiter(waiter("a"))
    box.take_waiter(waiter("b"))
    assert "1 calls wait" in box.heard("b").refused
    box.expire(now=100)
    assert box.is_empty


def test_refusals_are_forgotten_in_time() -> None:
    box = Mailbox()
    for k in range(mailbox.KEPT_REFUSALS + 1):
        box.take_event(Event(id=str(k), data={"x": "x" * mailbox.LARGEST_EVENT}), now=1)
    assert not box.heard("0").refused
    assert box.heard("1").refused


def test_a_call_whose_attempt_is_made_again_has_one_event() -> None:
    box = Mailbox()
    box.take_waiter(waiter("a"))
    box.take_event(Event(id="e"), now=1)
    [sent] = box.deliveries("n", ())
    box.take_waiter(waiter("a"))
    assert box.deliveries("n", ["a"]) == []
    box.delivered(sent, taken=True)
    box.take_waiter(waiter("a"))
    box.take_waiter(waiter("b"))
    assert box.deliveries("n", ()) == []
    box.take_waiter(waiter("c", task="other"))
    assert [each.waiter.key for each in box.deliveries("n", ())] == ["c"]


def test_fields_fit_by_type_and_place() -> None:
    found = {"a": {"b": 1, "c": None}, "d": "1"}
    assert waiter("k", a_b=1).takes(found)
    assert waiter("k", a_b=1.0, d="1", a_c=None).takes(found)
    for odd in ({"a_b": True}, {"a_b": "1"}, {"d": 1}, {"a_x": None}, {"d_x": 1}, {"a": 1}):
        assert not waiter("k", **odd).takes(found)
    assert not same(1, True)


def test_an_event_has_an_id_and_a_time() -> None:
    for odd in ({"id": ""}, {"id": "x", "keep": 0}, {"id": "x", "keep": float("nan")}, {}):
        with pytest.raises(ValidationError):
            Event.model_validate(odd)
