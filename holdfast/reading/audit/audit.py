"""The audit of a task: every event in order, who caused it, what it cost, is it intact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from pydantic import Field

from holdfast.task.data.calls import Called, Decided, Outcome
from holdfast.task.data.records import Entry, EventRecord, OpenState, StepRecord, effect_place
from holdfast.task.happenings import (
    CallAsked,
    CallBegan,
    CallDone,
    CallFailed,
    CallUndone,
    Happening,
    HostedRan,
    InStep,
    MemoMade,
    ModelAnswered,
    ModelCutOff,
    OfCall,
    StepBegan,
    StepEnded,
    StepLeft,
    StepsUndone,
    happenings,
)
from holdfast.task.ledger.recording import CREATED, cost_of
from holdfast.task.step_body import StepBody
from holdfast.task.undo import UNDONE, active_steps
from holdfast.values.base import Json, Value, canonical, extend
from holdfast.values.checks.ids import time_in
from holdfast.values.messages import Dollars, Usage, shown
from holdfast.values.runs.verbs import DECIDED
from holdfast.values.text.redact import in_texts, without


class AuditEvent(Value):
    """One thing that happened.

    Attributes:
        time: Seconds since the epoch; of a call, the time at which it ended.
        sent: Of a person's verb: when it was sent, by the clock of the sender, if the task has read
            it later. While no worker is up, nothing reads it.
        kind: "created", "step", "model_call", "tool_call", "hosted_call" (a tool
            that the provider ran inside a model call), "memo", "asked", "command",
            "refused", "standing", "expired", "probed", "guardrail", "failed", "restarted", "limit",
            "undone", "effect_undone", "undo_failed", "undo_unknown", "forked", "withdrawn",
            "vote" (one of several needed approvals), "escalated", "closed", "blocked"
            (an attempt has failed, and another one will be made).
        actor: Who caused it: a person's name, "model", "task".
        verb: What a person asked for: the name of a signal, as "approve", or "undo".
        reason: Why, in words.
        step: Id of the step.
        branch: Branch of the ledger.
        tool: Tool name, or name of a memo.
        call_id: The model's id of the call.
        effect: Kind of the effect of the tool: "read", "irreversible", ...
        arguments: The arguments as they ran, JSON text; of a person's verb, what it said.
        proposed: The arguments as the model gave them, when a person changed them.
        approval: Id of the approval that the event is about. Of a call with several, this and the
            next two tell of the one that let it run, or else of the last; `body` has all.
        decision: What was decided: "approved", "rejected", "responded", "expired".
        approver: Who decided.
        answered_by: Where the result comes from: "tool", "provider" (its own tool), "task" (the
            call was not made, or no one knows), the name of the person who gave it, or the id of
            the task that the call was.
        result: The result, cut to 2,000 characters; longer ones are in the archive.
        status: How it ended. Of a step: "done", "last", "open" while it is in progress, "undone" or
            "restarted" when it was left before its end. Of a tool call: "done", "failed",
            "unknown" when it may have taken effect, "cut off" of the task of an agent that was left
            before its answer, "pending", or "not run" when it never began. Of a model call
            also "cut off": it may have been under way, and what it cost is not known.
        undo: Of a tool call whose step was left: "undone" when its effect was taken back, "remains"
            when it has, or may have, an effect that remains.
        undone_by: Who had it taken back.
        started: When it began; 0 when it is not known.
        ended: When it ended, likewise. Of calls, both are by the clock of their worker.
        attempts: How often it was started.
        worker: Identity of the worker that did it.
        tokens: Input and output tokens.
        cost: US dollars that the model calls cost, by the prices at that time; None when that is
            not known.
        digest: Digest of the transcript after a step.
        body: More facts.
    """

    time: float
    kind: str
    sent: float = 0.0
    actor: str = "task"
    verb: str = ""
    reason: str = ""
    step: str = ""
    branch: int = 0
    tool: str = ""
    call_id: str = ""
    effect: str = ""
    arguments: str = ""
    proposed: str = ""
    approval: str = ""
    decision: str = ""
    approver: str = ""
    answered_by: str = ""
    result: str = ""
    status: str = ""
    undo: str = ""
    undone_by: str = ""
    started: float = 0.0
    ended: float = 0.0
    attempts: int = 0
    worker: str = ""
    tokens: int = 0
    cost: Dollars | None = None
    digest: str = ""
    body: dict[str, Json] = Field(default_factory=dict)

    @property
    def child(self) -> str:
        """Id of the task that a tool call was; empty if it was none."""
        return str(self.body.get("task", "")) if self.kind == "tool_call" else ""


def step_event(happening: InStep) -> AuditEvent | None:
    """Return the event for something that happened in a step; None when the audit has none.

    A call has one event, with the newest state that is known of it.
    """
    match happening:
        case StepBegan(body=body) if body.status == "open":
            opened = _event(happening, "step", status="open", **_facts_of_open(body))
            return opened.model_copy(update={"ended": 0.0})
        case ModelAnswered():
            return _answer_event(happening)
        case ModelCutOff(at=began):
            cut = _event(happening, "model_call", actor="model", status="cut off")
            return cut.model_copy(update={"started": began, "ended": 0.0})
        case HostedRan(call=call):
            facts: dict[str, Json] = {
                "tool": call.tool,
                "call_id": call.id,
                "arguments": call.arguments,
                "result": call.result,
                "status": "failed" if call.is_error else "done",
                "answered_by": "provider",
            }
            return _event(happening, "hosted_call", actor="model", **facts)
        case MemoMade():
            return _memo_event(happening)
        case OfCall():
            return _newest_of_call(happening)
        case StepEnded(body=body):
            took = body.ended - body.started
            facts = {"status": body.status, "digest": body.digest, **_cost(body.usage)}
            more = {"n": body.n, "started": body.started, "conflicts": list(body.conflicts)}
            return _event(happening, "step", took, **facts, body=more)
        case StepLeft(body=body):
            took = body.ended - body.started
            return _event(happening, "step", took, status=body.status, **_facts_of_open(body))
        case _:
            return None


def _event(happening: InStep, kind: str, took: float = 0.0, **fields: Json) -> AuditEvent:
    """Make an event of a step; a worker's clock moves none out of the step's time."""
    at, body = happening.at, happening.body
    return AuditEvent.model_validate(
        {
            "time": happening.time,
            "kind": kind,
            "step": body.step.step_id,
            "branch": body.branch,
            "started": round(max(at - took, 0), 3) if took or at else 0.0,
            "ended": at,
            **fields,
        }
    )


def _facts_of_open(body: StepBody) -> dict[str, Json]:
    more: dict[str, Json] = {"n": body.n}
    if body.failure is not None:
        more["failure"] = f"{body.failure.type}: {body.failure.text}"
    return {**_cost(body.usage), "body": more}


def _cost(usage: Usage) -> dict[str, Json]:
    """Return the tokens and the dollars of model calls; unknown costs are left out."""
    is_known = usage.requests > 0 and usage.cost is not None
    return {"tokens": usage.total_tokens, "cost": usage.cost if is_known else None}


def _answer_event(happening: ModelAnswered) -> AuditEvent:
    """Return the event of a model call; the answer of a completed step is in the transcript."""
    answer, part = happening.answer, happening.part
    is_said = part.at is not None and happening.body.is_completed
    more: dict[str, Json] = {"model": answer.model, "response_id": answer.response_id}
    if answer.prices:
        more["prices"] = answer.prices
    if answer.tried:
        more["tried"] = list(answer.tried)
    return _event(
        happening,
        "model_call",
        answer.took,
        actor="model",
        **_cost(cost_of(answer)),
        result="" if is_said else shown(answer.message.content),
        status=answer.finish,
        body=more,
        attempts=part.entry.attempts,
        worker=part.entry.worker,
    )


def _memo_event(happening: MemoMade) -> AuditEvent:
    entry, memo = happening.entry, happening.memo
    made = memo.stored or canonical(memo.output).decode("utf-8", "surrogatepass")
    stamp: dict[str, Json] = {"attempts": entry.attempts, "worker": entry.worker}
    return _event(happening, "memo", tool=entry.name, result=shown(made), **stamp)


def _newest_of_call(happening: OfCall) -> AuditEvent | None:
    """Tell of a call by the newest that is known of it."""
    call, called = happening.call, happening.call.called
    match happening:
        case CallDone(outcome=outcome):
            return _call_event(happening, outcome)
        case CallFailed() if called is not None:
            return _begun_event(happening, called, "failed")
        case CallBegan() if called is not None and not called.error:
            over = "cut off" if called.child else "unknown"
            return _begun_event(happening, called, over if happening.body.is_over else "pending")
        case CallAsked() if call.outcome is None and called is None:
            status = "not run" if happening.body.is_over else "pending"
            made = call.call
            what: dict[str, Json] = {
                "tool": made.name,
                "call_id": made.id,
                "arguments": made.arguments,
            }
            event = _event(happening, "tool_call", actor="model", status=status, **what)
            return event.model_copy(update={"started": 0.0, "ended": 0.0})
        case _:
            return None


def _begun_event(happening: OfCall, called: Called, status: str) -> AuditEvent:
    """Tell of a call that was begun and has no outcome."""
    outcome = Outcome(
        content=called.error,
        is_error=True,
        status="failed" if called.error else "unknown",
        edited=called.edited,
        child=called.child,
        effect=called.effect,
        decided=called.decided,
    )
    times = {"started": called.at, "ended": called.ended}
    return _call_event(happening, outcome).model_copy(update={"status": status, **times})


def _call_event(happening: OfCall, outcome: Outcome) -> AuditEvent:
    """Tell of a call with what became of it."""
    call = happening.call.call
    last = outcome.decided[-1] if outcome.decided else Decided(approval="")
    # Who said afterwards what had happened has not let it run.
    let = [each for each in outcome.decided if each.status == "approved"]
    decided = let[-1] if let else last
    facts: dict[str, Json] = {"task": outcome.child} if outcome.child else {}
    if outcome.artifacts:
        facts["artifacts"] = [each.wire() for each in outcome.artifacts]
    if outcome.decided:
        facts["decided"] = [each.wire() for each in outcome.decided]
    return _event(
        happening,
        "tool_call",
        outcome.took,
        actor="model",
        tool=call.name,
        call_id=call.id,
        effect=outcome.effect,
        arguments=outcome.edited or call.arguments,
        proposed=call.arguments if outcome.edited else "",
        approval=decided.approval,
        decision=decided.status,
        approver=decided.by,
        answered_by=_answered_by(outcome, last),
        result=shown(outcome.content),
        status=outcome.status,
        attempts=outcome.attempts,
        worker=outcome.worker,
        body=facts,
    )


def _answered_by(outcome: Outcome, decided: Decided) -> str:
    if decided.status == "responded":
        return decided.by
    if outcome.child:
        return outcome.child
    return "tool" if outcome.worker and outcome.attempts else "task"


class CallPlace(NamedTuple):
    """A tool call in the audit.

    Attributes:
        at: Position of its event.
        key: Names its place in the task, as undos do.
        n: Ordinal of its step; 0 of one that has none.
        task: Id of the call's child task, or empty.
    """

    at: int
    key: str
    n: int
    task: str


class Undos:
    """Finds the calls that undos concern: of completed steps before the undo, of others after it.

    A step that runs again makes calls at the places of its earlier calls, so a place names a call
    of the step as it is at that time.
    """

    def __init__(self) -> None:
        """Begin with no call and no undo."""
        self._done: dict[str, CallPlace] = {}
        self._waiting: dict[str, str] = {}

    def call(self, place: CallPlace, events: list[AuditEvent]) -> None:
        """Remember a call, and mark its event if an undo before it took its effect back."""
        for key in filter(None, (place.key, place.task)):
            if key in self._waiting:
                _mark_undone(events, place.at, self._waiting.pop(key))
            if place.n:
                self._done[key] = place

    def taken_back(self, undone: CallUndone, events: list[AuditEvent]) -> None:
        """Mark a call's event: its effect was taken back."""
        by = undone.event.by
        if undone.place in self._done:
            _mark_undone(events, self._done[undone.place].at, by)
        else:
            self._waiting[undone.place] = by

    def left(self, n: int, events: list[AuditEvent]) -> None:
        """Mark the calls of completed steps, from an ordinal on, that an undo has left."""
        for place in self._done.values():
            if place.n >= n and not events[place.at].undo:
                self.remains(place.at, events)
        self._done = {key: place for key, place in self._done.items() if place.n < n}

    def remains(self, at: int, events: list[AuditEvent]) -> None:
        """Mark a call that an undo has left if it has, or may have, an effect that remains."""
        event = events[at]
        # One of unknown outcome counts, because it may have been made.
        has_run = event.status == "unknown" or (event.status == "done" and event.attempts > 0)
        if event.effect != "read" and has_run:
            events[at] = event.model_copy(update={"undo": "remains"})


