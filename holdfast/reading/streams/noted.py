"""Events of what a ledger notes besides steps: approvals, commands, failures, lost workers."""

from __future__ import annotations

from typing import Literal, cast

from holdfast.reading.ended import WORKER_LOST
from holdfast.reading.step_events import (
    ApprovalDecided,
    Attempt,
    CommandGiven,
    StepEvent,
    StepFailed,
    StepUndone,
    Waiting,
)
from holdfast.task.data.commands import said_in
from holdfast.task.happenings import Noted, StepsUndone
from holdfast.values.base import Json
from holdfast.values.runs.verbs import DECIDED

_Status = Literal["approved", "rejected", "responded", "expired", "withdrawn"]


def noted_event(noted: Noted, task_id: str) -> StepEvent | None:
    """Return the event for something that a ledger notes; None without one for it."""
    event, body, number = noted.event, noted.event.body, noted.number
    step_id = str(body.get("step", ""))
    if isinstance(noted, StepsUndone):
        return StepUndone(
            number=number, task_id=task_id, steps=noted.steps, by=event.by, reason=event.text
        )
    match event.kind:
        case "asked" | "escalated":
            return _waiting(noted, task_id)
        case "standing" | "expired" | "withdrawn" as kind:
            status = DECIDED[str(body["verb"])] if kind == "standing" else kind
            return _decided(noted, task_id, body.get("id", ""), status, note=event.text)
        case "command" | "refused" | "vote":
            return _command(noted, task_id)
        case "failed":
            return StepFailed(number=number, task_id=task_id, step_id=step_id, error=event.text)
        case "lost":
            return Attempt(
                number=number,
                task_id=task_id,
                step_id=step_id,
                name=str(body.get("tool", "")),
                attempt=int(body.get("attempt", 2)),
                why=WORKER_LOST,
            )
        case _:
            return None


def _waiting(noted: Noted, task_id: str) -> Waiting:
    body = noted.event.body
    return Waiting(
        number=noted.number,
        task_id=task_id,
        step_id=str(body.get("step", "")),
        approval=str(body.get("id", "")),
        approval_kind=body.get("kind", "tool"),
        tool=str(body.get("tool", "")),
        arguments=str(body.get("arguments", "")),
        text=noted.event.text,
        expires=float(body.get("expires", 0)),
    )


def _decided(
    noted: Noted, task_id: str, approval: Json, status: _Status, *, note: str
) -> ApprovalDecided:
    body = noted.event.body
    return ApprovalDecided(
        number=noted.number,
        task_id=task_id,
        step_id=str(body.get("step", "")),
        approval=str(approval),
        tool=str(body.get("tool", "")),
        status=status,
        by=noted.event.by,
        note=note,
    )


def _command(noted: Noted, task_id: str) -> ApprovalDecided | CommandGiven:
    event, body = noted.event, noted.event.body
    arguments: Json = body.get("arguments")
    given = cast("dict[str, Json]", arguments) if isinstance(arguments, dict) else {}
    # Edited arguments that are refused have no verb: they came with an approval.
    verb, refused = str(body.get("verb") or "approve"), event.kind == "refused"
    if verb in DECIDED and event.kind == "command":
        approval, status = given.get("approval", ""), DECIDED[verb]
        return _decided(noted, task_id, approval, status, note=said_in(given))
    return CommandGiven(
        number=noted.number,
        task_id=task_id,
        verb=verb,
        by=event.by,
        text=said_in(given) or str(body.get("votes", "")),
        is_refused=refused,
        reason=event.text if refused else "",
    )
