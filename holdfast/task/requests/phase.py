"""The phases of a task, the requests that are allowed in each, and what it does next.

An end that was accepted stays: from then on no step runs, also when closing fails. An undo comes
between steps; an end may cut it short, and nothing else does. `ALLOWED` has an answer for every
request in every phase: validators of updates and the handlers of signals read it, so that what a
person is refused in the command line is what a program is refused. After the phase, the rules of
the request itself may refuse it. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from holdfast.task import refusals
from holdfast.task.data.commands import RunRequest, UpdateRequest, misspelt
from holdfast.task.data.failures import CLOSING, Failure
from holdfast.task.data.records import OpenState
from holdfast.task.data.state import Carried, Closing
from holdfast.task.data.undo import ALL_BUT_THE_LAST, UndoRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import unmet
from holdfast.task.people import approvals
from holdfast.task.refusals import CLOSED, abandoned
from holdfast.task.requests.delivery import Pending, RunRequests, caller_of
from holdfast.task.tool_calls import awaits_children, ready_calls, verdict_of_calls
from holdfast.task.undo import outdated
from holdfast.values.base import pause_of
from holdfast.values.runs.status import TaskStatus
from holdfast.values.runs.verbs import VERBS, Verb
from holdfast.values.steps import TaskStep

LONGEST_PAUSE_SECONDS = 3600.0


class Ending:
    """The accepted end of a task. It is in the carried state, so that it survives rollovers.

    A task is open, is closing, or has failed to close ("stuck"): then closing is tried again after
    a pause, and by the next request or command; no step runs in between.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Keep the end in this ledger."""
        self._ledger = ledger

    @property
    def _wanted(self) -> Closing | None:
        return self._ledger.s.closing

    @property
    def status(self) -> TaskStatus | None:
        """The status with which the task must be closed; None while it is open."""
        closing = self._ledger.s.closing
        return closing.status if closing is not None else None

    @property
    def why(self) -> str:
        """Who ends it and why, for an end by a command."""
        return self._wanted.why if self._wanted is not None else ""

    @property
    def is_stuck(self) -> bool:
        """Whether closing has failed, and the next attempt is yet to come."""
        return self._wanted is not None and self._wanted.due > 0

    @property
    def due(self) -> float:
        """Time of the next attempt, seconds since the epoch; 0 for none."""
        closing = self._ledger.s.closing
        return closing.due if closing is not None else 0.0

    @property
    def failures(self) -> int:
        """How many attempts have failed."""
        return self._wanted.failures if self._wanted is not None else 0

    def begin(self, status: TaskStatus, why: str = "") -> None:
        """Accept an end; the one that was accepted first stays."""
        if self._wanted is None:
            self._ledger.s.closing = Closing(status=status, why=why)

    def abandon(self, why: str) -> None:
        """Accept an abandon; it also takes the place of another end that cannot be reached."""
        closing = self._wanted
        if closing is not None and self.is_stuck and closing.status != "abandoned":
            self._ledger.s.verdict = None
            closing.status, closing.why, closing.is_prepared = "abandoned", why, False
        self.begin("abandoned", why)
        self.try_again()

    def prepare(self) -> bool:
        """Return whether the work before the archive is still to be done; true only once."""
        closing = self._wanted
        if closing is None or closing.is_prepared:
            return False
        closing.is_prepared = True
        return True

    def failed(self, failure: Failure, *, now: float, pause: float) -> Failure:
        """Record that an attempt has failed; return the failure with which the task waits.

        Args:
            failure: Why.
            now: Time, seconds since the epoch.
            pause: Seconds until the first new attempt; each later pause is twice as long.
        """
        wait, closing = pause_of(self.failures, pause, LONGEST_PAUSE_SECONDS), self._wanted
        if closing is not None:
            closing.failures += 1
            closing.due = now + wait
        why = failure.message.rstrip(".")
        text = (
            f"The task will be {self._end}, but closing it failed: {why}. No step runs any more."
            " Closing is tried again from time to time, and at once by `resume` or by the same"
            " request."
        )
        return Failure(
            type=failure.type, message=text, remedy=failure.remedy, parks=True, data={CLOSING: True}
        )

    def try_again(self) -> None:
        """Let the next attempt to close begin now."""
        closing = self._wanted
        if closing is not None and self.is_stuck:
            closing.due = 0.0
            self._ledger.s.failure = None

    @property
    def _end(self) -> str:
        how = "ended by its verdict" if self.status == "failed" else str(self.status)
        return f"{how} ({self.why})" if self.why else how

    def refusal(self) -> Failure:
        """Return the refusal of other requests to a task that ends."""
        failure = self._ledger.s.failure
        if failure is None or not self.is_stuck:
            return CLOSED
        return Failure(type="CommandRefusedError", message=failure.message, remedy=failure.remedy)

    def failure(self) -> Failure | None:
        """Return the failure for requests that wait for the task's answer, once it has an end."""
        return abandoned(self.why) if self.status == "abandoned" else self._ledger.s.verdict


