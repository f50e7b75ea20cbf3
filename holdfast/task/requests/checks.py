"""Why a request is refused: first by the task's phase, then by the rules of the request. Pure."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.task import refusals
from holdfast.task.data.commands import RunRequest, UpdateRequest, misspelt
from holdfast.task.data.failures import Failure
from holdfast.task.data.undo import ALL_BUT_THE_LAST, UndoRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import unmet
from holdfast.task.people import approvals
from holdfast.task.requests.phase import ALLOWED, Agenda, Answer, Ending, Phase, Update
from holdfast.task.requests.run_requests import caller_of
from holdfast.task.undo import outdated

NOT_LAST = "finalize_response can only be called on the last step output"
"""As LlamaIndex says it."""

MOST_NAMED = 5


def refused_by(answer: Answer, ending: Ending) -> Failure | None:
    """Return the failure with which a phase refuses a request; None when it does not.

    Args:
        answer: The table's answer to the request.
        ending: The end of the task, as far as one was accepted.
    """
    match answer:
        case "busy_undo":
            return refusals.UNDOING
        case "other_undo":
            return refusals.UNDO_RUNS
        case "join" if ending.status != "finished":
            return ending.refusal()
        case "closed":
            return ending.refusal()
        case _:
            return None


def refuse_unknown(request: Update, asked: UpdateRequest) -> Failure | None:
    """Return why an update with fields that nothing reads is refused."""
    wrong = misspelt(request, asked.unknown, asked.fields())
    return Failure(type="InvalidArgumentError", message=wrong) if wrong else None


def refuse_update(
    request: Update, phase: Phase, ending: Ending, *, moves: bool, is_reading: bool
) -> Failure | None:
    """Return why an update cannot be taken in the phase that the task is in.

    Args:
        request: The update.
        phase: The phase.
        ending: The end of the task, as far as one was accepted.
        moves: Whether the task is about to continue as new: the next run takes the update.
        is_reading: Whether commands wait that came before the update.
    """
    if moves:
        return refusals.DRAINING
    answer = ALLOWED[phase][request]
    refused = refused_by(answer, ending)
    if refused is not None:
        return refused
    return refusals.BUSY if is_reading and answer not in ("join", "close") else None


def refuse_run(
    ledger: Ledger, agenda: Agenda, asked: RunRequest, request_id: str
) -> Failure | None:
    """Return why a request to run steps cannot be served by an open task.

    Args:
        ledger: The task.
        agenda: What it can do.
        asked: The request.
        request_id: Its id, by which a step in progress may be its own.
    """
    s = ledger.s
    heard = _heard_verdict(ledger) or (told_parent(ledger) if asks_further(ledger, asked) else None)
    if heard is not None:
        return heard
    failed = agenda.failed(asked.step)
    if asked.restart and (failed is None or approvals.waits(ledger, failed.n)):
        return refusals.NOT_FAILED
    is_own = bool(request_id) and request_id in {current.owner for current in s.opens}
    if ledger.status == "waiting" and asked.changes and not is_own:
        return refusals.WAITS
    begun = failed is not None and (failed.journal or failed.result is not None)
    if begun and not asked.restart and asked.changes:
        return refusals.BEGUN
    refused = _refuse_step(ledger, asked.step) if asked.step else None
    if refused is not None:
        return refused
    is_there = bool(s.undelivered or (asked.attaches and ledger.ungiven(caller_of(request_id))))
    if not s.opens and not is_there and not (s.answered and asked.all):
        return _refuse_idle(ledger, asked)
    return None


def step_of_others(ledger: Ledger, caller: str, joined: Collection[int]) -> int:
    """Return the open step, begun for another caller, whose output a caller is to get; 0 for none.

    A caller that was killed in a step and starts again is another one to the task.

    Args:
        ledger: The task.
        caller: The caller; empty for one that names its requests itself.
        joined: Numbers of the steps whose outputs it waits for already.
    """
    for current in ledger.s.opens:
        owner = caller_of(current.owner)
        is_running = current.failure is None and current.n not in joined
        if caller and owner and owner != caller and is_running:
            return current.n
    return 0


def _heard_verdict(ledger: Ledger) -> Failure | None:
    """Return the verdict of a child task whose parent has recorded it as the call's outcome."""
    failure = ledger.failure
    if ledger.given.parent is None or ledger.s.verdict is not None:
        return None
    return failure if refusals.is_verdict(failure) else None


def _refuse_step(ledger: Ledger, step_id: str) -> Failure | None:
    """Refuse a step that is not there or not ready, or that would run before a failed one."""
    failed = [current.open.step.step_id for current in ledger.failed]
    if failed:
        return None if step_id in failed else refusals.other_failed(failed[0])
    queued = next((step for step in ledger.s.queue if step.step_id == step_id), None)
    if queued is None:
        return refusals.no_such_step(step_id, ledger.upcoming())
    if queued not in ledger.ready():
        pending = {step.step_id for step in ledger.upcoming()}
        return refusals.not_ready(step_id, unmet(queued, pending))
    return None


def _refuse_idle(ledger: Ledger, asked: RunRequest) -> Failure | None:
    """Refuse a request that could only wait: nothing is in progress, and nothing is ready."""
    queue = ledger.s.queue
    if asks_further(ledger, asked):
        return None
    if not queue:
        ended = refusals.NO_STEPS if ledger.s.answered else refusals.NONE_FOLLOWED
        return refusals.stalled("") if asked.all else ended
    if not ledger.ready() and ledger.s.described is not None:
        return refusals.none_ready(queue)
    return None


def asks_further(ledger: Ledger, asked: RunRequest) -> bool:
    """Whether a request to run a step is a follow-up: it brings an input to an answered task."""
    is_new = asked.brings_input or bool(asked.images)
    return is_new and not asked.all and ledger.s.answered and not ledger.s.queue


def refuse_finalize(ledger: Ledger) -> Failure | None:
    """Return why an open task cannot be finalized."""
    if ledger.s.answered:
        return None
    asked = approvals.asked_everywhere(ledger)[:MOST_NAMED]
    named = ", ".join(f"{each.id!r} ({each.tool or each.kind})" for each in asked)
    why = f"a person is to decide {named}" if asked else "run_task runs it"
    text = f"{NOT_LAST}: the task has no answer yet, {why}."
    return Failure(type="InvalidArgumentError", message=text)


def refuse_undo(ledger: Ledger, asked: UndoRequest) -> Failure | None:
    """Return why an open task cannot be taken back to where a request wants it."""
    s = ledger.s
    if asked.to < ALL_BUT_THE_LAST:
        return refusals.NO_ORDINAL
    if not s.opens and not s.steps:
        return refusals.NOTHING_DONE
    found = told_parent(ledger) or outdated(ledger, asked)
    if found is not None:
        return found
    if asked.to > s.steps or (asked.to == s.steps and not s.opens):
        return refusals.NOTHING_AFTER
    if s.fork is not None and last_kept(ledger, asked) < s.fork.n:
        return refusals.of_another(s.fork)
    return None


def told_parent(ledger: Ledger) -> Failure | None:
    """Return why a child task stays as it is: its parent has its answer."""
    parent = ledger.given.parent
    is_told = parent is not None and ledger.s.answered
    return refusals.answered_parent(parent.task) if parent is not None and is_told else None


def last_kept(ledger: Ledger, asked: UndoRequest) -> int:
    """Return the ordinal of the last step that an undo keeps."""
    return asked.to if asked.to >= 0 else ledger.s.steps - (0 if ledger.s.opens else 1)