def _mark_undone(events: list[AuditEvent], at: int, by: str) -> None:
    events[at] = events[at].model_copy(update={"undo": UNDONE, "undone_by": by})


__all__ = ["AuditEvent", "Finding", "audit_events", "verify"]


class Finding(Value):
    """A place where the record is not intact.

    Attributes:
        step: Id of the step.
        branch: Its branch.
        text: What is wrong.
    """

    step: str
    branch: int
    text: str


LONGEST_RESULT = 2000


def audit_events(
    entries: Iterable[Entry],
    secrets: Sequence[str] = (),
    *,
    opens: Iterable[OpenState] = (),
    now: Iterable[AuditEvent] = (),
    asker: str = "",
) -> list[AuditEvent]:
    """Return the events of a ledger, oldest first.

    Args:
        entries: The ledger.
        secrets: Texts that are replaced wherever they occur.
        opens: The steps in progress, now or when the task ended.
        now: Events that no ledger has, the last ones.
        asker: Who created the task, as its head says; empty for unknown.
    """
    made = _Events()
    for happening in happenings(entries, opens):
        made.take(happening)
    # A fork has the beginning of its original; its head has who made the fork.
    if asker and all(each.kind != "forked" for each in made.events):
        begun = {"actor": asker}
        made.events = [e.model_copy(update=begun) if e.kind == CREATED else e for e in made.events]
    made.events.sort(key=lambda event: event.time)  # steps are recorded at their end
    events = (*made.events, *now)
    return [_cut(_redacted(event, secrets) if secrets else event) for event in events]


