"""Answers to the queries that people send from Temporal's UI or CLI: plain JSON, and no input.

Long texts are cut, with their size said. An answer stays below a megabyte: the newest steps are
shown whole as far as they fit, older ones and archived ones by a line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.hosted_items import HostedCall
from holdfast.task.data.calls import Approval, Decided, Outcome
from holdfast.task.data.head import policy_of
from holdfast.task.data.records import StepRecord, effect_place
from holdfast.task.happenings import CallUndone, noted_of
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
from holdfast.task.step_body import StepBody, StepCall, body_of
from holdfast.task.undo import step_words
from holdfast.values.base import Json, as_text, canonical
from holdfast.values.checks import gate
from holdfast.values.messages import Usage, cost_written, shown
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.steps import Task, TaskStep
from holdfast.values.text.shown import time_shown

TEXT_CHARACTERS = 1000


def cut(text: str, longest: int = TEXT_CHARACTERS) -> str:
    """Return a text, or its beginning and its length."""
    return text if len(text) <= longest else f"{text[:longest]}… [{len(text)} characters]"


def plain_call(body: StepBody, call: StepCall, ledger: Ledger) -> dict[str, Json]:
    """Describe a call: what was asked, how it went, and what people decided."""
    outcome = call.outcome
    edited = outcome.edited if outcome is not None else call.called.edited if call.called else ""
    decided = outcome.decided if outcome is not None else call.called.decided if call.called else ()
    return {
        "tool": call.call.name,
        "arguments": plain_arguments(edited or call.call.arguments),
        "status": status_of(call),
        **given(
            proposed=plain_arguments(call.call.arguments) if edited else None,
            result=_result(call, outcome),
            effect=effect_of(body, call, ledger),
            attempts=outcome.attempts if outcome is not None and outcome.attempts > 1 else None,
            decided=[_decision(each) for each in decided],
            seconds=outcome.took if outcome is not None else None,
            task=call.child,
        ),
    }


def status_of(call: StepCall) -> str:
    """Return in a word how far a call has come."""
    if call.outcome is not None:
        return "failed" if call.outcome.is_error else call.outcome.status
    if call.called is None:
        return "asked"
    return "failed" if call.called.error else "running"


def hosted_call(call: HostedCall) -> dict[str, Json]:
    """Describe what a tool of the provider did."""
    status = "failed" if call.is_error else "done"
    more = given(arguments=cut(call.arguments), result=cut(call.result))
    return {"tool": call.tool, "status": status, **more}


def _result(call: StepCall, outcome: Outcome | None) -> str:
    if outcome is not None:
        return cut(shown(outcome.content))
    return cut(call.called.error) if call.called is not None else ""


def effect_of(body: StepBody, call: StepCall, ledger: Ledger) -> str:
    """Return the side effect of a call: as recorded with it, else by its tool's policy."""
    recorded = call.outcome.effect if call.outcome else call.called.effect if call.called else ""
    described = ledger.s.described
    if recorded or described is None:
        return recorded
    policy = policy_of(described.rules(body.step.agent).policies, call.call)
    return policy.effect if policy is not None else ""


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
        "waits_for": [cut(_question(approval)) for approval in waiting[:20]],
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


def effects(ledger: Ledger) -> list[dict[str, Json]]:
    """List the calls that are not read-only: of the present branch, then of steps that were left.

    A call that was a child task is one of them, with the id of that task, which lists its own.

    What was done by a step that was left was taken back since, or remains in the world.
    """
    here = records_here(ledger.log.entries, ledger.s.steps)
    found: list[dict[str, Json]] = []
    for line in archived_lines(ledger):
        tools = [name.removesuffix(EFFECT) for name in line.tools if name.endswith(EFFECT)]
        if line.n not in here:
            found += [{"step": line.step_id, "tool": name, "archived": True} for name in tools]
    bodies = [
        *map(body_of, here.values()),
        *(body_of(current, branch=ledger.s.branch) for current in ledger.s.opens),
    ]
    left, undone = _left_effects(ledger, here)
    size = 0
    for place, body, call in _effects_in(bodies, ledger):
        shown_call = {"step": body.step.step_id, **plain_call(body, call, ledger)}
        size += len(canonical(shown_call))
        if size > WHOLE_BYTES:
            shown_call = {"step": body.step.step_id, "tool": call.call.name}
        undone_now = undone.pop(place, None)
        found.append(shown_call | (_undo(undone_now) if undone_now else {}))
    return newest([*found, *left, *map(_undone_call, undone.values())])


