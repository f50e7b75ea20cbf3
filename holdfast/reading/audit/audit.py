"""The audit of a task: every event in order, who caused it, what it cost, is it intact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from holdfast.reading.audit.steps import AuditEvent, CallPlace, Undos, step_event
from holdfast.task.data.records import Entry, EventRecord, OpenState, StepRecord
from holdfast.task.happenings import (
    CallUndone,
    Happening,
    InStep,
    OfCall,
    StepsUndone,
    happenings,
)
from holdfast.task.undo import UNDONE, active_steps, effect_place
from holdfast.values.base import Json, Value, extend
from holdfast.values.checks.ids import time_in
from holdfast.values.runs.verbs import DECIDED
from holdfast.values.text.redact import REDACTED

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
) -> list[AuditEvent]:
    """Return the events of a ledger, oldest first.

    Args:
        entries: The ledger.
        secrets: Texts that are replaced wherever they occur.
        opens: The steps in progress, now or when the task ended.
        now: Events that no ledger has, the last ones.
    """
    made = _Events()
    for happening in happenings(entries, opens):
        made.take(happening)
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
        self.events.append(_event(event_, happening.branch, self._asked))
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


def _event(event: EventRecord, branch: int, asked: Mapping[str, EventRecord]) -> AuditEvent:
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
    forms = sorted({form for secret in secrets if secret for form in _forms(secret)}, key=len)
    return AuditEvent.model_validate(_without(event.model_dump(), forms[::-1]))


def _forms(secret: str) -> set[str]:
    """Return a secret as it is in texts and in JSON texts, also in one inside another."""
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
