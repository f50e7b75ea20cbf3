"""The timeline of a task: what ran when, side by side, with retries, losses, waits and gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.desk.views.axis import Axis, Bar, axis_of
from holdfast.desk.views.words import span
from holdfast.reading.step_events import ApprovalDecided, CommandGiven, Waiting
from holdfast.reading.streams.follower import noted_event
from holdfast.task.data.calls import asked_for
from holdfast.task.data.head import AgentSnapshot, ToolPolicy, policy_of
from holdfast.task.happenings import CallDone, Happening, HostedRan, Noted, step_happenings
from holdfast.task.shown import (
    BAD,
    CallState,
    ShownCall,
    ShownCalls,
    bodies_in,
    call_state,
    noted_line,
    step_state,
    step_title,
    undone_steps,
)
from holdfast.task.step_body import StepBody
from holdfast.values.checks.gate import data_of
from holdfast.values.messages import ToolCall, Usage
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import brief, shortened


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A step with what ran in it, each in a row of its own, so that what overlaps is seen.

    Attributes:
        body: The step.
        step: Its bar.
        bars: What ran in it, and how long it waited for people, by the time of its begin.
        step_id: Id of the step.
        status: Status of the step.
        is_undone: Whether an undo has taken it.
    """

    body: StepBody
    step: Bar
    bars: tuple[Bar, ...]
    step_id: str
    status: str
    is_undone: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment: a worker was lost, a step failed, steps were undone."""

    at: float
    text: str
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What ran in a task, and when.

    Attributes:
        lanes: The steps.
        waits: Times in which the task waited for a person outside of its steps.
        marks: Moments that matter.
        axis: The scale of all bars.
    """

    lanes: tuple[Lane, ...]
    waits: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    axis: Axis

    @property
    def took(self) -> str:
        """How long the task has taken, in words."""
        return span(self.axis.knots[-1][0] - self.axis.knots[0][0]) if self.axis.knots else ""


def timeline_of(found: Sequence[Happening], *, now: float) -> Timeline:
    """Return the timeline of what happened in a task.

    Args:
        found: What happened, by `happenings`.
        now: Time, seconds since the epoch: the end of what still runs.
    """
    bodies = bodies_in(found)
    undone = undone_steps(found)
    lanes = tuple(
        _lane(body, now, is_undone=(body.branch, body.n) in undone or body.is_left)
        for body in sorted(bodies, key=lambda body: (body.started, body.key))
    )
    lanes, waits = _with_waits(lanes, _waits(found, now))
    bars = [bar for lane in lanes for bar in (lane.step, *lane.bars)]
    busy = [bar for lane in lanes for bar in lane.bars if bar.kind != "wait"] or bars
    return Timeline(
        lanes=lanes, waits=waits, marks=tuple(_marks(found)), axis=axis_of(busy, [*bars, *waits])
    )


def _with_waits(
    lanes: tuple[Lane, ...], waits: Iterable[Bar]
) -> tuple[tuple[Lane, ...], tuple[Bar, ...]]:
    """Put each wait among the bars of the step that waited; return also those of no step."""
    inside: dict[int, list[Bar]] = {}
    outside: list[Bar] = []
    for wait in waits:
        own = [
            k
            for k, lane in enumerate(lanes)
            if lane.step.branch == wait.branch and lane.step.start <= wait.start <= lane.step.end
        ]
        (inside.setdefault(own[-1], []) if own else outside).append(wait)
    placed = (
        replace(lane, bars=tuple(sorted((*lane.bars, *inside.get(k, ())), key=_begin)))
        for k, lane in enumerate(lanes)
    )
    return tuple(placed), tuple(outside)


def _begin(bar: Bar) -> float:
    return bar.start


def _lane(body: StepBody, now: float, *, is_undone: bool) -> Lane:
    end = now if not body.is_over else body.ended or _newest(body)
    state = step_state(body, is_undone=is_undone)
    bars = sorted((*_models(body), *_tools(body, now), *_moments(body)), key=_begin)
    if is_undone:
        bars = [replace(bar, state=state) if bar.state == "done" else bar for bar in bars]
    step = Bar(
        kind="step",
        label=step_title(body),
        start=body.started,
        end=max(end, body.started),
        state=state,
        n=body.n,
        branch=body.branch,
        detail=redact(shortened(body.failure.text)) if body.failure else "",
        cost=_cost(body.usage),
    )
    return Lane(
        body=body,
        step=step,
        bars=tuple(bars),
        step_id=body.step.step_id,
        status=state,
        is_undone=is_undone,
    )


