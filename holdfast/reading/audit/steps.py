"""Steps in the audit: the event of each thing that happened in a step, however it ended."""

from __future__ import annotations

from holdfast.reading.audit.event import AuditEvent
from holdfast.task.data.calls import Called, Decided, Outcome
from holdfast.task.happenings import (
    CallAsked,
    CallBegan,
    CallDone,
    CallFailed,
    HostedRan,
    InStep,
    MemoMade,
    ModelAnswered,
    ModelCutOff,
    OfCall,
    StepBegan,
    StepEnded,
    StepLeft,
)
from holdfast.task.ledger.references import cost_of
from holdfast.task.step_body import StepBody
from holdfast.values.base import Json, canonical
from holdfast.values.messages import Usage, shown


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
    decided = outcome.decided[-1] if outcome.decided else Decided(approval="")
    facts: dict[str, Json] = {"task": outcome.child} if outcome.child else {}
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
        answered_by=_answered_by(outcome, decided),
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
