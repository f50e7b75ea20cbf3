"""What happened in a task, folded from its ledger: one sequence, whatever the records are."""

from typing import Any

import pytest

from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import Called, Outcome
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    Handed,
    JournalEntry,
    LeftStep,
    Mark,
    OpenState,
    OpenStep,
    StepRecord,
    StepResult,
)
from holdfast.task.happenings import (
    CallUndone,
    Fold,
    Happening,
    InStep,
    ModelAnswered,
    Noted,
    StepsUndone,
    TaskClosed,
    happenings,
    in_order,
    step_happenings,
)
from holdfast.task.ledger.recording import SAID_IN_ADDS
from holdfast.task.step_body import answer_places, body_of
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.values.steps import TaskStep

LOOK, GO = ToolCall(id="c1", name="look"), ToolCall(id="c2", name="go")
STEP = TaskStep(step_id="s1", input="q")
ASKS = assistant("hm", calls=(LOOK, GO))
MARKS = (
    Mark(2, "start"),
    Mark(3, "call", 0, 0),
    Mark(4, "call", 0, 1),
    Mark(5, "done", 0, 1),
    Mark(7, "done", 0, 0),
)


def answered(message: Message = ASKS, at: float = 11.0) -> JournalEntry:
    return JournalEntry(request="r", answer=ModelAnswer(message=message, at=at), attempts=2)


def current(**changes: Any) -> OpenState:
    fields: dict[str, Any] = {
        "open": OpenStep(step=STEP),
        "n": 1,
        "started": 10.0,
        "journal": (answered(),),
        "result": StepResult(adds=("input", "j0")),
        "calls": (LOOK, GO),
        "outcomes": {1: Outcome(content="gone", ended=13.0, took=1.0)},
        "marks": MARKS[:4],
    }
    return OpenState(**{**fields, **changes})


def completed(**changes: Any) -> StepRecord:
    fields: dict[str, Any] = {
        "n": 1,
        "step": STEP,
        "adds": (
            user("q"),
            ASKS,
            Message(role="tool", call_id="c1", content="seen"),
            Message(role="tool", call_id="c2", content="gone"),
        ),
        "calls": (LOOK, GO),
        "outcomes": (Outcome(ended=15.0, at=2), Outcome(ended=13.0, took=1.0, at=3)),
        "journal": (answered(SAID_IN_ADDS),),
        "started": 10.0,
        "ended": 16.0,
        "marks": (*MARKS, Mark(8, "end")),
    }
    return StepRecord(**{**fields, **changes})


def left(**changes: Any) -> LeftStep:
    return LeftStep(was=current(**changes), branch=3, at=14.0, why="restarted", by="ann")


def event(kind: str, *, number: int = 0, **body: Any) -> EventRecord:
    return EventRecord(kind=kind, at=20.0, by="ann", body=body, number=number)


def told(found: Any) -> list[tuple[str, float, int]]:
    """Say of each happening what it is, when it was, and its number."""
    return [(type(each).__name__, each.at, each.number) for each in found]


BEGAN, ANSWERED = ("StepBegan", 10.0, 2), ("ModelAnswered", 11.0, 0)
LOOK_ASKED, GO_ASKED = ("CallAsked", 11.0, 3), ("CallAsked", 11.0, 4)
GO_DONE = [GO_ASKED, ("CallBegan", 12.0, 0), ("CallDone", 13.0, 5)]


@pytest.mark.parametrize(
    ("entry", "opens", "expected"),
    [
        pytest.param(
            Entry(step=completed()),
            [],
            [
                *(BEGAN, ANSWERED, LOOK_ASKED, ("CallBegan", 15.0, 0), ("CallDone", 15.0, 7)),
                *(*GO_DONE, ("StepEnded", 16.0, 8)),
            ],
            id="completed",
        ),
        pytest.param(None, [current()], [BEGAN, ANSWERED, LOOK_ASKED, *GO_DONE], id="open"),
        pytest.param(
            None,
            [current(called={0: Called(at=12.5)})],
            [BEGAN, ANSWERED, LOOK_ASKED, ("CallBegan", 12.5, 0), *GO_DONE],
            id="a call is begun",
        ),
        pytest.param(
            None,
            [current(called={0: Called(at=12.5, ended=13.5, error="no")})],
            [
                BEGAN,
                ANSWERED,
                LOOK_ASKED,
                ("CallBegan", 12.5, 0),
                ("CallFailed", 13.5, 0),
                *GO_DONE,
            ],
            id="a call has failed",
        ),
        pytest.param(
            Entry(left=left()),
            [],
            [BEGAN, ANSWERED, LOOK_ASKED, *GO_DONE, ("StepLeft", 14.0, 0)],
            id="left",
        ),
        pytest.param(
            None,
            [current(result=None, calls=(), outcomes={}, unheard=(12.0,), marks=MARKS[:1])],
            [BEGAN, ANSWERED, ("ModelCutOff", 12.0, 0)],
            id="a model call was cut off",
        ),
        pytest.param(
            None,
            [
                current(
                    journal=(
                        answered(assistant("plan")),
                        JournalEntry(request="m", memo=Handed(output=1), name="plan"),
                        JournalEntry(request="s", calls=(LOOK,), outcomes=(Outcome(ended=12.0),)),
                        answered(at=13.0),
                    ),
                    result=None,
                    calls=(),
                    outcomes={},
                    marks=(*MARKS[:2], Mark(9, "done", 0, 0)),
                )
            ],
            [
                *(BEGAN, ANSWERED, ("MemoMade", 11.0, 0), LOOK_ASKED, ("CallBegan", 12.0, 0)),
                *(("CallDone", 12.0, 9), ("ModelAnswered", 13.0, 0)),
            ],
            id="in the middle of a step",
        ),
        pytest.param(Entry(event=event("command")), [], [("Noted", 20.0, 0)], id="command"),
    ],
)
def test_each_kind_of_record_tells_what_happened(
    entry: Entry | None, opens: list[OpenState], expected: list[tuple[str, float, int]]
) -> None:
    assert told(happenings([entry] if entry else [], opens)) == expected