MOST_LANES = 64
"""Most steps of one task that are open at the same time; the rest of a round follows."""


class Agenda:
    """Says which steps can be begun, tried again or taken further, and whether an undo can.

    Attributes:
        calling: Numbers of the steps whose tool calls are being taken further: a pause does not
            hold these.
        requests: The requests that wait.
        holds_back: Whether no step may be begun, because commands must be read first.
    """

    def __init__(self, ledger: Ledger, requests: RunRequests) -> None:
        """Read this ledger and these requests."""
        self.calling: set[int] = set()
        self.holds_back = False
        self._ledger = ledger
        self.requests = requests

    @property
    def undo_goes(self) -> bool:
        """Whether an undo is in progress that is neither held nor waiting for a person."""
        undo = self._ledger.s.undo
        if undo is None or undo.mode == "held":
            return False
        return not approvals.undo_waits(self._ledger)

    @property
    def steps_go(self) -> bool:
        """Whether work for the steps, or for the end, can be done now."""
        s = self._ledger.s
        if s.verdict is not None or (self._ledger.given.finalize and self.finalizes):
            return True
        if s.described is None and self._ledger.failure is None:
            session = self._ledger.given.head.session
            starts_later = s.paused_until and session is not None and session.queues
            return not s.ahead and not starts_later  # its turn comes when it begins
        return self.retries or bool(self.next_steps()) or any(map(self.goes, s.opens))

    @property
    def finalizes(self) -> bool:
        """Whether the task has its answer; asked where it closes with it."""
        return self._ledger.s.answered and self._ledger.failure is None

    def goes(self, current: OpenState) -> bool:
        """Whether an open step can be taken further."""
        n = current.n
        if self._ledger.s.long_calls and self._ledger.has_long_call(n):
            return True
        if current.failure is not None or self._ledger.s.failure is not None:
            return False
        if current.outcomes and verdict_of_calls(current) is not None:
            return True
        if self._ledger.is_held(current):
            return n in self.calling
        s = self._ledger.s
        if not (s.approvals or s.children or current.waiting):
            return True  # it can wait for nothing
        waits = approvals.waits(self._ledger, n)
        waits = waits or (bool(s.children) and awaits_children(self._ledger, n))
        return not (waits or current.waiting) or bool(ready_calls(self._ledger, n, most=1))

    @property
    def retries(self) -> bool:
        """Whether a failure must be tried again, for a request or for the parent task."""
        if self._ledger.failure is None or self._ledger.paused:
            return False
        return self._ledger.s.tries_again or self.requests.ask_anew(self._ledger.owners)

    def _most_open(self) -> int:
        """Return how many steps may be open at the same time."""
        s, waiting = self._ledger.s, self.requests.waiting
        if waiting["round"]:
            return MOST_LANES
        if waiting["step"] or s.described is None or not s.automatic:
            return 1
        return min(s.described.parallel, MOST_LANES)

    def next_steps(self) -> tuple[TaskStep, ...]:
        """List the queued steps that must be begun now: for requests, or by the task itself."""
        s, ledger = self._ledger.s, self._ledger
        rounds, steps = self.requests.waiting["round"], self.requests.waiting["step"]
        wanted = rounds or steps or (s.automatic and not s.answered)
        if not wanted or not s.queue or self.holds_back or ledger.paused:
            return ()
        if s.opens and (s.lasts or len(s.opens) >= self._most_open()):
            return ()
        if ledger.failure is not None:
            return ()
        ready = ledger.queue.ready()
        known = s.delivery.rounds.get(rounds[0].id) if rounds else None
        return ready if known is None else tuple(r for r in ready if r.step_id in known)

    @property
    def new_round(self) -> Pending | None:
        """The first request for all ready steps at once, if it has no plan yet."""
        wanted = self.requests.waiting["round"][0]
        if wanted.id in self._ledger.s.delivery.rounds or self._ledger.failure is not None:
            return None
        return wanted if self.plan() else None

    def plan(self) -> tuple[TaskStep, ...]:
        """List the steps of a round that would begin now: those open without a request, and ready.

        A round waits for the join of last steps, which comes alone.
        """
        s = self._ledger.s
        free = tuple(current.open.step for current in s.opens if not current.owner)
        return free if s.lasts and s.opens else (*free, *self._ledger.queue.ready())

    def failed(self, step_id: str) -> OpenState | None:
        """Return the failed step that a request would try again; any, for an empty id."""
        for current in self._ledger.s.opens:
            if current.failure is not None and step_id in ("", current.open.step.step_id):
                return current
        return None


