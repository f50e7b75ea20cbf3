"""What a mailbox keeps, and what it refuses to keep."""

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


def boxed(*given: Event | Waiter) -> Mailbox:
    """Make a mailbox that has been given these, in their order, at 1."""
    box = Mailbox()
    for each in given:
        if isinstance(each, Event):
            box.take_event(each, now=1)
        else:
            box.take_waiter(each)
    return box


def sent(box: Mailbox, *busy: str) -> list[tuple[str, str, str]]:
    """List what must be delivered: call, token and event."""
    assert box._count == sum(map(len, box.given.values()))
    found = box.deliveries("n", busy, 9)
    return [(each.waiter.key, each.waiter.token, each.event.id) for each in found]


def test_events_are_refused_in_words_once_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailbox, "MOST_EVENTS", 2)
    box = boxed(*(Event(id=id, data={"x": 1}, keep=10) for id in "abca"))
    assert [*box.events] == ["a", "b"]
    assert "2 events of this name with 16 bytes are kept" in box.heard("c").refused
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
    box = boxed(waiter("a"), waiter("b"))
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
    box = boxed(waiter("a"), Event(id="e"))
    [first] = box.deliveries("n", (), 9)
    box.take_waiter(waiter("a"))
    assert box.deliveries("n", ["a"], 9) == []
    box.delivered(first, taken=True)
    box.take_waiter(waiter("a"))
    box.take_waiter(waiter("b"))
    [again] = box.deliveries("n", (), 9)
    assert (again.waiter.key, box.heard("e").waiters) == ("a", 1)
    box.delivered(again, taken=True)
    box.take_waiter(waiter("c", task="other"))
    assert [key for key, _, _ in sent(box)] == ["c"]


def test_fields_fit_by_type_and_place() -> None:
    found = {"a": {"b": 1, "c": None}, "d": "1"}
    assert waiter("k", a_b=1).takes(found)
    assert waiter("k", a_b=1.0, d="1", a_c=None).takes(found)
    for odd in ({"a_b": True}, {"a_b": "1"}, {"d": 1}, {"a_x": None}, {"d_x": 1}, {"a": 1}):
        assert not waiter("k", **odd).takes(found)
    assert not same(1, True)


def test_a_newer_attempt_of_a_call_has_its_event_by_its_own_token() -> None:
    old = waiter("a")
    new, box = (
        old.model_copy(update={"token": "t:0.1.0.0:new", "until": 200.0}),
        boxed(old, Event(id="e")),
    )
    [first] = box.deliveries("n", (), 9)
    box.take_waiter(new)
    box.delivered(first, taken=False)
    box.expire(now=150)
    assert sent(box) == [("a", new.token, "e")]
    box.delivered(box.deliveries("n", (), 9)[0], taken=False)
    assert not box.waiters


def test_a_task_has_one_event_once_while_it_is_under_way() -> None:
    box = boxed(waiter("a"), Event(id="e"))
    [first] = box.deliveries("n", (), 9)
    box.take_waiter(waiter("b"))
    assert sent(box, "a") == []
    box.delivered(first, taken=False)
    assert [key for key, _, _ in sent(box)] == ["b"]


def test_the_same_id_is_no_other_event() -> None:
    box = boxed(Event(id="e", data={"x": 1}, keep=10))
    box.take_event(Event(id="e", data={"x": 2}), now=2)
    assert "has other data" in box.heard("e").refused
    box.take_event(Event(id="e", data={"x": 1}), now=2)
    assert not box.heard("e").refused


def test_a_call_whose_time_is_over_is_not_sent_its_event_again() -> None:
    box = boxed(*(waiter(key, task=key) for key in "abc"), Event(id="e"))
    box.put_off("a")
    assert [key for key, _, _ in sent(box)] == ["b", "c", "a"]
    assert len(box.deliveries("n", (), 2)) == 2
    box.expire(now=100, but=["b"])
    assert [*box.waiters] == [*box.due] == ["b"]


def test_an_event_that_very_many_calls_have_had_is_given_to_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailbox, "MOST_GIVEN", 2)
    box = boxed(Event(id="e", data={"x": 1}), Event(id="f"))
    for key in "abc":
        box.take_waiter(waiter(key, task=key))
        box.delivered(box.deliveries("n", (), 9)[0], taken=True)
    assert box.given == {}
    box.take_event(Event(id="e", data={"x": 1}), now=1)
    box.take_waiter(waiter("d", task="d"))
    assert [id for _, _, id in sent(box)] == ["f"]
    assert box.size == len("e") + len("f") + len("{}") * 2


def test_events_and_calls_that_wait_have_bounds() -> None:
    odd = [("key", ""), ("key", "k" * 201), ("token", "t" * 1301), ("until", -1), ("until", 1e300)]
    for name, value in [*odd, ("until", float("nan")), ("until", float("inf"))]:
        with pytest.raises(ValidationError):
            Waiter.model_validate({"key": "k", "token": "t"} | {name: value})
    for event in ({"id": ""}, {"id": "x", "keep": 0}, {"id": "x", "keep": float("nan")}, {}):
        with pytest.raises(ValidationError):
            Event.model_validate(event)


def test_what_erased_tasks_have_had_is_forgotten_unless_another_task_has_or_gets_it() -> None:
    box = Mailbox()
    for id in ("own", "shared", "due", "undone", "late", "again"):
        box.take_event(Event(id=id, data={"x": id}), now=1)
        box.take_waiter(waiter(f"a {id}", "a", x=id))
    box.take_waiter(waiter("b", "b", x="shared"))
    box.take_waiter(waiter("b again", "b", x="again"))
    going = box.deliveries("n", (), 9)
    box.leave("a late")  # while it is sent its event
    for each in going:
        box.delivered(each, taken=True)
    for key in ("a undone", "a again", "b again"):
        box.leave(key)
    box = Mailbox.model_validate_json(box.model_dump_json())
    box.take_waiter(waiter("c", "c", x="due"))
    box.take_waiter(waiter("a waits", "a", x="none"))
    box.take_waiter(waiter("a own", "a", x="own"))  # again, as after a reset
    box.erase({"a"})
    kept = [id for id, event in box.events.items() if event.data]
    assert kept == ["shared", "due", "again"]
    assert sent(box) == [("c", "c:0.1.0.0:x", "due")]
    assert [*box.waiters] == ["c"]
    box.erase({"b"})
    assert [id for id, event in box.events.items() if event.data] == ["due"]
    box.expire(now=1e6)
    assert (box.given, box.left) == ({}, {})


def test_of_calls_that_were_undone_only_the_newest_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailbox, "MOST_GIVEN", 2)
    box = boxed(*(each for id in "abc" for each in (Event(id=id, data={"x": id}), waiter(id))))
    for each in box.deliveries("n", (), 9):
        box.delivered(each, taken=True)
        box.leave(each.waiter.key)
    box.erase({"t"})
    assert [id for id, event in box.events.items() if event.data] == ["a"]
