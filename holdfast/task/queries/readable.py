"""Answers to the queries that people send from Temporal's UI or CLI: plain JSON, and no input.

Long texts are cut, with their size said. An answer stays below a megabyte: the newest steps are
shown whole as far as they fit, older ones and archived ones by a line each.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.task.data.calls import Approval
from holdfast.task.ledger.archived_steps import (
    EFFECT,
    StepLine,
    answer_of,
    line_of,
    records_here,
    unpacked,
)
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.queries.readable_calls import (
    cut,
    given,
    hosted_call,
    plain_arguments,
    plain_call,
)
from holdfast.task.step_body import StepBody, body_of
from holdfast.values.base import Json, as_text, canonical
from holdfast.values.messages import Usage, cost_written, shown
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.steps import Task, TaskStep
from holdfast.values.text.shown import time_shown

REFUSED_SHOWN = 5
WHOLE_BYTES = 512 * 1024
"""Size up to which steps are shown whole."""

ANSWER_BYTES = 900 * 1024
"""Size of an answer: the server takes answers of up to two megabytes."""


def completed_steps(ledger: Ledger) -> list[dict[str, Json]]:
    """List the completed steps of the present branch, oldest first."""
    here = records_here(ledger.entries, ledger.s.steps)
    lines = [line for line in archived_lines(ledger) if line.n not in here]
    found: list[dict[str, Json]] = []
    size = 0
    for n, record in reversed(here.items()):
        whole = _step(body_of(record), ledger)
        size += len(canonical(whole))
        found.append(whole if size <= WHOLE_BYTES else _line(line_of(here[n])))
    return newest([*map(_line, lines), *reversed(found)])


def upcoming_steps(ledger: Ledger) -> list[dict[str, Json]]:
    """List the steps in progress, with what they wait for, and then the queued ones."""
    opens = [body_of(current, branch=ledger.s.branch) for current in ledger.s.opens]
    ready = {step.step_id for step in ledger.ready()}
    shown_steps = [
        *(_step(body, ledger) for body in opens),
        *(_queued(step, is_ready=step.step_id in ready) for step in ledger.s.queue),
    ]
    return newest(shown_steps[::-1])[::-1]


def task(ledger: Ledger, status: TaskStatus, why: str = "") -> dict[str, Json]:
    """Describe the task.

    Args:
        ledger: The task.
        status: Its status, closed ones included.
        why: Who ended it and why, where a person did.
    """
    found: Task = ledger.task()
    waiting = approvals.asked_everywhere(ledger)
    return {
        "task_id": found.task_id,
        "agent": found.agent,
        "status": status,
        "input": cut(found.input) if found.stored is None else shown(found.stored),
        "created": time_shown(found.created),
        "completed_steps": found.steps,
        "upcoming_steps": 0 if status in CLOSED else len(ledger.s.opens) + len(ledger.s.queue),
        "cost": _cost(found.usage),
        "waits_for": [cut(_question(approval)) for approval in waiting[:20]],
        **given(
            branch_cost=_cost(found.branch_usage) if found.branch_usage != found.usage else None,
            session=found.session,
            parent=found.parent,
            paused_by=found.paused if status == "paused" else "",
            ended_by=why,
            error=cut(found.error),
            answer=answer(ledger) if ledger.s.answered or status == "finished" else None,
            refused=_refused(ledger),
        ),
    }


def approvals_of(ledger: Ledger) -> list[dict[str, Json]]:
    """List the open approvals, and the decided ones of the steps in progress."""
    return newest([_approval(each) for each in approvals.shown(ledger)])


def answer(ledger: Ledger) -> Json:
    """Return the task's answer: the output of its newest step; cut when it is very long."""
    here = records_here(ledger.entries, ledger.s.steps)
    record = here.get(ledger.s.steps)
    if record is None:
        line = next((line for line in archived_lines(ledger) if line.n == ledger.s.steps), None)
        return ledger.s.answer if ledger.s.answer is not None else line.output if line else None
    return answer_of(record)