Phase = Literal["open", "undoing", "closing", "stuck", "closed"]
"""open: steps run, or wait for a person. undoing: steps are being undone, or an undo waits for a
person. closing: an end was accepted and is being carried out. stuck: closing has failed, and the
next attempt is yet to come. closed: the workflow ends."""

Update = Literal["run", "finalize", "undo"]
"""Requests that wait for their answer."""

Word = Literal["end", "hold", "undo_for", "run_for", "change"]
"""Orders of the parent task."""

Request = Update | Verb | Word

Answer = Literal["take", "join", "close", "busy_undo", "other_undo", "closed", "later", "no"]
"""take: by the rules of the request. join: it waits for the end in progress, if that is the end it
wants. close: the next attempt to close begins now. later: it counts if closing fails. no: it
changes nothing. busy_undo, other_undo and closed refuse it: for the undo in progress, for another
undo, for the end that was accepted."""

UPDATES: tuple[Update, ...] = get_args(Update)
WORDS: tuple[Word, ...] = get_args(Word)


def _row(usual: Answer, others: Mapping[Request, Answer] | None = None) -> dict[Request, Answer]:
    every: tuple[Request, ...] = (*UPDATES, *VERBS, *WORDS)
    return {**dict.fromkeys(every, usual), **(others or {})}


ALLOWED: Mapping[Phase, Mapping[Request, Answer]] = {
    "open": _row("take"),
    "undoing": _row(
        "take",
        {
            "finalize": "busy_undo",
            "undo": "other_undo",
            **{verb: "busy_undo" for verb, each in VERBS.items() if each.can_wait},
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
            "change": "later",
        },
    ),
    "stuck": _row(
        "closed",
        {
            "run": "close",
            "finalize": "close",
            **{verb: each.stuck for verb, each in VERBS.items()},
            "end": "close",
            "run_for": "close",
            "undo_for": "close",
            "hold": "no",
            "change": "no",
        },
    ),
    "closed": _row("closed", dict.fromkeys(WORDS, "no")),
}
"""Answer to every request in every phase."""


def phase_of(s: Carried, *, closed: bool = False) -> Phase:
    """Return the phase of a task.

    Args:
        s: Its state.
        closed: Whether it has been closed; only its last run knows that.
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
        undo_goes: Whether the undo in progress can go on now.
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


def unknown_fields(request: Update, asked: UpdateRequest) -> Failure:
    """Return why an update with fields that nothing reads is refused."""
    wrong = misspelt(request, asked.unknown, asked.fields())
    return Failure(type="InvalidArgumentError", message=wrong)


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
    refused = refused_by(answer, ending) if answer != "take" else None
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
    if ledger.given.parent is not None:
        is_further = asks_further(ledger, asked)
        heard = _heard_verdict(ledger) or (told_parent(ledger) if is_further else None)
        if heard is not None:
            return heard
    failed = agenda.failed(asked.step) if s.opens else None
    if asked.restart and (failed is None or approvals.waits(ledger, failed.n)):
        return refusals.NOT_FAILED
    if asked.changes and ledger.status == "waiting":
        is_own = bool(request_id) and request_id in ledger.owners
        if not is_own:
            return refusals.WAITS
    begun = failed is not None and (failed.journal or failed.result is not None)
    if begun and not asked.restart and asked.changes:
        return refusals.BEGUN
    refused = _refuse_step(ledger, asked.step) if asked.step else None
    if refused is not None:
        return refused
    if s.opens or s.delivery.undelivered or (s.answered and asked.all):
        return None
    if s.delivery.given and asked.attaches and agenda.requests.ungiven(caller_of(request_id)):
        return None
    # Nothing is in progress: a request for which nothing is ready could only wait.
    if asks_further(ledger, asked):
        return None
    if not s.queue:
        none = refusals.stalled("") if s.steps else refusals.DROPPED
        none = refusals.NO_STEPS if s.answered else none
        return none if asked.all else none.model_copy(update={"type": refusals.NO_STEPS.type})
    is_ready = s.described is None or ledger.queue.ready()
    return None if is_ready else refusals.none_ready(s.queue)


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
        return refusals.no_such_step(step_id, ledger.queue.upcoming())
    if queued not in ledger.queue.ready():
        pending = {step.step_id for step in ledger.queue.upcoming()}
        return refusals.not_ready(step_id, unmet(queued, pending))
    return None


def asks_further(ledger: Ledger, asked: RunRequest) -> bool:
    """Whether a request to run a step is a follow-up: it brings an input to an answered task.

    Or to a task whose first step a person has dropped.
    """
    is_new = asked.brings_input or bool(asked.images)
    s = ledger.s
    return is_new and not asked.all and not s.queue and (s.answered or not (s.steps or s.opens))


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
    found = told_parent(ledger) if ledger.given.parent is not None else None
    found = found or outdated(ledger, asked)
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
