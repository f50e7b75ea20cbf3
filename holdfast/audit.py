"""The audit of a task: every event in order, who caused it, what it cost, is it intact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from pydantic import Field

from holdfast.chain import extend
from holdfast.messages import Message, ToolCall, shown
from holdfast.records import Entry, EventRecord, JournalEntry, Outcome, StepRecord
from holdfast.redact import REDACTED
from holdfast.references import told
from holdfast.undo import active_steps
from holdfast.values import Json, Value, canonical


class AuditEvent(Value):
    """One thing that happened.

    Attributes:
        time: Seconds since the epoch; of a call, the time at which its step was recorded.
        kind: "created", "step", "model_call", "tool_call", "memo", "asked", "command",
            "refused", "expired", "probed", "guardrail", "failed", "restarted", "limit", "undone",
            "effect_undone", "undo_failed", "forked", "withdrawn", "closed".
        actor: Who caused it: a person's name, "model", "task".
        reason: Why, in words.
        step: Id of the step.
        branch: Branch of the ledger.
        tool: Tool name, or name of a memo.
        call_id: The model's id of the call.
        arguments: The arguments as they ran, JSON text.
        result: The result, cut to 2,000 characters; longer ones are in the archive.
        status: How it ended.
        attempts: How often it was started.
        worker: Identity of the worker that did it.
        tokens: Input and output tokens.
        digest: Digest of the transcript after a step.
        body: More facts.
    """

    time: float
    kind: str
    actor: str = "task"
    reason: str = ""
    step: str = ""
    branch: int = 0
    tool: str = ""
    call_id: str = ""
    arguments: str = ""
    result: str = ""
    status: str = ""
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


def audit_events(entries: Iterable[Entry], secrets: Sequence[str] = ()) -> list[AuditEvent]:
    """Tell a ledger as events, oldest first.

    Args:
        entries: The ledger.
        secrets: Texts that are replaced wherever they occur.
    """
    events: list[AuditEvent] = []
    branch = 0
    for entry in entries:
        if entry.step is not None:
            branch = entry.step.branch
            events.extend(_step_events(entry.step))
        elif entry.event is not None:
            events.append(_event(entry.event, branch))
            branch = _branch_after(entry.event, branch)
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


def _step_events(record: StepRecord) -> Iterator[AuditEvent]:
    common = {"time": record.ended, "step": record.step.step_id, "branch": record.branch}
    adds = record.adds
    for entry in record.journal:
        yield from _journal_events(entry, common, adds)
    for call, outcome in zip(record.calls, record.outcomes, strict=True):
        yield _call_event(call, outcome, common, adds)
    yield AuditEvent.model_validate(
        {
            **common,
            "kind": "step",
            "status": "last" if record.last else "done",
            "tokens": record.usage.total_tokens,
            "digest": record.digest,
            "body": {"n": record.n, "started": record.started, "conflicts": list(record.conflicts)},
        }
    )


def _journal_events(
    entry: JournalEntry, common: dict[str, Json], adds: Sequence[Message]
) -> Iterator[AuditEvent]:
    if entry.answer is not None:
        yield AuditEvent.model_validate(
            {
                **common,
                "kind": "model_call",
                "actor": "model",
                "tokens": entry.answer.usage.total_tokens,
                "result": shown(entry.answer.message.content),
                "status": entry.answer.finish,
                "attempts": entry.attempts,
                "worker": entry.worker,
                "body": {"model": entry.answer.model, "response_id": entry.answer.response_id},
            }
        )
    if entry.memo is not None:
        made = entry.memo.stored or canonical(entry.memo.output).decode("utf-8", "surrogatepass")
        yield AuditEvent.model_validate(
            {
                **common,
                "kind": "memo",
                "tool": entry.name,
                "result": shown(made),
                "attempts": entry.attempts,
                "worker": entry.worker,
            }
        )
    for call, outcome in zip(entry.calls, entry.outcomes, strict=True):
        yield _call_event(call, outcome, common, adds)


def _call_event(
    call: ToolCall,
    outcome: Outcome,
    common: dict[str, Json],
    adds: Sequence[Message],
) -> AuditEvent:
    content = told(adds, call, outcome).content
    return AuditEvent.model_validate(
        {
            **common,
            "kind": "tool_call",
            "actor": "model",
            "tool": call.name,
            "call_id": call.id,
            "arguments": outcome.edited or call.arguments,
            "result": shown(content),
            "status": outcome.status,
            "attempts": outcome.attempts,
            "worker": outcome.worker,
            "body": {"task": outcome.child} if outcome.child else {},
        }
    )


def _event(event: EventRecord, branch: int) -> AuditEvent:
    return AuditEvent(
        time=event.at,
        kind=event.kind,
        actor=event.by or "task",
        reason=event.text,
        tool=str(event.body.get("tool", "")),
        arguments=_text(event.body.get("arguments", "")),
        branch=int(event.body.get("branch", branch)),
        body=event.body,
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
