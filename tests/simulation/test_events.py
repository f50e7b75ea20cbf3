"""Calls that wait for events: every seam between task, mailbox and sender."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from holdfast.workflows.requests import events
from tests.simulation.clock import EPOCH
from tests.simulation.play import Choice, Played, Schedule
from tests.simulation.test_waits import LOOK, RUN, STEPS, held, recorded, steps

WAIT = ["wait_for_event", {"name": "paid", "match": {"order.id": 7}, "timeout": "5000 s"}]
FOREVER = ["wait_for_event", {"name": "paid", "timeout": "5000 s"}]
SETTLE: Choice = ("settle",)
DEEP = '{"id": "deep", "data": {"order": {"id": 7}, "x": ' + "[" * 190 + "]" * 190 + "}}"


def event(id: str, order: Any = 7, **fields: Any) -> Choice:
    """Return the choice that sends an event to the mailbox."""
    body = {"id": id, "data": {"order": {"id": order}}, **fields}
    return ("raw", "paid", "event", [json.dumps(body)])


def got(played: Played) -> list[str]:
    """List the ids of the events that the task has in its record, oldest first."""
    return re.findall(r'\\"id\\": \\"(\w+)\\", \\"at', "".join(recorded(played)))


@pytest.mark.parametrize(
    "between",
    [
        [],
        [("evict", 0), ("evict", "paid")],
        [("lose", "paid")],
        [("lose", 0)],
        [("fate", "deliver", "twice")],
        [("fate", "deliver", "lost")],
        [("fate", "deliver", "dead")],
        [("fate", "deliver", "stalled")],
        [("fate", "deliver", "fails")],
        [("fate", "deliver", "breaks")],
        [("say", 0, "pause", {"by": "ann"})],
        [event("other", 8), SETTLE],
        [event("text", "7"), SETTLE],
        [("raw", "paid", "event", ["no event"]), ("raw", "paid", "odd", ["1"]), SETTLE],
        [("raw", "paid", "event", [DEEP]), SETTLE, ("evict", "paid")],
    ],
    ids=str,
)
def test_an_event_reaches_the_call_that_waits_for_it_once(between: list[Choice]) -> None:
    sent = [event("e1"), event("e1"), ("release",), SETTLE, ("wait", 700), SETTLE, event("e1")]
    end: list[Choice] = [SETTLE, ("say", 0, "resume", {"by": "ann"}), SETTLE]
    played = held(
        Schedule(plan=[[WAIT], "done"], choices=[RUN, SETTLE, *between, *sent, *end], real=True)
    )
    assert got(played) == ["e1"], played.trace
    assert steps(played) == STEPS - 1


def test_a_burst_is_taken_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_WORK", 5)
    burst = [event(f"x{k}", 8) for k in range(9)]
    choices = [RUN, SETTLE, *burst, event("a"), *burst, ("lose", "paid"), ("wait", 1), SETTLE]
    played = held(Schedule(plan=[[WAIT], "done"], choices=choices, real=True))
    assert got(played) == ["a"], played.trace
    assert "\n".join(played.trace).count("timer") > 1, played.trace


def test_an_event_that_came_before_is_found_once_by_a_later_wait() -> None:
    known: list[Choice] = [RUN, SETTLE, event("a"), event("b"), event("c", 8), SETTLE]
    later: list[Choice] = [SETTLE, ("run", 0, "r2", {"all": True}), SETTLE, ("wait", 6000), SETTLE]
    plan = [[WAIT], [WAIT], [LOOK], [WAIT], "done"]
    played = held(Schedule(plan=plan, choices=[*known, ("evict", "paid"), *later]))
    assert got(played) == ["a", "b"], played.trace
    assert any("No event 'paid' that fits has come until" in entry for entry in recorded(played))


def test_an_event_is_not_found_once_its_time_is_over() -> None:
    before: list[Choice] = [RUN, SETTLE, event("a"), event("b", keep=50), SETTLE]
    choices: list[Choice] = [*before, ("wait", 100), SETTLE, ("wait", 6000), SETTLE]
    slow = ["sleep_until", {"when": "90 s", "note": ""}]
    assert got(held(Schedule(plan=[[WAIT], [slow], [WAIT], "done"], choices=choices))) == ["a"]


def test_all_calls_that_wait_are_given_an_event_of_theirs() -> None:
    helper = ["helper", {"input": json.dumps([[WAIT], "heard"])}]
    played = held(
        Schedule(
            plan=[[FOREVER, WAIT, helper], "done"],
            choices=[RUN, SETTLE, event("a"), SETTLE, ("home",)],
        )
    )
    assert got(played) == ["a", "a"], played.trace
    assert any("heard" in entry for entry in recorded(played))


@pytest.mark.parametrize("by", ["time", "a person"])
def test_a_wait_ends_without_its_event(by: str) -> None:
    end: Choice = ("wait", 6000) if by == "time" else ("say", 0, "wake", {"by": "ann"})
    late: list[Choice] = [SETTLE, event("late"), SETTLE]
    played = held(Schedule(plan=[[WAIT], "done"], choices=[RUN, SETTLE, end, *late], real=True))
    assert got(played) == []
    said = "No event 'paid'" if by == "time" else "The wait for its outcome was ended"
    assert any(said in entry for entry in recorded(played)), played.ledger


def test_an_event_for_a_call_that_waited_no_longer_is_found_by_the_next_one() -> None:
    ended: list[Choice] = [("say", 0, "pause", {"by": "ann"}), ("say", 0, "wake", {"by": "ann"})]
    crossing: list[Choice] = [*ended, SETTLE, event("a"), SETTLE]
    on: list[Choice] = [("say", 0, "resume", {"by": "ann"}), SETTLE]
    plan = [[WAIT], [WAIT], "done"]
    played = held(Schedule(plan=plan, choices=[RUN, SETTLE, *crossing, *on]))
    assert got(played) == ["a"], played.trace
    assert any("The wait for its outcome was ended" in entry for entry in recorded(played))


def test_the_time_of_a_wait_for_an_event_is_not_changed() -> None:
    later = {"until": EPOCH + 9000, "by": "ann"}
    played = held(
        Schedule(plan=[[WAIT], "done"], choices=[RUN, SETTLE, ("say", 0, "wake", later), SETTLE])
    )
    assert any("is fixed" in entry for entry in played.ledger if '"refused"' in entry)


@pytest.mark.parametrize("meanwhile", [[], [event("a"), SETTLE]], ids=["waits", "has it"])
def test_an_undone_wait_takes_no_event_from_the_wait_after_it(meanwhile: list[Choice]) -> None:
    undo: list[Choice] = [("undo", 0, "u1", {"by": "bob", "to": 0}), SETTLE]
    again: list[Choice] = [("run", 0, "r2", {"all": True}), SETTLE, event("a"), SETTLE]
    played = held(Schedule(plan=[[WAIT], "done"], choices=[RUN, SETTLE, *meanwhile, *undo, *again]))
    assert got(played) == ["a"] * (2 if meanwhile else 1), played.trace


@pytest.mark.parametrize(
    "end",
    [("say", 0, "abandon", {"by": "ann"}), ("cancel", 0), ("terminate", 0)],
    ids=["abandon", "cancel", "terminate"],
)
def test_an_event_for_a_task_that_has_ended_goes_nowhere(end: Choice) -> None:
    after: list[Choice] = [SETTLE, event("a"), SETTLE, ("wait", 90_000), SETTLE, event("b")]
    held(Schedule(plan=[[WAIT], "done"], choices=[RUN, SETTLE, end, *after, SETTLE], real=True))


def test_events_are_given_across_rollovers_of_the_task() -> None:
    looks = [[LOOK, ["mark", {"text": str(k)}]] for k in range(4)]
    played = held(
        Schedule(
            plan=[*looks, [WAIT], *looks, [WAIT], "done"],
            choices=[RUN, SETTLE, event("a"), SETTLE, event("b"), SETTLE, ("home",)],
            options={"roll_events": 40},
        )
    )
    assert not played.violation


def test_a_match_that_can_never_fit_and_a_time_that_is_none_are_refused_at_once() -> None:
    odd = ["wait_for_event", {"name": "paid", "match": {"order": {"id": 7}}}]
    empty = ["wait_for_event", {"name": "paid", "match": {"order..id": 7}}]
    soon = ["wait_for_event", {"name": "paid", "timeout": "soon"}]
    ever = ["wait_for_event", {"name": "paid", "timeout": "900 d"}]
    name = ["wait_for_event", {"name": "a~b"}]
    past, zone, none = (
        ["sleep_until", {"when": when, "note": ""}]
        for when in ("1960-01-01T00:00:00Z", "2990-01-01T00:00:00", "soon")
    )
    calls = [odd, empty, soon, ever, name, past, zone, none]
    text = "".join(recorded(held(Schedule(plan=[calls, "done"], choices=[RUN, SETTLE]))))
    for said in ("plain values", "empty part", "400 days", "character '~'", "is over", "time zone"):
        assert said in text, (said, text)
    assert text.count("names no time") == len([soon, zone, none]), text