def _refused(ledger: Ledger) -> list[Json]:
    """List the newest signals that changed nothing, oldest first, and why."""
    events = (entry.event for entry in ledger.entries if entry.event is not None)
    refused = [event for event in events if event.kind == "refused"]
    return [
        {
            "signal": event.body.get("verb", ""),
            "reason": cut(event.text),
            "at": time_shown(event.at),
            **given(by=event.by),
        }
        for event in refused[-REFUSED_SHOWN:]
    ]


def newest(found: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the last entries as far as an answer may be large, after the number of the others."""
    size = 0
    for k, each in enumerate(reversed(found)):
        size += len(canonical(each)) + 1
        if size > ANSWER_BYTES:
            return [{"not_shown": len(found) - k}, *found[len(found) - k :]]
    return found


def archived_lines(ledger: Ledger) -> list[StepLine]:
    """List a line for each archived step, up to the newest completed one."""
    return [line for line in unpacked(ledger.s.lines) if line.n <= ledger.s.steps]


def _line(line: StepLine) -> dict[str, Json]:
    tools: list[Json] = [name.removesuffix(EFFECT) for name in line.tools]
    return {"n": line.n, "step": line.step_id, **given(tools=tools, output=line.output)}


def _step(body: StepBody, ledger: Ledger) -> dict[str, Json]:
    said = [shown(each.message.content) for each in body.answers if shown(each.message.content)]
    output = shown(body.stored) if body.stored is not None else as_text(body.output)
    waits = [
        _question(approval)
        for approval in approvals.asked_everywhere(ledger)
        if body.status == "open" and approval.n == body.n
    ]
    failure = f"{body.failure.type}: {body.failure.text}" if body.failure is not None else ""
    status = "done" if body.is_completed else _open_status(body, waits, ledger)
    return {
        "n": body.n,
        "step": body.step.step_id,
        "status": status,
        **given(
            agent=body.step.agent or ledger.given.head.agent,
            input=cut(shown(body.input.content)) if body.input is not None else "",
            said=[cut(text) for text in said if text != output],
            calls=[plain_call(body, call, ledger) for call in body.all_calls()],
            at_provider=[hosted_call(call) for call in body.hosted],
            output=cut(output),
            waits_for=[cut(text) for text in waits],
            error=cut(failure),
            started=time_shown(body.started),
            seconds=round(body.ended - body.started, 3) if body.ended else None,
            cost=_cost(body.usage),
        ),
    }


def _open_status(body: StepBody, waits: Sequence[str], ledger: Ledger) -> str:
    if body.failure is not None:
        return "failed"
    if waits:
        return "waiting"
    return "paused" if ledger.paused else "running"


def _queued(step: TaskStep, *, is_ready: bool) -> dict[str, Json]:
    return {
        "step": step.step_id,
        "status": "queued" if is_ready else "not ready",
        **given(
            agent=step.agent,
            input=cut(step.input or ""),
            after=list(step.prev_steps),
        ),
    }


def _approval(approval: Approval) -> dict[str, Json]:
    edited = approval.effective
    return {
        "id": approval.id,
        "kind": approval.kind,
        "status": approval.status,
        "agent": approval.agent,
        "asked": time_shown(approval.asked),
        **given(
            tool=approval.tool,
            arguments=plain_arguments(approval.arguments) if approval.tool else None,
            effect=approval.effect,
            **approval.about,
            text=cut(approval.text),
            expires=time_shown(approval.expires) if approval.expires else "",
            by=approval.by,
            decided=time_shown(approval.at) if approval.at else "",
            note=approval.note,
            approved_arguments=plain_arguments(edited) if edited else None,
        ),
    }


def _question(approval: Approval) -> str:
    what = f"{approval.tool} {approval.arguments}" if approval.tool else approval.text
    return f"{approval.id}: {what}"


def _cost(usage: Usage) -> dict[str, Json]:
    return {
        "model_calls": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "dollars": cost_written(usage) if usage.requests else "0",
    }
