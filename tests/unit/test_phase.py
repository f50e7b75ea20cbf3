"""The table of phases: every request in every phase, and what the main loop does next."""

import itertools

import pytest

from holdfast.task.data.state import Carried, Closing
from holdfast.task.data.undo import UndoRequest, UndoState
from holdfast.task.requests.phase import (
    ALLOWED,
    UPDATES,
    WORDS,
    Answer,
    Next,
    Phase,
    Request,
    decide,
    phase_of,
)
from holdfast.values.runs.verbs import VERBS

# One row for each request: open, undoing, closing, stuck, closed.
TABLE: dict[Request, tuple[Answer, Answer, Answer, Answer, Answer]] = {
    "run": ("take", "take", "closed", "close", "closed"),
    "finalize": ("take", "busy_undo", "join", "close", "closed"),
    "undo": ("take", "other_undo", "closed", "closed", "closed"),
    "abandon": ("take", "take", "closed", "take", "closed"),
    "resume": ("take", "take", "closed", "close", "closed"),
    "pause": ("take", "take", "closed", "closed", "closed"),
    "approve": ("take", "take", "closed", "closed", "closed"),
    "reject": ("take", "take", "closed", "closed", "closed"),
    "respond": ("take", "take", "closed", "closed", "closed"),
    "snooze": ("take", "take", "closed", "closed", "closed"),
    "uncover": ("take", "take", "closed", "closed", "closed"),
    "revoke": ("take", "take", "closed", "closed", "closed"),
    "feedback": ("take", "busy_undo", "closed", "closed", "closed"),
    "edit_step": ("take", "busy_undo", "closed", "closed", "closed"),
    "drop_step": ("take", "busy_undo", "closed", "closed", "closed"),
    "wake": ("take", "busy_undo", "closed", "closed", "closed"),
    "complete": ("take", "busy_undo", "closed", "closed", "closed"),
    "configure": ("take", "take", "closed", "closed", "closed"),
    "end": ("take", "take", "later", "close", "no"),
    "hold": ("take", "take", "later", "no", "no"),
    "undo_for": ("take", "take", "later", "close", "no"),
    "run_for": ("take", "take", "later", "close", "no"),
    "change": ("take", "take", "later", "no", "no"),
}
PHASES: tuple[Phase, ...] = ("open", "undoing", "closing", "stuck", "closed")
ROWS = [
    (phase, request, answers[k])
    for request, answers in TABLE.items()
    for k, phase in enumerate(PHASES)
]


@pytest.mark.parametrize(("phase", "request_", "answer"), ROWS)
def test_a_request_in_a_phase(phase: Phase, request_: Request, answer: Answer) -> None:
    assert ALLOWED[phase][request_] == answer


def test_every_request_has_a_row() -> None:
    assert set(TABLE) == {*UPDATES, *VERBS, *WORDS}
    assert set(ALLOWED) == set(PHASES)
    assert all(set(answers) == set(TABLE) for answers in ALLOWED.values())


UNDO = UndoState(asked=UndoRequest())
STATES: list[tuple[Carried, bool, Phase]] = [
    (Carried(), False, "open"),
    (Carried(undo=UNDO), False, "undoing"),
    (Carried(closing=Closing(status="finished")), False, "closing"),
    (Carried(closing=Closing(status="finished", due=1.0)), False, "stuck"),
    (Carried(undo=UNDO, closing=Closing(status="abandoned")), False, "closing"),
    (Carried(undo=UNDO, closing=Closing(status="abandoned", due=1.0)), False, "stuck"),
    (Carried(closing=Closing(status="finished")), True, "closed"),
]


@pytest.mark.parametrize(("state", "closed", "phase"), STATES)
def test_the_phase_of_a_state(state: Carried, closed: bool, phase: Phase) -> None:
    assert phase_of(state, closed=closed) == phase


# phase: (undo goes, steps go, rolls) to what is next; None stands for either.
DECISIONS: list[tuple[Phase, bool | None, bool | None, bool | None, Next]] = [
    ("closed", None, None, None, "end"),
    ("closing", None, None, None, "close"),
    ("stuck", None, None, True, "roll"),
    ("stuck", None, None, False, "wait"),
    ("undoing", True, None, None, "undo"),
    ("undoing", False, None, True, "roll"),
    ("undoing", False, None, False, "wait"),
    ("open", None, None, True, "roll"),
    ("open", None, True, False, "steps"),
    ("open", None, False, False, "wait"),
]


@pytest.mark.parametrize(
    ("phase", "undo_goes", "steps_go", "rolls"),
    list(itertools.product(PHASES, *[(False, True)] * 3)),
)
def test_what_is_next(phase: Phase, undo_goes: bool, steps_go: bool, rolls: bool) -> None:
    given = (undo_goes, steps_go, rolls)
    fits = [
        row[4]
        for row in DECISIONS
        if row[0] == phase and all(w in (None, g) for w, g in zip(row[1:4], given, strict=True))
    ]
    assert [decide(phase, undo_goes=undo_goes, steps_go=steps_go, rolls=rolls)] == fits