def _was_begun(call: StepCall) -> bool:
    outcome = call.outcome
    if outcome is None:
        return call.called is not None
    return outcome.attempts > 0 or outcome.status == "unknown"


def _effects_in(
    bodies: Iterable[StepBody], ledger: Ledger
) -> Iterator[tuple[str, StepBody, StepCall]]:
    """Yield the calls that were begun and are not read-only, each after its place and step."""
    for body in bodies:
        for call in body.all_calls():
            acts = bool(call.child) or effect_of(body, call, ledger) != "read"
            if acts and _was_begun(call):
                yield effect_place(body.branch, body.key, call.batch, call.i), body, call


def _left_effects(
    ledger: Ledger, here: Mapping[int, StepRecord]
) -> tuple[list[dict[str, Json]], dict[str, CallUndone]]:
    """List what steps that were left have done; return also what else was taken back, by place.

    Remaining effects whose records are in the archive are known by their texts.
    """
    undone: dict[str, CallUndone] = {}
    found: list[dict[str, Json]] = []
    texts = list(ledger.s.residue)

    def list_calls(body: StepBody) -> None:
        for place, _, call in _effects_in([body], ledger):
            taken_back = undone.pop(place, None) or undone.pop(call.child, None)
            if taken_back is not None:
                found.append(_undone_call(taken_back))
            elif status_of(call) != "failed":
                found.append(_remaining(body, call, ledger))
                _drop_text(texts, body, call)

    completed: list[StepRecord] = []
    for entry in ledger.log.entries:
        if entry.event is not None and isinstance(noted := noted_of(entry.event), CallUndone):
            undone[noted.place] = noted
        elif entry.left is not None:  # recorded after what an undo took back of it
            list_calls(body_of(entry.left))
        elif entry.step is not None and entry.step is not here.get(entry.step.n):
            completed.append(entry.step)
    for record in completed:
        list_calls(body_of(record))
    return [*({"text": cut(text), "remains": True} for text in texts), *found], undone


def _remaining(body: StepBody, call: StepCall, ledger: Ledger) -> dict[str, Json]:
    """Describe a call of a step that was left, whose effect remains, or may remain."""
    status = {} if call.outcome is not None else {"status": "unknown"}
    return {"step": body.step.step_id, **plain_call(body, call, ledger), **status, "remains": True}


def _drop_text(texts: list[str], body: StepBody, call: StepCall) -> None:
    """Drop the text by which the undo has named a remaining effect."""
    edited = call.outcome.edited if call.outcome is not None else ""
    words = step_words(body.n, call.call.name, edited or call.call.arguments)
    named = next((text for text in texts if text.startswith(words)), None)
    if named is not None:
        texts.remove(named)


def _undo(undone: CallUndone) -> dict[str, Json]:
    """Describe how an effect was taken back."""
    event = undone.event
    said = {"said": cut(event.text), "by": event.by, "at": time_shown(event.at)}
    return {"undone": given(**said)}


def _undone_call(undone: CallUndone) -> dict[str, Json]:
    """Describe a call of a step that was left, whose effect was taken back."""
    body = undone.event.body
    arguments = str(body.get("arguments", ""))
    return {
        **given(
            step=body.get("step"),
            tool=body.get("tool"),
            arguments=plain_arguments(arguments) if arguments else None,
            task=body.get("task"),
        ),
        **_undo(undone),
    }
