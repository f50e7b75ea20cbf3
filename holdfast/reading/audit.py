"""The audit of a task: every event in order, who caused it, what it cost, is it intact."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from pydantic import Field

from holdfast.task.data.records import (
    Decided,
    Entry,
    EventRecord,
    JournalEntry,
    OpenState,
    Outcome,
    StepRecord,
)
from holdfast.task.references import told, usage_of
from holdfast.task.undo import active_steps
from holdfast.values.base import Json, Value, canonical
from holdfast.values.hash_chain import extend
from holdfast.values.messages import Message, ToolCall, shown
from holdfast.values.text.redact import REDACTED


class AuditEvent(Value):
    """One thing that happened.

    Attributes:
        time: Seconds since the epoch; of a call, the time at which it ended.
        kind: "created", "step", "model_call", "tool_call", "memo", "asked", "command",
            "refused", "standing", "expired", "probed", "guardrail", "failed", "restarted", "limit",
            "undone", "effect_undone", "undo_failed", "forked", "withdrawn", "closed".
        actor: Who caused it: a person's name, "model", "task".
        verb: What a person asked for: "approve", "reject", "respond", "feedback", "edit_step",
            "drop_step", "pause", "resume", "abandon", "undo".
        reason: Why, in words.
        step: Id of the step.
        branch: Branch of the ledger.
        tool: Tool name, or name of a memo.
        call_id: The model's id of the call.
        effect: What a call of the tool does to the world: "read", "irreversible", ...
        arguments: The arguments as they ran, JSON text; of a person's verb, what it said.
        proposed: The arguments as the model gave them, when a person changed them.
        approval: Id of the approval that the event is about.
        decision: What was decided: "approved", "rejected", "responded", "expired".
        approver: Who decided.
        answered_by: Where the result comes from: "tool", "task" (the call was not made, or nobody
            knows), the name of the person who gave it, or the id of the task that the call was.
        result: The result, cut to 2,000 characters; longer ones are in the archive.
        status: How it ended; of a step in progress and its calls: "open", "pending", "not run".
        started: When it began; 0 when it is not known.
        ended: When it ended, likewise. Of calls, both are by the clock of their worker.
        attempts: How often it was started.
        worker: Identity of the worker that did it.
        tokens: Input and output tokens.
        digest: Digest of the transcript after a step.
        body: More facts.
    """

    time: float
    kind: str
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
    started: float = 0.0
    ended: float = 0.0
    attempts: int = 0
    worker: str = ""
    tokens: int = 0
    digest: str = ""
    body: dict[str, Json] = Field(default_factory=dict)


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
    entries: Iterable[Entry], secrets: Sequence[str] = (), *, opens: Iterable[OpenState] = ()
) -> list[AuditEvent]:
    """Tell a ledger as events, oldest first.

    Args:
        entries: The ledger.
        secrets: Texts that are replaced wherever they occur.
        opens: The steps in progress, or those that were when the task ended.
    """
    events: list[AuditEvent] = []
    asked: dict[str, EventRecord] = {}
    branch, is_closed = 0, False
    for entry in entries:
        if entry.step is not None:
            branch = entry.step.branch
            events.extend(_step_events(entry.step))
        elif entry.event is not None:
            if entry.event.kind == "asked":
                asked[str(entry.event.body.get("id"))] = entry.event
            is_closed = is_closed or entry.event.kind == "closed"
            events.append(_event(entry.event, branch, asked))
            branch = _branch_after(entry.event, branch)
    for current in opens:
        events.extend(_open_events(current, branch, is_closed=is_closed))
    events.sort(key=lambda event: event.time)  # steps are recorded at their end
    return [_cut(_redacted(event, secrets) if secrets else event) for event in events]


def _branch_after(event: EventRecord, branch: int) -> int:
    match event.kind:
        case "undone":
            return branch + 1
        case _:
            return branch


def verify(entries: Iterable[Entry]) -> list[Finding]:
    """Compute the digest chain anew; return where it does not fit, oldest first.

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


class _Step(NamedTuple):
    """What the events of a step have in common.

    Attributes:
        id: The step's id.
        branch: Its branch.
        started: When it began.
        ended: When it ended; infinite while it is open.
        adds: The messages that it added to the transcript.
    """

    id: str
    branch: int
    started: float
    ended: float
    adds: Sequence[Message]

    def event(self, kind: str, at: float, took: float = 0.0, **fields: Json) -> AuditEvent:
        """Make an event of the step; a worker's clock moves none out of the step's time."""
        time = min(max(at, self.started), self.ended)
        return AuditEvent.model_validate(
            {
                "time": time,
                "kind": kind,
                "step": self.id,
                "branch": self.branch,
                "started": round(max(at - took, 0), 3) if took or at else 0.0,
                "ended": at,
                **fields,
            }
        )


def _step_events(record: StepRecord) -> Iterator[AuditEvent]:
    step = _Step(record.step.step_id, record.branch, record.started, record.ended, record.adds)
    made = list(_made_events(record.journal, step))
    yield from made
    after = max((event.time for event in made), default=record.started)
    for call, outcome in zip(record.calls, record.outcomes, strict=True):
        yield _call_event(call, outcome, step, after)
    yield step.event(
        "step",
        record.ended,
        record.ended - record.started,
        status="last" if record.last else "done",
        tokens=record.usage.total_tokens,
        digest=record.digest,
        body={"n": record.n, "started": record.started, "conflicts": list(record.conflicts)},
    )


