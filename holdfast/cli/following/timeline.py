"""The timeline of a task in lines: what the desk draws as bars, in the same words.

A line for each step, and below it one for all that happened in it, by time: model calls, tool
calls, waits for a person and their decisions. What belongs to no step is between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.desk.views.axis import Bar
from holdfast.desk.views.timeline import Lane, timeline_of
from holdfast.task.happenings import Happening, Noted, StepEnded
from holdfast.task.ledger.recording import CREATED
from holdfast.task.shown import BAD, noted_line
from holdfast.values.base import as_text
from holdfast.values.steps import TaskStepOutput
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import shortened

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
    is_named = body.step.step_id != f"s{body.n}" or bool(body.branch) or lane.is_undone
    name = f" {body.step.step_id}@{body.branch}" if is_named else ""
    failed = f": {bar.detail}" if bar.detail else ""
    cost = f", {bar.cost}" if bar.cost else ""
    what = f"step {body.n}{name}{cost}{failed}"
    return Line(at=bar.start, what=what, took=bar.took, state=lane.status)


def _state(bar: Bar) -> str:
    return "waiting" if bar.kind == "wait" and bar.state == "running" else bar.state


def _bar(bar: Bar) -> Line:
    how = " " if bar.kind == "tool" else ": "
    words = f"{bar.label}{how}{bar.detail}" if bar.detail else bar.label
    gave = f" -> {bar.result}" if bar.result else ""
    often = f" (started {bar.attempts} times)" if bar.attempts > 1 else ""
    cost = f", {bar.cost}" if bar.cost else ""
    took = bar.took if bar.end > bar.start else ""
    return Line(at=bar.start, what=f"{words}{gave}{often}{cost}", took=took, state=_state(bar))


def _in_steps(
    found: Sequence[Happening], lanes: Sequence[Lane], outputs: Outputs
) -> Iterator[tuple[int, Line]]:
    """Yield what ran in steps, each with the position of its lane."""
    places = {id(lane.body): k for k, lane in enumerate(lanes)}
    for k, lane in enumerate(lanes):
        yield from ((k, _bar(bar)) for bar in lane.bars)
    for each in found:
        match each:
            case StepEnded(body=body) if body.status != "last":
                if gave := as_text(outputs[body.branch, body.n].output):
                    line = Line(at=each.time, what=f"output: {redact(shortened(gave))}")
                    yield places[id(each.body)], line
            case _:
                continue


def _events(found: Sequence[Happening]) -> Iterator[Line]:
    """Yield what was noted: decisions, commands, undos, failures. Questions are waits."""
    for each in found:
        if isinstance(each, Noted) and each.event.kind not in (CREATED, "asked"):
            kind = each.event.kind
            state = "failed" if kind in BAD else kind if kind == "refused" else ""
            what = noted_line(each)
            yield Line(at=each.at, what=shortened(what) if kind == "failed" else what, state=state)