def test_the_time_of_a_happening_stays_within_its_step() -> None:
    early, late = Outcome(ended=3.0, at=2), Outcome(ended=99.0, at=3)
    found = happenings([Entry(step=completed(outcomes=(early, late)))])
    times = [each.time for each in found if isinstance(each, InStep)]
    assert (min(times), max(times)) == (10.0, 16.0)


@pytest.mark.parametrize(
    ("noted", "kind", "facts"),
    [
        (event("asked", id="t:1", number=3), Noted, {"number": 3}),
        (event("guardrail"), Noted, {}),
        (event("limit"), Noted, {}),
        (event("effect_undone", key="0.1.0.0"), CallUndone, {"place": "0.1.0.0"}),
        (event("effect_undone", task="child"), CallUndone, {"place": "child"}),
        (
            event("undone", n=2, number=9, steps=["s2", "s3"]),
            StepsUndone,
            {"first": 2, "number": 9, "steps": ("s2", "s3")},
        ),
        (event("closed", number=4), TaskClosed, {"number": 4}),
    ],
)
def test_an_event_of_the_ledger_is_told_as_what_it_is(
    noted: EventRecord, kind: type[Noted], facts: dict[str, Any]
) -> None:
    [found] = happenings([Entry(event=noted)])
    assert type(found) is kind
    assert {name: getattr(found, name) for name in facts} == facts
    assert (found.at, getattr(found, "event")) == (20.0, noted)  # noqa: B009  of one kind only


def test_a_ledger_read_bit_by_bit_tells_the_same_as_read_at_once() -> None:
    entries = [
        Entry(step=completed()),
        Entry(event=event("undone", n=1, number=9, steps=["s1"])),
        Entry(left=left()),
        Entry(step=completed(branch=1)),
        Entry(event=event("closed", number=30)),
    ]
    fold, bits = Fold(), list[Happening]()
    for entry in entries:
        bits += fold.entries([entry])
    bits += fold.opens([current()])
    assert bits == list(happenings(entries, [current()]))


def test_what_happened_side_by_side_is_put_in_order_and_a_step_that_was_left_is_void() -> None:
    beside = current(marks=(Mark(6, "start"),), result=None, calls=(), outcomes={})
    found = in_order(happenings([Entry(left=left()), Entry(step=completed())], [beside]))
    assert [each.number for each in found] == [2, 3, 4, 5, 6, 7, 8]


def test_a_step_has_the_same_body_open_and_completed() -> None:
    known = {0: Outcome(content="seen", ended=15.0), 1: Outcome(content="gone", ended=13.0, took=1)}
    open_, done = body_of(current(outcomes=known, marks=MARKS)), body_of(completed())
    assert [a.message for a in open_.answers] == [a.message for a in done.answers] == [ASKS]
    for name in ("call", "batch", "i", "message", "asked", "done"):
        mine, its = ([getattr(each, name) for each in of.all_calls()] for of in (open_, done))
        assert mine == its
    contents = [[c.outcome.content for c in of.calls if c.outcome] for of in (open_, done)]
    assert contents == [["seen", "gone"]] * 2
    assert (open_.adds, open_.input, open_.start) == (done.adds[:2], done.input, done.start)
    assert (open_.status, open_.is_over, done.status, done.is_over) == ("open", False, "done", True)


def test_calls_of_several_batches_and_answers_are_told_apart() -> None:
    made = JournalEntry(request="s", calls=(LOOK,), outcomes=(Outcome(),))
    marks = (Mark(1, "start"), Mark(2, "call"), Mark(3, "done"), Mark(4, "call", 1))
    journal = (answered(), made, answered())
    body = body_of(current(journal=journal, result=None, calls=(LOOK,), outcomes={}, marks=marks))
    assert [(c.batch, c.asked, c.done) for c in body.all_calls()] == [(0, 2, 3), (1, 4, 0)]
    answers = [each for each in step_happenings(body) if isinstance(each, ModelAnswered)]
    assert [each.k for each in answers] == [0, 1]


def test_a_step_that_was_left_is_read_without_what_it_found() -> None:
    """It names a note that is not kept; what it would have added is not known any more."""
    body = body_of(left(result=StepResult(adds=("n0", "j0"))))
    assert (body.status, body.branch, body.ended, body.adds) == ("restarted", 3, 14.0, ())
    assert [answer.message for answer in body.answers] == [ASKS]


MINE, OWN = assistant("mine"), assistant("own words")


@pytest.mark.parametrize(
    ("journal", "adds", "expected"),
    [
        ([answered(SAID_IN_ADDS)], [user("q"), MINE], {0: 1}),
        ([answered(MINE), answered(SAID_IN_ADDS)], [OWN], {1: 0}),
        ([answered(assistant("own words, and more")), answered(SAID_IN_ADDS)], [OWN, MINE], {1: 1}),
        ([answered(MINE), answered(SAID_IN_ADDS)], [assistant("", calls=(LOOK,)), OWN], {1: 0}),
        ([answered(MINE)], [user("q"), MINE], {}),
        ([answered(SAID_IN_ADDS)], [], {}),
    ],
)
def test_answers_are_found_in_the_transcript(
    journal: list[JournalEntry], adds: list[Message], expected: dict[int, int]
) -> None:
    assert answer_places(journal, adds) == expected
