"""Calls that wait for events: every seam between task, mailbox and sender."""

import json
import re
from typing import Any

import pytest

from holdfast.workflows.requests import events
from tests.simulation.clock import EPOCH
from tests.simulation.play import (
    HOME,
    LOOK,
    MARKS,
    RUN,
    SETTLE,
    Choice,
    Played,
    held,
    nested,
    say,
    undo,
)

WAIT = ["wait_for_event", {"name": "paid", "match": {"order.id": 7}, "timeout": "5000 s"}]
FOREVER = ["wait_for_event", {"name": "paid", "timeout": "5000 s"}]
DEEP = '{"id": "deep", "data": {"order": {"id": 7}, "x": ' + "[" * 190 + "]" * 190 + "}}"
AGAIN: Choice = ("run", 0, "r2", {"all": True})


def event(id: str, order: Any = 7, **fields: Any) -> Choice:
    """Return the choice that sends an event to the mailbox."""
    body = {"id": id, "data": {"order": {"id": order}}, **fields}
    return ("raw", "paid", "event", [json.dumps(body)])


def got(played: Played) -> list[str]:
    """List the ids of the events that the task has in its record, oldest first."""
    return re.findall(r'\\"id\\": \\"(\w+)\\", \\"at', "".join(played.steps))


@pytest.mark.parametrize(
    "between",
    [
        [],
        [("evict", 0), ("evict", "paid")],
        [("lose", "paid")],
        [("lose", 0)],
        *(
            [("fate", "deliver", fate)]
            for fate in ("twice", "lost", "dead", "stalled", "fails", "breaks")
        ),
        [say("pause")],
        [event("other", 8), SETTLE],
        [event("text", "7"), SETTLE],
        [("raw", "paid", "event", ["no event"]), ("raw", "paid", "odd", ["1"]), SETTLE],
        [("raw", "paid", "event", [DEEP]), SETTLE, ("evict", "paid")],
    ],
    ids=str,
)
def test_an_event_reaches_the_call_that_waits_for_it_once(between: list[Choice]) -> None:
    sent = [event("e1"), event("e1"), ("release",), SETTLE, ("wait", 700), SETTLE, event("e1")]
    end = [SETTLE, say("resume"), SETTLE]
    played = held([[WAIT], "done"], RUN, SETTLE, *between, *sent, *end, real=True)
    assert got(played) == ["e1"], played.trace
    assert len(played.steps) == 2


def test_a_burst_is_taken_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_WORK", 5)
    burst = [event(f"x{k}", 8) for k in range(9)]
    choices = [RUN, SETTLE, *burst, event("a"), *burst, ("lose", "paid"), ("wait", 1), SETTLE]
    played = held([[WAIT], "done"], *choices, real=True)
    assert got(played) == ["a"], played.trace
    assert "\n".join(played.trace).count("timer") > 1, played.trace


def test_an_event_that_came_before_is_found_once_by_a_later_wait() -> None:
    known: list[Choice] = [RUN, SETTLE, event("a"), event("b"), event("c", 8), SETTLE]
    later: list[Choice] = [("evict", "paid"), SETTLE, AGAIN, SETTLE, ("wait", 6000), SETTLE]
    played = held([[WAIT], [WAIT], [LOOK], [WAIT], "done"], *known, *later)
    assert got(played) == ["a", "b"], played.trace
    assert any("No event 'paid' that fits has come until" in entry for entry in played.steps)


def test_an_event_is_not_found_once_its_time_is_over() -> None:
    before: list[Choice] = [RUN, SETTLE, event("a"), event("b", keep=50), SETTLE]
    slow = ["sleep_until", {"when": "90 s", "note": ""}]
    ends: list[Choice] = [("wait", 100), SETTLE, ("wait", 6000), SETTLE]
    assert got(held([[WAIT], [slow], [WAIT], "done"], *before, *ends)) == ["a"]


def test_all_calls_that_wait_are_given_an_event_of_theirs() -> None:
    plan = [[FOREVER, WAIT, nested([WAIT], "heard")], "done"]
    played = held(plan, RUN, SETTLE, event("a"), SETTLE, HOME)
    assert got(played) == ["a", "a"], played.trace
    assert any("heard" in entry for entry in played.steps)


@pytest.mark.parametrize(
    ("end", "said"),
    [(("wait", 6000), "No event 'paid'"), (say("wake"), "The wait for its outcome was ended")],
)
def test_a_wait_ends_without_its_event(end: Choice, said: str) -> None:
    late = [SETTLE, event("late"), SETTLE]
    played = held([[WAIT], "done"], RUN, SETTLE, end, *late, real=True)
    assert got(played) == []
    assert any(said in entry for entry in played.steps), played.ledger


def test_an_event_for_a_call_that_waited_no_longer_is_found_by_the_next_one() -> None:
    crossing = [say("pause"), say("wake"), SETTLE, event("a"), SETTLE, say("resume"), SETTLE]
    played = held([[WAIT], [WAIT], "done"], RUN, SETTLE, *crossing)
    assert got(played) == ["a"], played.trace
    assert any("The wait for its outcome was ended" in entry for entry in played.steps)


def test_the_time_of_a_wait_for_an_event_is_not_changed() -> None:
    played = held([[WAIT], "done"], RUN, SETTLE, say("wake", until=EPOCH + 9000), SETTLE)
    assert any("is fixed" in entry for entry in played.ledger if '"refused"' in entry)


@pytest.mark.parametrize("meanwhile", [[], [event("a"), SETTLE]], ids=["waits", "has it"])
def test_an_undone_wait_takes_no_event_from_the_wait_after_it(meanwhile: list[Choice]) -> None:
    again = [undo(to=0), SETTLE, AGAIN, SETTLE, event("a"), SETTLE]
    played = held([[WAIT], "done"], RUN, SETTLE, *meanwhile, *again)
    assert got(played) == ["a"] * (2 if meanwhile else 1), played.trace


@pytest.mark.parametrize("end", [say("abandon"), ("cancel", 0), ("terminate", 0)], ids=str)
def test_an_event_for_a_task_that_has_ended_goes_nowhere(end: Choice) -> None:
    after = [SETTLE, event("a"), SETTLE, ("wait", 90_000), SETTLE, event("b"), SETTLE]
    held([[WAIT], "done"], RUN, SETTLE, end, *after, real=True)


def test_events_are_given_across_rollovers_of_the_task() -> None:
    plan = [*MARKS, [WAIT], *MARKS, [WAIT], "done"]
    held(plan, RUN, SETTLE, event("a"), SETTLE, event("b"), SETTLE, HOME, roll_events=40)


def test_a_match_that_can_never_fit_and_a_time_that_is_none_are_refused_at_once() -> None:
    odd: tuple[dict[str, Any], ...] = (
        {"match": {"order": {"id": 7}}},
        {"match": {"order..id": 7}},
        {"timeout": "soon"},
        {"timeout": "900 d"},
        {"name": "a~b"},
    )
    waits = [["wait_for_event", {"name": "paid", **each}] for each in odd]
    times = ("1960-01-01T00:00:00Z", "2990-01-01T00:00:00", "soon")
    sleeps = [["sleep_until", {"when": when, "note": ""}] for when in times]
    text = "".join(held([[*waits, *sleeps], "done"], RUN, SETTLE).steps)
    for said in ("plain values", "empty part", "400 days", "character '~'", "is over", "time zone"):
        assert said in text, (said, text)
    assert text.count("names no time") == 3, text  # of a wait, and of two sleeps