def _newest(body: StepBody) -> float:
    """Return when the newest thing happened in a step that has no end of its own."""
    times = [body.started]
    times += [part.answer.at for part in body.journal if part.answer is not None]
    times += [call.outcome.ended for call in body.all_calls() if call.outcome is not None]
    return max(times)


def _models(body: StepBody) -> Iterator[Bar]:
    end = body.started
    for part in body.journal:
        answer = part.answer
        if answer is None:
            continue
        start = max(answer.at - answer.took, body.started) if answer.took else end
        end = max(answer.at, start)
        calls = ", ".join(call.name for call in answer.message.calls)
        ran = ", ".join(call.tool for _, call in part.hosted)
        told = (answer.text, f"calls {calls}" if calls else "", f"(ran {ran})" if ran else "")
        said = " ".join(each for each in (told[0] or told[1], told[2]) if each)
        tried = f" (after {'; '.join(answer.tried)})" if answer.tried else ""
        yield Bar(
            kind="model",
            label=answer.model or "model",
            start=start,
            end=end,
            n=body.n,
            branch=body.branch,
            attempts=part.entry.attempts,
            detail=redact(f"{shortened(said)}{tried}"),
            cost=_cost(answer.usage),
        )
    for began in body.unheard:
        yield Bar(
            kind="model",
            label="model",
            start=began,
            end=max(body.ended, began) if body.is_over else began,
            state="cut off",
            n=body.n,
            branch=body.branch,
        )


def _cost(usage: Usage) -> str:
    return usage.cost_shown if usage.priced else ""


def _tools(body: StepBody, now: float) -> Iterator[Bar]:
    """Yield the calls that were begun, as far as it is known when."""
    for call in body.all_calls():
        outcome, called = call.outcome, call.called
        start = end = 0.0
        if outcome is not None:
            start, end = outcome.ended - outcome.took, outcome.ended
        elif called is not None:
            is_over = body.is_over or bool(called.error)
            start = called.at
            end = (called.ended or max(body.ended, start)) if is_over else now
        if not (call.is_begun and end):
            continue
        task = f" as task {call.child}" if call.child else ""
        yield Bar(
            kind="tool",
            label=call.call.name,
            start=start,
            end=end,
            state=call_state(call, is_over=body.is_over),
            detail=redact(brief(data_of(call.arguments))) + task,
            result=redact(shortened(call.result)) if outcome is not None else "",
            n=body.n,
            branch=body.branch,
            attempts=outcome.attempts if outcome is not None else 1,
        )


def _moments(body: StepBody) -> Iterator[Bar]:
    """Yield the calls that no worker ran: decided against, answered by people, the provider's."""
    for each in step_happenings(body):
        match each:
            case CallDone(call=call) if not call.is_begun:
                label, state = call.call.name, call_state(call, is_over=True)
                arguments, result = call.arguments, each.message.text
            case HostedRan(call=ran):
                label, state = f"{ran.tool} (provider)", "failed" if ran.is_error else "done"
                arguments, result = ran.arguments, ran.result
            case _:
                continue
        yield Bar(
            kind="tool",
            label=label,
            start=each.time,
            end=each.time,
            state=state,
            detail=redact(brief(data_of(arguments))),
            result=redact(shortened(result)),
            n=body.n,
            branch=body.branch,
        )


def _waits(found: Iterable[Happening], now: float) -> Iterator[Bar]:
    """Yield the times in which something waited for a person."""
    asked: dict[str, Noted] = {}
    over: dict[str, tuple[Noted, float, str]] = {}
    is_closed = False
    for each in found:
        if not isinstance(each, Noted):
            continue
        own, kind = str(each.event.body.get("id", "")), each.event.kind
        match noted_event(each, ""):
            case Waiting() if kind == "asked":
                asked[own] = each
            case ApprovalDecided(approval=own) as told if own in asked:
                by = f" by {told.by}" if told.by else ""
                over[own] = asked.pop(own), each.at, f"{told.status}{by}"
            case CommandGiven(is_refused=True) if own in over:  # an edit that does not fit
                asked[own] = over.pop(own)[0]
            case _ if kind in ("undone", "closed"):
                is_closed = is_closed or kind == "closed"
                over |= {own: (begun, each.at, kind) for own, begun in asked.items()}
                asked.clear()
            case _:
                continue
    for begun, end, how in over.values():
        yield _wait(begun, end, how)
    for begun in asked.values():
        yield _wait(begun, now, "", is_open=not is_closed)


