"""The audit of a task: every event in order, who caused it, what it cost, is it intact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from pydantic import Field

from holdfast.task.data.calls import Decided, Outcome
from holdfast.task.data.records import Entry, EventRecord, OpenState, StepRecord
from holdfast.task.happenings import (
    CallBegan,
    CallDone,
    CallFailed,
    HostedRan,
    InStep,
    MemoMade,
    ModelAnswered,
    ModelCutOff,
    Noted,
    OfCall,
    StepBegan,
    StepEnded,
    StepLeft,
    happenings,
)
from holdfast.task.ledger.recording import CREATED, cost_of
from holdfast.task.shown import ShownCall, ShownCalls
from holdfast.task.step_body import StepBody, StepCall
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
            before its answer, "running", "asked" before it begins, or "not run" when it never
            began. Of a model call also "cut off": it may have been under way, and what it cost is
            not known.
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


def _step_event(happening: InStep) -> AuditEvent | None:
    """Return the event for something that happened in a step; None when the audit has none."""
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


def _call_event(shown_call: ShownCall, happening: OfCall) -> AuditEvent:
    """Tell of a call by all that is known of it."""
    call, called = happening.call, happening.call.called
    outcome = call.outcome or Outcome(attempts=int(called is not None))
    decided = shown_call.decision or Decided(approval="")
    facts: dict[str, Json] = {"task": call.child} if call.child else {}
    if outcome.artifacts:
        facts["artifacts"] = [each.wire() for each in outcome.artifacts]
    if call.decided:
        facts["decided"] = [each.wire() for each in call.decided]
    event = _event(
        happening,
        "tool_call",
        outcome.took,
        actor="model",
        tool=call.call.name,
        call_id=call.call.id,
        effect=shown_call.effect,
        arguments=call.arguments,
        proposed=call.call.arguments if call.edited else "",
        approval=decided.approval,
        decision=decided.status,
        approver=decided.by,
        answered_by=_answered_by(call),
        result=call.result,
        status=shown_call.state,
        undo=UNDONE if shown_call.undone is not None else "remains" * shown_call.remains,
        undone_by=shown_call.undone.event.by if shown_call.undone is not None else "",
        attempts=outcome.attempts,
        worker=outcome.worker,
        body=facts,
    )
    if call.outcome is not None:
        return event
    times = (called.at, called.ended) if called is not None else (0.0, 0.0)
    return event.model_copy(update=dict(zip(("started", "ended"), times, strict=True)))


def _is_newest(happening: OfCall) -> bool:
    """Whether it is the newest that is known of its call: there is one event for each call."""
    call = happening.call
    match happening:
        case CallDone():
            return True
        case CallFailed():
            return call.outcome is None
        case CallBegan():
            return call.outcome is None and call.called is not None and not call.called.error
        case _:
            return call.newest is None


def _answered_by(call: StepCall) -> str:
    if call.decided and call.decided[-1].status == "responded":
        return call.decided[-1].by
    if call.child or call.newest is None:
        return call.child
    is_run = call.outcome is not None and call.outcome.worker and call.outcome.attempts
    return "tool" if is_run else "task"


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
    found = list(happenings(entries, opens))
    calls = {id(each.call): each for each in ShownCalls(found).calls}
    asked: dict[str, EventRecord] = {}
    made: list[AuditEvent | None] = []
    for each in found:
        match each:
            case OfCall(call=call):
                made.append(_call_event(calls[id(call)], each) if _is_newest(each) else None)
            case InStep():
                made.append(_step_event(each))
            case Noted(event=event):
                asked |= {str(event.body.get("id")): event} if event.kind == "asked" else {}
                made.append(_task_event(event, each.branch, asked))
    told = [each for each in made if each is not None]
    # A fork has the beginning of its original; its head has who made the fork.
    if asker and all(each.kind != "forked" for each in told):
        begun = {"actor": asker}
        told = [e.model_copy(update=begun) if e.kind == CREATED else e for e in told]
    told.sort(key=lambda event: event.time)  # steps are recorded at their end
    events = (*told, *now)
    return [_cut(_redacted(event, secrets) if secrets else event) for event in events]


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
