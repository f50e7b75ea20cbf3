"""The timeline of a task in lines: what the desk draws as bars, in the same words.

A line for each step, and below it one for all that happened in it, by time: model calls, tool
calls, waits for a person and their decisions. What belongs to no step is between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.cli.following.events import BAD, event_line
from holdfast.cli.following.history import usual_id
from holdfast.cli.output import shortened
from holdfast.desk.views.axis import Bar
from holdfast.desk.views.timeline import Lane, timeline_of
from holdfast.task.happenings import CallDone, Happening, HostedRan, Noted, StepEnded
from holdfast.task.ledger.recording import CREATED
from holdfast.values.base import as_text
from holdfast.values.steps import TaskStepOutput
from holdfast.values.text.redact import redact

COLUMNS = ("start (UTC)", "took", "state", "what")
STATE = COLUMNS.index("state")

Outputs = Mapping[tuple[int, int], TaskStepOutput]
"""Outputs of steps by branch and ordinal."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the timeline.

    Attributes:
        at: When it began, seconds since the epoch.
        what: What it was.
        took: How long it took, in words; empty for a moment.
        state: How it ended, or its present state; empty for a moment.
    """

    at: float
    what: str
    took: str = ""
    state: str = ""


def timeline(
    found: Sequence[Happening], outputs: Outputs, *, now: float
) -> list[tuple[str, str, str, str]]:
    """Return the cells of a task's timeline, in `COLUMNS`.

    Args:
        found: What happened in it.
        outputs: What its steps gave.
        now: Time, seconds since the epoch: the end of what still runs.
    """
    drawn = timeline_of(found, now=now)
    blocks = [[_step(lane)] for lane in drawn.lanes]
    inside, between = list[tuple[int, Line]](), list[list[Line]]()
    for line in (*map(_bar, drawn.waits), *_events(found)):
        owners = [k for k, lane in enumerate(drawn.lanes) if _has(lane.step, line.at)]
        if owners:
            inside.append((owners[-1], line))
        else:
            between.append([line])
    inside += _in_steps(found, drawn.lanes, outputs)
    for k, line in sorted(inside, key=lambda each: each[1].at):
        blocks[k].append(replace(line, what=f"  {line.what}"))
    blocks = sorted(blocks + between, key=lambda block: block[0].at)
    is_long = len({int(line.at // 86_400) for block in blocks for line in block}) > 1
    pattern = "%m-%d %H:%M:%S" if is_long else "%H:%M:%S"
    return [
        (datetime.fromtimestamp(line.at, UTC).strftime(pattern), line.took, line.state, line.what)
        for block in blocks
        for line in block
    ]


def _has(step: Bar, at: float) -> bool:
    return step.start <= at <= step.end


def _step(lane: Lane) -> Line:
    body, bar = lane.body, lane.step
    is_named = body.step.step_id != usual_id(body.n) or bool(body.branch) or lane.is_undone
    name = f" {body.step.step_id}@{body.branch}" if is_named else ""
    failed = f": {bar.detail}" if bar.detail else ""
    cost = f", {bar.cost}" if bar.cost else ""
    state = lane.status if lane.is_undone else _state(bar)
    return Line(at=bar.start, what=f"step {body.n}{name}{cost}{failed}", took=bar.took, state=state)


def _state(bar: Bar) -> str:
    if bar.kind == "wait" and bar.state == "running":
        return "waiting"
    return "undone" if bar.state == "void" else bar.state


def _bar(bar: Bar) -> Line:
    how = " " if bar.kind == "tool" else ": "
    words = f"{bar.label}{how}{bar.detail}" if bar.detail else bar.label
    gave = f" -> {bar.result}" if bar.result else ""
    often = f" (started {bar.attempts} times)" if bar.attempts > 1 else ""
    cost = f", {bar.cost}" if bar.cost else ""
    return Line(at=bar.start, what=f"{words}{gave}{often}{cost}", took=bar.took, state=_state(bar))


def _in_steps(
    found: Sequence[Happening], lanes: Sequence[Lane], outputs: Outputs
) -> Iterator[tuple[int, Line]]:
    """Yield what ran in steps, each with the position of its lane."""
    places = {id(lane.body): k for k, lane in enumerate(lanes)}
    for k, lane in enumerate(lanes):
        yield from ((k, _bar(bar)) for bar in lane.bars)
    for each in found:
        match each:
            case CallDone(outcome=outcome, call=call) if outcome.attempts <= 0:
                words = f"{call.call.name} {redact(shortened(call.call.arguments))}"
                what = f"{words} -> {redact(shortened(each.message.text))}"
                line = Line(at=each.time, what=what, state="not run")
            case HostedRan(call=ran):
                words = redact(f"{ran.tool} {ran.arguments} -> {shortened(ran.result)}")
                state = "failed" if ran.is_error else "done"
                line = Line(at=each.time, what=f"{words} (provider)", state=state)
            case StepEnded(body=body) if body.status != "last":
                gave = as_text(outputs[body.branch, body.n].output)
                if not gave:
                    continue
                line = Line(at=each.time, what=f"output: {redact(shortened(gave))}")
            case _:
                continue
        yield places[id(each.body)], line


def _events(found: Sequence[Happening]) -> Iterator[Line]:
    """Yield what was noted: decisions, commands, undos, failures. Questions are waits."""
    for each in found:
        if isinstance(each, Noted) and each.event.kind not in (CREATED, "asked"):
            bad = BAD.get(each.event.kind, "")
            yield Line(at=each.at, what=event_line(each), state=bad)