class _Events:
    """Makes the events of a task, in the order of its ledger.

    Attributes:
        events: The events so far.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.events: list[AuditEvent] = []
        self._asked: dict[str, EventRecord] = {}
        self._undos = Undos()

    def take(self, happening: Happening) -> None:
        """Add the event of something that happened, and mark the calls that an undo concerns."""
        if isinstance(happening, InStep):
            event = step_event(happening)
            self.events += [event] if event is not None else []
            if event is not None and isinstance(happening, OfCall):
                self._called(happening)
            return
        event_ = happening.event
        if event_.kind == "asked":
            self._asked[str(event_.body.get("id"))] = event_
        self.events.append(_task_event(event_, happening.branch, self._asked))
        if isinstance(happening, CallUndone):
            self._undos.taken_back(happening, self.events)
        elif isinstance(happening, StepsUndone):
            self._undos.left(happening.first, self.events)

    def _called(self, happening: OfCall) -> None:
        """Match the call whose event was added last with the undos."""
        body, call, at = happening.body, happening.call, len(self.events) - 1
        key = effect_place(body.branch, body.key, call.batch, call.i)
        child = str(self.events[at].body.get("task", ""))
        self._undos.call(CallPlace(at, key, body.n if body.is_completed else 0, child), self.events)
        if body.status == UNDONE and not self.events[at].undo:
            self._undos.remains(at, self.events)


def verify(entries: Iterable[Entry]) -> list[Finding]:
    """Compute the digest chain again; return where it does not fit, oldest first.

    Each step is checked against what the one before it on its branch left, so that a change shows
    at the first step that it touches.
    """
    findings: list[Finding] = []
    seen: list[Entry] = []
    for entry in entries:
        record = entry.step
        if record is not None:
            found = _check(record, active_steps(seen))
            if found:
                findings.append(Finding(step=record.step.step_id, branch=record.branch, text=found))
        seen.append(entry)
    return findings


def _check(record: StepRecord, path: Sequence[StepRecord]) -> str:
    before = path[-1].digest if path else ""
    if record.n != len(path) + 1:
        return f"it is number {record.n}, but {len(path)} steps precede it"
    if record.before.transcript.digest != before:
        return "it did not begin where the step before it ended"
    if extend(before, record.adds) != record.digest:
        return "its messages do not give its digest"
    return ""


READ_SECONDS = 3.0
"""A command that waited longer for a worker process has two times in the audit."""

LONGEST_WAIT = 365 * 86_400.0
"""How far back an id may say that it was made."""

ABOUT_APPROVALS = ("asked", "expired", "withdrawn", "standing", "escalated")


def _task_event(event: EventRecord, branch: int, asked: Mapping[str, EventRecord]) -> AuditEvent:
    body = event.body
    given = body.get("arguments")
    said: dict[str, Json] = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
    approval = str(body.get("id" if event.kind in ABOUT_APPROVALS else "", ""))
    approval = approval or str(said.get("approval", ""))
    about: dict[str, Json] = asked[approval].body if approval in asked else {}
    verb = str(body.get("verb", "")) or ("undo" if "undo" in event.kind and event.by else "")
    is_refused = event.kind == "refused"
    decision = "expired" if event.kind == "expired" else DECIDED.get(verb, "")
    if is_refused or event.kind == "vote" or not approval:
        decision = ""
    status = "applied" if event.kind in ("command", "vote") else str(body.get("status", ""))
    return AuditEvent(
        time=event.at,
        sent=_sent(event),
        kind=event.kind,
        actor=event.by or "task",
        verb=verb,
        reason=event.text,
        step=str(body.get("step", about.get("step", ""))),
        tool=str(body.get("tool", about.get("tool", ""))),
        call_id=str(body.get("call_id", about.get("call_id", ""))),
        approval=approval,
        decision=decision,
        approver=event.by if decision else "",
        arguments=_text(body.get("arguments", "")),
        status="refused" if is_refused else status,
        branch=int(body.get("branch", branch)),
        body=body,
    )


def _sent(event: EventRecord) -> float:
    """Return when a command was sent; 0 if it was read at once, or has an id of another kind."""
    is_command = event.kind in ("command", "vote", "refused") and "verb" in event.body
    at = time_in(str(event.body.get("id", ""))) if is_command else 0.0
    return at if at and READ_SECONDS < event.at - at < LONGEST_WAIT else 0.0


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _cut(event: AuditEvent) -> AuditEvent:
    """Shorten a result; last, so that no cut hides half a secret from its redaction."""
    if len(event.result) <= LONGEST_RESULT:
        return event
    return event.model_copy(update={"result": event.result[:LONGEST_RESULT]})


def _redacted(event: AuditEvent, secrets: Sequence[str]) -> AuditEvent:
    return AuditEvent.model_validate(in_texts(event.model_dump(), without(secrets)))