def _wait(begun: Noted, end: float, how: str, *, is_open: bool = False) -> Bar:
    kind, tool = (str(begun.event.body.get(name) or "") for name in ("kind", "tool"))
    return Bar(
        kind="wait",
        label=f"waits for a person: {asked_for(kind, tool)}",
        start=begun.at,
        end=max(end, begun.at),
        state="running" if is_open else "done",
        detail=how,
        branch=begun.branch,
    )


MARKED = BAD | {"undone", "restarted", "forked"}
"""Kinds of events that are moments of the timeline."""


def _marks(found: Iterable[Happening]) -> Iterator[Mark]:
    for each in found:
        if isinstance(each, Noted) and each.event.kind in MARKED:
            is_bad = each.event.kind in BAD
            yield Mark(at=each.at, text=redact(shortened(noted_line(each))), is_bad=is_bad)


EffectState = CallState | Literal["final", "undone", "remains"]

STATES: Mapping[str, tuple[str, str]] = {
    "done": ("done", "positive"),
    "final": ("done, no undo", "primary"),
    "undone": ("undone", "grey"),
    "remains": ("remains", "negative"),
    "unknown": ("unknown", "negative"),
    "cut off": ("cut off", "negative"),
    "failed": ("failed", "grey"),
    "running": ("running", "warning"),
}
"""Words and colour of each state."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A call that may have changed something outside.

    Attributes:
        tool: The tool.
        arguments: With which it ran, in one line.
        result: What it gave, in one line.
        state: What is known of it; "final" for one that is done and declares no undo, "remains" for
            one that is done and was not undone with its step.
        n: Number of its step.
        branch: Branch of its step.
        at: When it ended, seconds since the epoch.
        by: Who approved it.
        edited: Whether a person changed the arguments.
        child: Its child task, for a call of an agent as a tool.
        undone_by: Who had it undone.
        task: The child task whose call it is; empty for the task's own.
    """

    tool: str
    arguments: str
    result: str
    state: EffectState
    n: int
    branch: int
    at: float = 0.0
    by: str = ""
    edited: bool = False
    child: str = ""
    undone_by: str = ""
    task: str = ""

    @property
    def words(self) -> str:
        """Its state in words."""
        return STATES[self.state][0]

    @property
    def colour(self) -> str:
        """Colour of its state."""
        return STATES[self.state][1]


def effects_of(found: Iterable[Happening], snapshot: AgentSnapshot | None = None) -> list[Effect]:
    """List what a task did outside, oldest first, also on branches that were undone.

    Args:
        found: What happened, by `happenings`.
        snapshot: The agent as the task began with it; without it no tool is known to lack an undo.
    """

    def policy(body: StepBody, call: ToolCall) -> ToolPolicy | None:
        if snapshot is None:
            return None
        team = (snapshot, *snapshot.team)
        agent = next((each for each in team if each.name == body.step.agent), snapshot)
        return policy_of(agent.policies, call)

    return [
        _effect(each)
        for each in ShownCalls(found, policy).calls
        if each.acts and not (each.policy is not None and each.policy.handoff)
    ]


def _effect(shown: ShownCall) -> Effect:
    body, call = shown.body, shown.call
    outcome, called, let = call.outcome, call.called, shown.decision
    return Effect(
        tool=call.call.name,
        arguments=redact(brief(data_of(call.arguments))),
        result=redact(brief(call.result)) if outcome is not None else "",
        state=_state(shown),
        n=body.n,
        branch=body.branch,
        at=outcome.ended if outcome is not None else called.at if called is not None else 0.0,
        by=let.by if let is not None and let.status == "approved" else "",
        edited=bool(call.edited),
        child=call.child,
        undone_by=shown.undone.event.by if shown.undone is not None else "",
    )


def _state(shown: ShownCall) -> EffectState:
    policy = shown.policy
    if shown.undone is not None:
        return "undone"
    if shown.state == "done" and shown.remains:
        return "remains"
    is_final = policy is not None and not policy.has_undo and not policy.agent
    return "final" if shown.state == "done" and is_final else shown.state
