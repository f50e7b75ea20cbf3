"""Calls that wait for a batch: what is next, and what each gets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.models.prices import Prices
from holdfast.serving.batches.hand import (
    FIRST_GAP,
    GRACE,
    HASTE,
    LONGEST_GAP,
    MOST_BYTES,
    MOST_CALLS,
    MOST_TRIES,
    SWEEP,
    Ask,
    Asker,
    Hand,
    Outcome,
    Seen,
)
from holdfast.values.messages import Usage
from tests.support.there import there

WAIT, AGE, SIZE = 1000.0, 60.0, 3


def ask(key: str, *, task: str = "t", body: str = "", **changes: Any) -> Ask:
    """Make a call of activity `key`."""
    known: dict[str, Any] = {"size": 10, "wait": WAIT, "most": SIZE, "age": AGE, **changes}
    return Ask(key=key, asker=Asker(task=task, run="r", activity=key), body=body or key, **known)


def hand_of(*keys: str, **changes: Any) -> Hand:
    """Return a hand with calls that came at 0."""
    hand = Hand()
    for key in keys:
        hand.take(ask(key, **changes), now=0.0)
    return hand


def submit(hand: Hand, n: int = 1, *, now: float = AGE) -> Hand:
    """Submit the calls that are collected as a batch."""
    hand.make(hand.collected(), now=now)
    hand.submitted(n, f"batch_{n}", now=now)
    return hand


def submitted(*keys: str) -> Hand:
    """Return a hand whose calls are in batch 1, submitted at 60."""
    return submit(hand_of(*keys))


def states(hand: Hand) -> dict[str, str]:
    """Return the state of each call."""
    return {key: hand.reply(key).state for key in hand.calls}


def test_calls_are_collected_until_they_are_old_or_many_or_large() -> None:
    hand = hand_of("a", "b")
    assert hand.next(now=0.0) == (AGE, ("collect", 0))
    hand.take(ask("c"), now=1.0)
    hand.take(ask("d"), now=1.0)
    assert hand.next(now=1.0) == (0.0, ("collect", 0))
    assert hand.collected() == ["a", "b", "c"]
    large = hand_of("a", "b", size=MOST_BYTES)
    assert (large.next(now=0.0)[0], large.collected()) == (0.0, ["a"])


def test_one_batch_is_made_after_the_other() -> None:
    hand = hand_of("a", "b", "c", "d")
    hand.make(hand.collected(), now=1.0)
    assert hand.next(now=1.0) == (1.0, ("submit", 1))
    hand.submitted(1, "batch_1", now=2.0)
    assert hand.next(now=2.0) == (2.0 + FIRST_GAP, ("look", 1))
    hand.make(hand.collected(), now=AGE)
    assert (hand.of(1), hand.of(2)) == (["a", "b", "c"], ["d"])


def test_each_call_gets_its_answer_and_the_files_go() -> None:
    hand = submitted("a", "b", "c")
    said = [Outcome(line="b", answer="2"), Outcome(line="a", answer="1", is_good=False)]
    hand.ended(1, said, Seen(files=("f",)), now=100.0)
    assert states(hand) == {"a": "answered", "b": "answered", "c": "waits"}
    assert (hand.reply("a").answer, hand.reply("b").answer) == ("1", "2")
    assert hand.next(now=100.0) == (AGE, ("collect", 0))
    assert hand.batches[1].files == ("f",)
    hand.tidied(1)
    hand.forget(["a", "b"])
    assert [*hand.calls] == ["c"]


def test_a_call_is_in_some_batches_at_most_and_then_asked_directly() -> None:
    hand = hand_of("a")
    for n in range(1, MOST_TRIES + 1):
        assert states(hand) == {"a": "waits"}
        submit(hand, n)
        hand.ended(n, (), Seen(status="expired"), now=AGE)
    assert hand.reply("a").why == f"batch batch_{MOST_TRIES} has expired without its answer"
    assert states(hand) == {"a": "direct"}


def test_a_batch_that_had_no_room_was_no_try_and_one_that_is_refused_fails() -> None:
    hand = submitted("a")
    hand.put_off(1, Seen(files=("f",)), 900.0, now=100.0)
    hand.tidied(1)
    assert hand.calls["a"].tries == 0
    assert hand.next(now=100.0) == (1000.0, ("collect", 0))
    hand.make(hand.collected(), now=1000.0)
    assert hand.calls["a"].tries == 1
    hand.refused(2, Seen(why="no such model"), now=1000.0)
    assert (hand.reply("a").state, hand.reply("a").why) == ("failed", "no such model")


def test_at_a_deadline_a_batch_is_looked_at_and_after_it_no_one_waits() -> None:
    hand = submitted("a")
    for _ in range(30):
        hand.looked(1, now=AGE)
    assert hand.batches[1].gap == LONGEST_GAP
    assert hand.next(now=AGE) == (WAIT, ("look", 1))
    hand.looked(1, now=WAIT, cancelled=True)
    assert hand.next(now=WAIT) == (WAIT + FIRST_GAP, ("look", 1))
    assert hand.reply("a").state == "waits"
    hand.expire(now=WAIT + GRACE)
    assert hand.reply("a").state == "direct"


def test_a_batch_that_never_reached_the_provider_is_given_up_at_its_deadline() -> None:
    hand = hand_of("a")
    hand.make(["a"], now=AGE)
    hand.looked(1, now=AGE, why="Too many.")
    hand.untaken(1)
    hand.expire(now=WAIT)
    assert (states(hand), hand.batches) == ({"a": "direct"}, {})


def test_a_batch_that_may_have_reached_the_provider_is_looked_for_before_it_is_given_up() -> None:
    hand = hand_of("a", "b")
    hand.make(["a", "b"], now=AGE)
    hand.take(ask("c"), now=AGE)
    for _ in range(9):
        hand.looked(1, now=AGE, why="The provider is down.")
    assert "its batch to be submitted (The provider is down.)" in hand.reply("a").why
    assert hand.reply("c").again == hand.batches[1].look + FIRST_GAP  # no batch is made before
    hand.expire(now=WAIT)
    assert hand.next(now=WAIT)[1] == ("submit", 1)
    assert (hand.reply("a").state, hand.reply("c").state) == ("waits", "waits")
    hand.untaken(1)  # what came of the attempts before is not known
    hand.expire(now=WAIT)
    found = hand.model_copy(deep=True)
    hand.ended(1, (), Seen(why="it is not there"), now=WAIT)
    assert (hand.reply("a").state, hand.reply("a").why) == ("direct", "it is not there")
    found.looked(1, now=WAIT, why="The provider is down.")
    found.submitted(1, "batch_1", now=WAIT)
    found.forget(["c"])
    assert found.next(now=WAIT) == (WAIT, ("look", 1))  # to cancel it


def test_after_an_outage_a_batch_is_looked_at_before_its_calls_are_asked_directly() -> None:
    hand, late = submitted("a", "b"), WAIT + 10 * GRACE
    hand.expire(now=late)
    assert hand.next(now=late)[1] == ("look", 1)
    hand.ended(1, [Outcome(line="a", answer="1")], Seen(), now=late)
    assert states(hand) == {"a": "answered", "b": "direct"}
    hand = submitted("a")
    hand.looked(1, now=late, cancelled=True)
    hand.expire(now=late + GRACE - 1)
    assert states(hand) == {"a": "waits"}
    hand.expire(now=late + GRACE)
    assert states(hand) == {"a": "direct"}


def test_a_batch_that_cannot_be_cancelled_is_not_tried_without_a_pause() -> None:
    hand = submitted("a")
    hand.looked(1, now=WAIT, why="No such key.")
    assert hand.next(now=WAIT) == (WAIT + FIRST_GAP, ("look", 1))


def test_a_batch_is_not_ended_by_the_deadlines_of_calls_that_wait_less_and_that_is_no_try() -> None:
    hand = hand_of("a", "b")
    hand.take(ask("soon", wait=WAIT / 2), now=0.0)
    assert hand.collected() == ["a", "b"]
    submit(hand)
    assert hand.collected() == ["soon"]
    hand.looked(1, now=AGE, cancelled=True)
    hand.ended(1, (), Seen(), now=AGE)
    assert [hand.calls[key].tries for key in ("a", "b")] == [0, 0]


def test_of_two_lines_for_a_call_the_answer_counts() -> None:
    hand = submitted("a", "b")
    good, bad = Outcome(line="a", answer="1"), Outcome(line="a", answer="2", is_good=False)
    hand.ended(1, [good, bad, Outcome(line="stranger", answer="3")], Seen(), now=AGE)
    assert (hand.calls["a"].answer, hand.calls["a"].is_good) == ("1", True)


def test_lines_that_a_provider_names_as_wrong_are_asked_directly_and_the_others_go_on() -> None:
    hand = submitted("a", "b")
    hand.refused(1, Seen(why="Line 2 is wrong.", lines=("b",)), now=AGE)
    assert (states(hand), hand.collected()) == ({"a": "waits", "b": "direct"}, ["a"])


def test_an_activity_that_was_given_up_adds_no_second_line_of_its_call() -> None:
    hand = hand_of("a", body="same")
    hand.take(ask("b", body="same", pending=("b",)), now=0.0)
    hand.take(ask("a", body="same", pending=("b",)), now=0.0)
    assert [(key, call.line) for key, call in hand.calls.items()] == [("b", "a")]


def test_what_is_next_is_known_without_a_look_at_each_call() -> None:
    class Counted(dict[str, Any]):
        looks = 0

        def __getitem__(self, key: str) -> Any:
            self.looks += 1
            return super().__getitem__(key)

        def values(self) -> Any:
            self.looks += len(self)
            return super().values()

        def items(self) -> Any:
            self.looks += len(self)
            return super().items()

    hand = submit(hand_of(*map(str, range(100)), most=50))
    hand.submitted(1, "batch_1", now=AGE)
    hand.next(now=AGE)
    hand.calls = Counted(hand.calls)
    hand.take(ask("new"), now=AGE)
    hand.expire(now=AGE)
    assert hand.next(now=AGE) == (0.0, ("collect", 0))
    assert hand.calls.looks == 0


def test_what_a_step_waits_for_is_said() -> None:
    hand = hand_of("a")
    assert hand.reply("a").why == "a batch to be full, at the latest 1970-01-01 00:16 UTC"
    hand = submitted("a")
    assert hand.reply("a").why == (
        "batch batch_1, submitted 1970-01-01 00:01 UTC, at the latest 1970-01-01 00:16 UTC"
    )
    assert hand.reply("a").again == AGE + FIRST_GAP


@pytest.mark.parametrize(
    ("pending", "is_taken", "is_good", "takes_over"),
    [
        ((), False, True, True),
        (("a",), False, True, False),  # a lane beside it, that asks the same
        ((), True, True, False),  # a step has the answer, and wants another one
        ((), False, False, False),
    ],
)
def test_the_next_activity_of_a_step_takes_over_the_call_of_a_lost_one(
    pending: tuple[str, ...], is_taken: bool, is_good: bool, takes_over: bool
) -> None:
    hand = submit(hand_of("a", body="same"))
    if is_taken or not is_good:
        hand.ended(1, [Outcome(line="a", answer="1", is_good=is_good)], Seen(), now=AGE)
        hand.taken("a")
    hand.take(ask("b", body="same", pending=("b", *pending)), now=AGE)
    assert [*hand.calls] == (["b"] if takes_over else ["a", "b"])
    hand.take(ask("c", task="other", body="same"), now=AGE)
    assert "c" in hand.calls
    again = Hand.model_validate_json(hand.model_dump_json())
    again.take(ask("d", body="same"), now=AGE)
    assert len(again.calls) == len(hand.calls)
    if takes_over:
        hand.ended(1, [Outcome(line="a", answer="1")], Seen(), now=AGE)
        assert hand.reply("b").answer == "1"


def test_a_call_that_is_asked_twice_is_one_and_one_too_many_comes_again() -> None:
    hand = hand_of(*map(str, range(MOST_CALLS)))
    hand.take(ask("0"), now=5.0)
    hand.take(ask("more"), now=5.0)
    assert (hand.calls["0"].since, hand.reply("more").state) == (0.0, "unknown")
    assert "the most" in hand.reply("more").why
    hand.make([f"{n}" for n in range(MOST_CALLS)], now=5.0)
    hand.refused(1, Seen(), now=5.0)
    assert hand.next(now=5.0)[0] == 5.0
    hand.tidied(1)
    assert hand.next(now=5.0) == (5.0 + HASTE, ("sweep", 0))


def test_for_a_batch_that_had_no_room_fewer_calls_are_put_together() -> None:
    hand = submitted("a", "b", "c")
    hand.put_off(1, Seen(), 900.0, now=100.0)
    hand.tidied(1)
    assert hand.collected() == ["a"]
    submit(hand, 2, now=1000.0)
    hand.ended(2, [Outcome(line="a", answer="1")], Seen(), now=1000.0)
    hand.take(ask("d"), now=1000.0)
    assert hand.collected() == ["b", "c"]


def test_calls_that_are_over_are_looked_after() -> None:
    hand = submitted("a")
    hand.ended(1, [Outcome(line="a", answer="1")], Seen(), now=100.0)
    hand.tidied(1)
    assert hand.next(now=100.0) == (100.0 + SWEEP, ("sweep", 0))
    hand.kept(hand.over(), now=200.0)
    assert hand.next(now=200.0) == (200.0 + SWEEP, ("sweep", 0))
    hand.forget(hand.over())
    assert hand.is_empty


@given(st.lists(st.sampled_from(["ask", "do", "lose", "fail"]), max_size=60))
def test_each_call_is_in_one_open_batch_at_most_and_never_lost(moves: list[str]) -> None:
    hand, now, known = Hand(), 0.0, 0
    for move in moves:
        now += 7.0
        if move == "ask":
            known += 1
            hand.take(ask(f"{known}", wait=1e9), now=now)
            continue
        due, job = hand.next(now=now)
        now = max(now, min(due, now + LONGEST_GAP))
        match job.kind:
            case "collect":
                hand.make(hand.collected(), now=now)
            case "submit" if move == "fail":
                hand.looked(job.n, now=now, why="down")
            case "submit":
                hand.submitted(job.n, f"batch_{job.n}", now=now)
            case "look":
                lines = () if move == "lose" else hand.of(job.n)
                said = [Outcome(line=hand.calls[key].line, answer="1") for key in lines]
                hand.ended(job.n, said, Seen(), now=now)
            case "tidy":
                hand.tidied(job.n)
            case _:
                continue
        if known % 2:
            hand = Hand.model_validate_json(hand.model_dump_json())
        waiting = [key for n in (0, *hand.batches) for key in hand.of(n)]
        assert sorted(waiting) == sorted(k for k, c in hand.calls.items() if c.state == "waits")
        assert all(not batch.is_over or not hand.of(n) for n, batch in hand.batches.items())
        assert hand.next(now=now) == Hand.model_validate(hand.model_dump()).next(now=now)
    assert len(hand.calls) == known


def test_an_answer_of_a_batch_costs_half() -> None:
    prices = Prices({"m": {"input": "1", "output": "10"}})
    usage = Usage(input_tokens=1000, output_tokens=100)
    names = [("m",), ("batch/m", "batch/m-2025")]
    whole, half = (there(prices.quote(usage, *each)) for each in names)
    assert half.cost * 2 == whole.cost
    assert half.source == f"{whole.source}, half of it for a batch"
    assert prices.quote(usage, "batch/other") is None
