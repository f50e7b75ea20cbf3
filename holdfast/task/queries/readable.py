"""Answers to the queries that people send from Temporal's UI or CLI: plain JSON, and no input.

Long texts are cut, with their size said. An answer stays below a megabyte: the newest steps are
shown whole as far as they fit, older ones and archived ones by a line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.hosted_items import HostedCall
from holdfast.task.data.calls import Approval, Decided
from holdfast.task.data.head import ToolPolicy, policy_of
from holdfast.task.happenings import CallUndone, Fold, Happening, step_happenings
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.recording import (
    EFFECT,
    StepLine,
    answer_of,
    line_of,
    records_here,
    unpacked,
)
from holdfast.task.people import approvals
from holdfast.task.shown import ShownCall, ShownCalls
from holdfast.task.step_body import StepBody, body_of
from holdfast.task.undo import step_words
from holdfast.values.base import Json, as_text, canonical
from holdfast.values.checks import gate
from holdfast.values.messages import ToolCall, Usage, cost_written, shown
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.steps import Task, TaskStep
from holdfast.values.text.shown import cut as cut_to
from holdfast.values.text.shown import time_shown

TEXT_CHARACTERS = 1000


cut = partial(cut_to, longest=TEXT_CHARACTERS)


def plain_call(shown_call: ShownCall) -> dict[str, Json]:
    """Describe a call: what was asked, how it went, what people decided, what an undo did."""
    call, undone = shown_call.call, shown_call.undone
    outcome = call.outcome
    return {
        "tool": call.call.name,
        "arguments": plain_arguments(call.arguments),
        "status": shown_call.state,
        **given(
            proposed=plain_arguments(call.call.arguments) if call.edited else None,
            result=cut(call.result),
            effect=shown_call.effect,
            attempts=outcome.attempts if outcome is not None and outcome.attempts > 1 else None,
            decided=[_decision(each) for each in call.decided],
            seconds=outcome.took if outcome is not None else None,
            task=call.child,
            undone=_undo(undone) if undone is not None else None,
            remains=shown_call.remains or None,
        ),
    }


def _calls(ledger: Ledger, found: Iterable[Happening]) -> ShownCalls:
    """Return the calls of a task; their side effects as recorded, else by the tools' rules."""

    def policy(body: StepBody, call: ToolCall) -> ToolPolicy | None:
        described = ledger.s.described
        rules = described and described.rules(body.step.agent)
        return policy_of(rules.policies, call) if rules is not None else None

    return ShownCalls(found, policy)


def hosted_call(call: HostedCall) -> dict[str, Json]:
    """Describe what a tool of the provider did."""
    status = "failed" if call.is_error else "done"
    more = given(arguments=cut(call.arguments), result=cut(call.result))
    return {"tool": call.tool, "status": status, **more}


def _decision(decided: Decided) -> dict[str, Json]:
    return {
        "status": decided.status,
        "by": decided.by or "the clock",
        "at": time_shown(decided.at),
        **given(note=decided.note),
    }


def plain_arguments(text: str) -> Json:
    """Return the arguments of a call as data, or as text when they are long or not JSON."""
    if len(text) > TEXT_CHARACTERS:
        return cut(text)
    try:
        return gate.read(text)
    except InvalidArgumentError:
        return text