def _open_events(current: OpenState, branch: int, *, is_closed: bool) -> Iterator[AuditEvent]:
    """Tell what a step has done that has not come to its end."""
    step = _Step(current.open.step.step_id, branch, current.started, math.inf, ())
    body: dict[str, Json] = {"n": current.n}
    if current.failure is not None:
        body["failure"] = f"{current.failure.type}: {current.failure.message}"
    tokens = usage_of(current.journal, current.outcomes.values()).total_tokens
    opened = step.event("step", current.started, status="open", tokens=tokens, body=body)
    yield opened.model_copy(update={"ended": 0.0})
    made = list(_made_events(current.journal, step))
    yield from made
    after = max((event.time for event in made), default=current.started)
    for i, call in enumerate(current.calls):
        outcome = current.outcomes.get(i)
        if outcome is not None:
            yield _call_event(call, outcome, step, after)
            continue
        status = "not run" if is_closed else "pending"
        what: dict[str, Any] = {"tool": call.name, "call_id": call.id, "arguments": call.arguments}
        event = step.event("tool_call", after, actor="model", status=status, **what)
        yield event.model_copy(update={"started": 0.0, "ended": 0.0})


def _made_events(journal: Iterable[JournalEntry], step: _Step) -> Iterator[AuditEvent]:
    """Tell of a step's answered calls; what has no time of its own came right after the last."""
    at = step.started
    for entry in journal:
        for event in _journal_events(entry, step, at):
            at = max(at, event.time)
            yield event


def _journal_events(entry: JournalEntry, step: _Step, after: float) -> Iterator[AuditEvent]:
    stamp: dict[str, Json] = {"attempts": entry.attempts, "worker": entry.worker}
    if entry.answer is not None:
        answer = entry.answer
        yield step.event(
            "model_call",
            answer.at or after,
            answer.took,
            actor="model",
            tokens=answer.usage.total_tokens,
            result=shown(answer.message.content),
            status=answer.finish,
            body={"model": answer.model, "response_id": answer.response_id},
            **stamp,
        )
    if entry.memo is not None:
        made = entry.memo.stored or canonical(entry.memo.output).decode("utf-8", "surrogatepass")
        yield step.event("memo", after, tool=entry.name, result=shown(made), **stamp)
    for call, outcome in zip(entry.calls, entry.outcomes, strict=True):
        yield _call_event(call, outcome, step, after)


def _call_event(call: ToolCall, outcome: Outcome, step: _Step, after: float) -> AuditEvent:
    """Tell of a call; one that no worker ran was over when it was decided."""
    content = told(step.adds, call, outcome).content
    decided = outcome.decided[-1] if outcome.decided else Decided(approval="")
    facts: dict[str, Json] = {"task": outcome.child} if outcome.child else {}
    if outcome.decided:
        facts["decided"] = [each.wire() for each in outcome.decided]
    return step.event(
        "tool_call",
        outcome.ended or max(decided.at, after),
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
        answered_by=_answered_by(outcome, decided),
        result=shown(content),
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


DECISIONS = {"approve": "approved", "reject": "rejected", "respond": "responded"}
ABOUT_APPROVALS = ("asked", "expired", "withdrawn", "standing")


def _event(event: EventRecord, branch: int, asked: Mapping[str, EventRecord]) -> AuditEvent:
    body = event.body
    given = body.get("arguments")
    said: dict[str, Json] = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
    approval = str(body.get("id" if event.kind in ABOUT_APPROVALS else "", ""))
    approval = approval or str(said.get("approval", ""))
    about: dict[str, Json] = asked[approval].body if approval in asked else {}
    verb = str(body.get("verb", "")) or ("undo" if "undo" in event.kind and event.by else "")
    is_refused = event.kind == "refused"
    decision = "expired" if event.kind == "expired" else DECISIONS.get(verb, "")
    if is_refused or not approval:
        decision = ""
    status = "applied" if event.kind == "command" else str(body.get("status", ""))
    return AuditEvent(
        time=event.at,
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


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _cut(event: AuditEvent) -> AuditEvent:
    """Shorten a result; last, so that no cut hides half a secret from its redaction."""
    if len(event.result) <= LONGEST_RESULT:
        return event
    return event.model_copy(update={"result": event.result[:LONGEST_RESULT]})


def _redacted(event: AuditEvent, secrets: Sequence[str]) -> AuditEvent:
    forms = sorted({form for secret in secrets if secret for form in _forms(secret)}, key=len)
    return AuditEvent.model_validate(_without(event.model_dump(), forms[::-1]))


def _forms(secret: str) -> set[str]:
    """Return a secret as it stands in texts and in JSON texts, also in one inside another."""
    forms = {secret}
    for _ in range(2):
        forms |= {json.dumps(f, ensure_ascii=plain)[1:-1] for f in forms for plain in (True, False)}
    return forms


def _without(value: Json, forms: Sequence[str]) -> Json:
    match value:
        case str():
            for form in forms:
                value = value.replace(form, REDACTED)
            return value
        case list() | tuple():
            return [_without(item, forms) for item in cast("Sequence[Json]", value)]
        case dict():
            data = cast("dict[str, Json]", value)
            return {_without(key, forms): _without(item, forms) for key, item in data.items()}
        case _:
            return value
