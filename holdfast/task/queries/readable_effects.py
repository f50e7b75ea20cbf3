"""The answer to the query `effects`: the calls of a task that are not read-only, as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from holdfast.task.data.records import StepRecord
from holdfast.task.happenings import CallUndone, noted_of
from holdfast.task.ledger.archived_steps import EFFECT, records_here
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.queries.readable import WHOLE_BYTES, archived_lines, newest
from holdfast.task.queries.readable_calls import (
    child_of,
    cut,
    effect_of,
    given,
    plain_arguments,
    plain_call,
    status_of,
)
from holdfast.task.step_body import StepBody, StepCall, body_of
from holdfast.task.step_effects import effect_place, step_words
from holdfast.values.base import Json, canonical
from holdfast.values.text.shown import time_shown


def effects(ledger: Ledger) -> list[dict[str, Json]]:
    """List the calls that are not read-only: of the present branch, then of steps that were left.

    A call that was a child task is one of them, with the id of that task, which lists its own.

    What was done by a step that was left was taken back since, or remains in the world.
    """
    here = records_here(ledger.entries, ledger.s.steps)
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
            acts = bool(child_of(call)) or effect_of(body, call, ledger) != "read"
            if acts and _was_begun(call):
                yield effect_place(body.branch, body.key, call.batch, call.i), body, call


def _left_effects(
    ledger: Ledger, here: Mapping[int, StepRecord]
) -> tuple[list[dict[str, Json]], dict[str, CallUndone]]:
    """List what steps that were left have done; return also what else was taken back, by place.

    Of effects whose records are in the archive, those that remain are known by their texts.
    """
    undone: dict[str, CallUndone] = {}
    found: list[dict[str, Json]] = []
    texts = list(ledger.s.residue)

    def list_calls(body: StepBody) -> None:
        for place, _, call in _effects_in([body], ledger):
            taken_back = undone.pop(place, None) or undone.pop(child_of(call), None)
            if taken_back is not None:
                found.append(_undone_call(taken_back))
            elif status_of(call) != "failed":
                found.append(_remaining(body, call, ledger))
                _drop_text(texts, body, call)

    completed: list[StepRecord] = []
    for entry in ledger.entries:
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
