"""What the audit tells of a step: its model calls, tool calls and memos, however it ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.audit_event import AuditEvent
from holdfast.messages import Message, ToolCall, shown
from holdfast.records import (
    Called,
    Decided,
    JournalEntry,
    LeftStep,
    OpenState,
    Outcome,
    StepRecord,
)
from holdfast.references import told, usage_of
from holdfast.undo import effect_place
from holdfast.values import Json, canonical


class _Step(NamedTuple):
    """What the events of a step have in common.

    Attributes:
        id: The step's id.
        branch: Its branch.
        n: The number by which its calls are named.
        started: When it began.
        ended: When it ended; infinite while it is open.
        adds: The messages that it added to the transcript.
    """

    id: str
    branch: int
    n: int
    started: float
    ended: float
    adds: Sequence[Message]

    def key(self, batch: int, i: int) -> str:
        """Name a call of the step by its place."""
        return effect_place(self.branch, self.n, batch, i)

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


Keyed = Iterator[tuple[str, AuditEvent]]
"""Events, those of tool calls with what names their place in the task."""


def step_events(record: StepRecord) -> Keyed:
    """Tell what a completed step has done."""
    step = _Step(
        record.step.step_id, record.branch, record.key, record.started, record.ended, record.adds
    )
    yield from _all_calls(step, record.journal, record.unheard, record.calls, record.outcomes)
    event = step.event(
        "step",
        record.ended,
        record.ended - record.started,
        status="last" if record.last else "done",
        tokens=record.usage.total_tokens,
        digest=record.digest,
        body={"n": record.n, "started": record.started, "conflicts": list(record.conflicts)},
    )
    yield "", event


def open_events(current: OpenState, branch: int, *, is_closed: bool) -> Keyed:
    """Tell what a step has done that has not come to its end."""
    step = _Step(current.open.step.step_id, branch, current.n, current.started, math.inf, ())
    opened = step.event("step", current.started, status="open", **_facts_of_open(current))
    yield "", opened.model_copy(update={"ended": 0.0})
    yield from _calls_of_open(step, current, is_over=is_closed)


def left_events(left: LeftStep) -> Keyed:
    """Tell what a step has done that was left before its end."""
    was = left.was
    step = _Step(was.open.step.step_id, left.branch, was.n, was.started, left.at, ())
    yield from _calls_of_open(step, was, is_over=True)
    took = left.at - was.started
    yield "", step.event("step", left.at, took, status=left.why, **_facts_of_open(was))


def _facts_of_open(current: OpenState) -> dict[str, Any]:
    body: dict[str, Json] = {"n": current.n}
    if current.failure is not None:
        body["failure"] = f"{current.failure.type}: {current.failure.message}"
    usage = usage_of(current.journal, current.outcomes.values())
    return {"tokens": usage.total_tokens, "body": body}


def _calls_of_open(step: _Step, current: OpenState, *, is_over: bool) -> Keyed:
    outcomes: list[Outcome | Called | None] = [
        current.outcomes.get(i) or current.called.get(i) for i in range(len(current.calls))
    ]
    yield from _all_calls(
        step, current.journal, current.unheard, current.calls, outcomes, is_over=is_over
    )


def _all_calls(
    step: _Step,
    journal: Iterable[JournalEntry],
    unheard: Iterable[float],
    calls: Sequence[ToolCall],
    outcomes: Sequence[Outcome | Called | None],
    *,
    is_over: bool = True,
) -> Keyed:
    """Tell a step's calls; what has no time of its own came right after the last."""
    at = step.started
    for key, event in _made_events(journal, step):
        at = max(at, event.time)
        yield key, event
    for began in unheard:
        event = step.event("model_call", began, actor="model", status="cut off")
        yield "", event.model_copy(update={"started": began, "ended": 0.0})
    batch = sum(bool(entry.calls) for entry in journal)
    for i, (call, known) in enumerate(zip(calls, outcomes, strict=True)):
        if isinstance(known, Outcome):
            yield step.key(batch, i), _call_event(call, known, step, at)
        else:
            yield step.key(batch, i), _begun_event(call, known, step, at, is_over=is_over)


def _begun_event(
    call: ToolCall, called: Called | None, step: _Step, after: float, *, is_over: bool
) -> AuditEvent:
    """Tell of a call that has no outcome."""
    if called is None:
        status = "not run" if is_over else "pending"
        what: dict[str, Any] = {"tool": call.name, "call_id": call.id, "arguments": call.arguments}
        event = step.event("tool_call", after, actor="model", status=status, **what)
        return event.model_copy(update={"started": 0.0, "ended": 0.0})
    outcome = Outcome(
        content=called.error,
        is_error=True,
        status="failed" if called.error else "unknown",
        edited=called.edited,
        child=called.child,
        effect=called.effect,
        decided=called.decided,
    )
    event = _call_event(call, outcome, step, called.ended or called.at)
    over = "cut off" if called.child else "unknown"
    status = "failed" if called.error else over if is_over else "pending"
    times = {"started": called.at, "ended": called.ended}
    return event.model_copy(update={"status": status, **times})


def _made_events(journal: Iterable[JournalEntry], step: _Step) -> Keyed:
    """Tell of a step's answered calls; what has no time of its own came right after the last."""
    at, batch = step.started, 0
    for entry in journal:
        for key, event in _journal_events(entry, step, batch, at):
            at = max(at, event.time)
            yield key, event
        batch += bool(entry.calls)


def _journal_events(entry: JournalEntry, step: _Step, batch: int, after: float) -> Keyed:
    stamp: dict[str, Json] = {"attempts": entry.attempts, "worker": entry.worker}
    if entry.answer is not None:
        answer = entry.answer
        event = step.event(
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
        yield "", event
    if entry.memo is not None:
        made = entry.memo.stored or canonical(entry.memo.output).decode("utf-8", "surrogatepass")
        yield "", step.event("memo", after, tool=entry.name, result=shown(made), **stamp)
    for i, (call, outcome) in enumerate(zip(entry.calls, entry.outcomes, strict=True)):
        yield step.key(batch, i), _call_event(call, outcome, step, after)


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
