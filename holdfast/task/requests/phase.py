"""The phases of a task, what may be asked of it in each, and what it does next.

An end that was accepted stays: from then on no step runs, also when closing fails. An undo comes
between steps; an end may cut it short, and nothing else does. `ALLOWED` has an answer for every
request in every phase: validators of updates and the handlers of signals read it, so that what a
person is refused in the command line is what a program is refused. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from holdfast.task.data.commands import Verb
from holdfast.task.data.state import Carried

Phase = Literal["open", "undoing", "closing", "stuck", "closed"]
"""open: steps run, or wait for somebody. undoing: steps are being undone, or an undo waits for a
person. closing: an end was accepted and is being carried out. stuck: closing has failed, and the
next attempt is yet to come. closed: the workflow ends."""

Update = Literal["run", "finalize", "undo"]
"""Requests that wait for their answer."""

Word = Literal["end", "hold", "undo_for", "run_for"]
"""What the task that this one works for asks of it."""

Request = Update | Verb | Word

Answer = Literal["take", "join", "close", "busy_undo", "other_undo", "closed", "later", "no"]
"""take: by the rules of the request. join: it waits for the end that is on its way, if that is the
end it wants. close: the next attempt to close begins now. later: it counts if closing fails. no: it
changes nothing. busy_undo, other_undo and closed refuse it: for the undo in progress, for another
undo, for the end that was accepted."""

UPDATES: tuple[Update, ...] = get_args(Update)
VERBS: tuple[Verb, ...] = get_args(Verb)
WORDS: tuple[Word, ...] = get_args(Word)


def _row(usual: Answer, others: Mapping[Request, Answer] | None = None) -> dict[Request, Answer]:
    every: tuple[Request, ...] = (*UPDATES, *VERBS, *WORDS)
    return {**dict.fromkeys(every, usual), **(others or {})}


ALLOWED: Mapping[Phase, Mapping[Request, Answer]] = {
    "open": _row("take"),
    # What an undo would take back with the steps, unseen, is refused meanwhile.
    "undoing": _row(
        "take",
        {
            "finalize": "busy_undo",
            "undo": "other_undo",
            "feedback": "busy_undo",
            "edit_step": "busy_undo",
            "drop_step": "busy_undo",
        },
    ),
    "closing": _row(
        "closed",
        {
            "finalize": "join",
            "end": "later",
            "hold": "later",
            "undo_for": "later",
            "run_for": "later",
        },
    ),
    "stuck": _row(
        "closed",
        {
            "run": "close",
            "finalize": "close",
            "abandon": "take",
            "resume": "close",
            "end": "close",
            "run_for": "close",
            "undo_for": "close",
            "hold": "no",
        },
    ),
    "closed": _row("closed", {"end": "no", "hold": "no", "undo_for": "no", "run_for": "no"}),
}
"""What becomes of every request in every phase."""


def phase_of(s: Carried, *, closed: bool = False) -> Phase:
    """Return the phase of a task.

    Args:
        s: Its state.
        closed: Whether it has been closed, which its last run knows alone.
    """
    if closed:
        return "closed"
    if s.closing is not None:
        return "stuck" if s.closing.due > 0 else "closing"
    return "undoing" if s.undo is not None else "open"


Next = Literal["end", "close", "undo", "roll", "steps", "wait"]
"""What the main loop does: end the workflow, close the task, take the undo further, continue as
new, take steps further, or wait for news."""


def decide(phase: Phase, *, undo_goes: bool, steps_go: bool, rolls: bool) -> Next:
    """Return what a task does next.

    An undo in progress is taken as far as it goes before the task continues as new, and steps are
    not begun when it is about to.

    Args:
        phase: The task's phase.
        undo_goes: Whether the undo in progress waits for nobody.
        steps_go: Whether a step can be begun or taken further.
        rolls: Whether the task is to continue as new.
    """
    match phase:
        case "closed":
            return "end"
        case "closing":
            return "close"
        case "stuck":
            return "roll" if rolls else "wait"
        case "undoing" if undo_goes:
            return "undo"
        case "undoing":
            return "roll" if rolls else "wait"
        case "open" if rolls:
            return "roll"
        case "open":
            return "steps" if steps_go else "wait"