def given(**fields: Json) -> dict[str, Json]:
    """Return the fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {}, ())}


REFUSED_SHOWN = 5
WHOLE_BYTES = 512 * 1024
"""Size up to which steps are shown whole."""

ANSWER_BYTES = 900 * 1024
"""Size of an answer: the server takes answers of up to two megabytes."""


def completed_steps(ledger: Ledger) -> list[dict[str, Json]]:
    """List the completed steps of the present branch, oldest first."""
    here = records_here(ledger.log.entries, ledger.s.steps)
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
    ready = {step.step_id for step in ledger.queue.ready()}
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
        "waits_for": [cut(approval.line) for approval in waiting[:20]],
        **given(
            branch_cost=_cost(found.branch_usage) if found.branch_usage != found.usage else None,
            session=found.session,
            parent=found.parent,
            waits=cut(found.waits),
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
    here = records_here(ledger.log.entries, ledger.s.steps)
    record = here.get(ledger.s.steps)
    if record is None:
        line = next((line for line in archived_lines(ledger) if line.n == ledger.s.steps), None)
        return ledger.s.answer if ledger.s.answer is not None else line.output if line else None
    return answer_of(record)


def _refused(ledger: Ledger) -> list[Json]:
    """List the newest signals that changed nothing, oldest first, and why."""
    events = (entry.event for entry in ledger.log.entries if entry.event is not None)
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
    return [line for line in unpacked(ledger.log.lines) if line.n <= ledger.s.steps]


def _line(line: StepLine) -> dict[str, Json]:
    tools: list[Json] = [name.removesuffix(EFFECT) for name in line.tools]
    return {"n": line.n, "step": line.step_id, **given(tools=tools, output=line.output)}


def _step(body: StepBody, ledger: Ledger) -> dict[str, Json]:
    said = [shown(each.message.content) for each in body.answers if shown(each.message.content)]
    output = shown(body.stored) if body.stored is not None else as_text(body.output)
    waits = [
        approval.line
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
            calls=[plain_call(each) for each in _calls(ledger, step_happenings(body)).calls],
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
        **given(agent=step.agent, input=cut(step.input or ""), after=list(step.prev_steps)),
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


def _cost(usage: Usage) -> dict[str, Json]:
    return {
        "model_calls": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "dollars": cost_written(usage) if usage.requests else "0",
    }


def effects(ledger: Ledger) -> list[dict[str, Json]]:
    """List the calls that are not read-only, also of steps that were left, oldest first.

    A call that was a child task is one of them, with the id of that task, which lists its own.

    What was done by a step that was left was taken back since, or remains in the world. Archived
    calls have a line each: of the present branch by their names, others by what the undo has noted.
    """
    here = records_here(ledger.log.entries, ledger.s.steps)
    found: list[dict[str, Json]] = []
    for line in archived_lines(ledger):
        tools = [name.removesuffix(EFFECT) for name in line.tools if name.endswith(EFFECT)]
        if line.n not in here:
            found += [{"step": line.step_id, "tool": name, "archived": True} for name in tools]
    fold = Fold()
    happened: list[Happening] = [*fold.entries(ledger.log.entries)]
    fold.branch = ledger.s.branch
    known = _calls(ledger, [*happened, *fold.opens(ledger.s.opens)])
    texts, listed, size = list(ledger.s.residue), list[dict[str, Json]](), 0
    for each in known.calls:
        if not each.acts:
            continue
        listed.append({"step": each.body.step.step_id, **plain_call(each)})
        size += len(canonical(listed[-1]))
        if size > WHOLE_BYTES:
            kept = ("step", "status", "undone", "remains")
            short = {name: listed[-1][name] for name in kept if name in listed[-1]}
            listed[-1] = {**short, "tool": each.call.call.name}
        if each.remains:
            _drop_text(texts, each)
    lost: list[dict[str, Json]] = [{"text": cut(text), "remains": True} for text in texts]
    return newest([*found, *lost, *listed, *map(_undone_call, known.undone.values())])


def _drop_text(texts: list[str], remains: ShownCall) -> None:
    """Drop the text by which the undo has named a remaining effect."""
    words = step_words(remains.body.n, remains.call.call.name, remains.call.arguments)
    named = next((text for text in texts if text.startswith(words)), None)
    if named is not None:
        texts.remove(named)


def _undo(undone: CallUndone) -> dict[str, Json]:
    """Describe how an effect was taken back."""
    event = undone.event
    return given(said=cut(event.text), by=event.by, at=time_shown(event.at))


def _undone_call(undone: CallUndone) -> dict[str, Json]:
    """Describe a call that is not known here, whose effect an undo has reverted."""
    body = undone.event.body
    arguments = str(body.get("arguments", ""))
    return given(
        step=body.get("step"),
        tool=body.get("tool"),
        arguments=plain_arguments(arguments) if arguments else None,
        task=body.get("task"),
        undone=_undo(undone),
    )
