"""The timeline of a task: what ran when, side by side, with retries, losses, waits and gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.desk.views.axis import Axis, Bar, BarState, axis_of
from holdfast.desk.views.words import brief, data_of, object_of, shortened, span
from holdfast.task.data.head import AgentSnapshot, ToolPolicy, policy_of
from holdfast.task.data.records import effect_place
from holdfast.task.happenings import CallUndone, Happening, InStep, Noted, StepEnded, StepsUndone
from holdfast.task.step_body import StepBody, StepCall
from holdfast.values.messages import Usage, shown
from holdfast.values.text.redact import redact


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
        lanes=lanes,
        waits=waits,
        marks=tuple(_marks(found)),
        axis=axis_of(busy, [*bars, *waits]),
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


def bodies_in(found: Iterable[Happening]) -> list[StepBody]:
    """List the steps that something happened in, each once, in the order of the ledger."""
    bodies: dict[int, StepBody] = {}
    for each in found:
        if isinstance(each, InStep):
            bodies.setdefault(id(each.body), each.body)
    return list(bodies.values())


def undone_steps(found: Iterable[Happening]) -> set[tuple[int, int]]:
    """Return branch and ordinal of each completed step that an undo has taken."""
    standing: list[tuple[int, int]] = []
    gone: set[tuple[int, int]] = set()
    for each in found:
        if isinstance(each, StepEnded):
            standing.append((each.body.branch, each.body.n))
        elif isinstance(each, StepsUndone):
            gone |= {place for place in standing if place[1] >= each.first}
            standing = [place for place in standing if place[1] < each.first]
    return gone


def _lane(body: StepBody, now: float, *, is_undone: bool) -> Lane:
    end = now if not body.is_over else body.ended or _newest(body)
    own = f" ({body.step.step_id})" if body.step.step_id not in ("", f"s{body.n}") else ""
    bars = sorted((*_models(body), *_tools(body, now)), key=_begin)
    if is_undone:
        bars = [_void(bar) for bar in bars]
    state: BarState = "done"
    if body.failure is not None:
        state = "failed"
    elif body.status == "open" and not body.is_over:
        state = "running"
    step = Bar(
        kind="step",
        label=f"Step {body.n}{own}",
        start=body.started,
        end=max(end, body.started),
        state="void" if is_undone else state,
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
        status="undone" if is_undone else body.status,
        is_undone=is_undone,
    )


def _void(bar: Bar) -> Bar:
    return replace(bar, state="void") if bar.state == "done" else bar


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
            label="model, cut off",
            start=began,
            end=max(body.ended, began) if body.is_over else began,
            state="lost",
            n=body.n,
            branch=body.branch,
        )


def _cost(usage: Usage) -> str:
    return usage.cost_shown if usage.priced else ""


def _tools(body: StepBody, now: float) -> Iterator[Bar]:
    for call in body.all_calls():
        bar = _tool(body, call, now)
        if bar is not None:
            yield bar


def _tool(body: StepBody, call: StepCall, now: float) -> Bar | None:
    outcome, called = call.outcome, call.called
    edited = outcome.edited if outcome else called.edited if called else ""
    arguments = redact(brief(data_of(edited or call.call.arguments)))
    arguments += f" as task {call.child}" if call.child else ""
    if outcome is not None:
        if outcome.attempts <= 0 or not outcome.ended:
            return None
        return Bar(
            kind="tool",
            label=call.call.name,
            start=outcome.ended - outcome.took,
            end=outcome.ended,
            state="unknown"
            if outcome.status == "unknown"
            else "failed"
            if outcome.is_error
            else "done",
            detail=arguments,
            result=redact(shortened(shown(outcome.content))),
            n=body.n,
            branch=body.branch,
            attempts=outcome.attempts,
        )
    if called is None:
        return None
    is_over = body.is_over or bool(called.error)
    return Bar(
        kind="tool",
        label=call.call.name,
        start=called.at,
        end=(called.ended or max(body.ended, called.at)) if is_over else now,
        state="failed" if called.error else "lost" if body.is_over else "running",
        detail=arguments,
        n=body.n,
        branch=body.branch,
    )


def _waits(found: Iterable[Happening], now: float) -> Iterator[Bar]:
    """Yield the times in which something waited for a person."""
    asked: dict[str, Noted] = {}
    votes: dict[str, set[str]] = {}
    over: dict[str, tuple[Noted, float, str]] = {}
    is_closed = False
    for each in found:
        if not isinstance(each, Noted):
            continue
        body, kind = each.event.body, each.event.kind
        own = str(body.get("id", ""))
        if kind == "asked":
            asked[own] = each
        elif kind == "refused" and own in over:  # an edit that does not fit: it waits again
            asked[own] = over.pop(own)[0]
        elif kind in ("expired", "withdrawn") and own in asked:
            over[own] = asked.pop(own), each.at, kind
        elif kind == "command":
            given = object_of(body.get("arguments")) or {}
            own, verb = str(given.get("approval", "")), str(body.get("verb", ""))
            if own not in asked:
                continue
            earlier = set[str]() if given.get("arguments") else votes.get(own, set[str]())
            votes[own] = earlier | {each.event.by}
            if verb != "approve" or len(votes[own]) >= asked[own].event.body.get("quorum", 1):
                over[own] = asked.pop(own), each.at, f"{verb} by {each.event.by}"
        elif kind in ("undone", "closed"):
            is_closed = is_closed or kind == "closed"
            over |= {own: (begun, each.at, kind) for own, begun in asked.items()}
            asked.clear()
    for begun, end, how in over.values():
        yield _wait(begun, end, how)
    for begun in asked.values():
        yield _wait(begun, now, "", is_open=not is_closed)


def _wait(begun: Noted, end: float, how: str, *, is_open: bool = False) -> Bar:
    tool = str(begun.event.body.get("tool") or "")
    kind = str(begun.event.body.get("kind") or "")
    what = {
        "unknown": f"whether {tool} happened",
        "limit": "the budget",
        "question": f"an answer to {tool}",
    }.get(kind, tool)
    return Bar(
        kind="wait",
        label=f"waits for a person: {what}",
        start=begun.at,
        end=max(end, begun.at),
        state="running" if is_open else "done",
        detail=how,
        branch=begun.branch,
    )


def _marks(found: Iterable[Happening]) -> Iterator[Mark]:
    for each in found:
        if not isinstance(each, Noted):
            continue
        event = each.event
        tool = str(event.body.get("tool") or "")
        by = f" by {event.by}" if event.by else ""
        match event.kind:
            case "lost":
                text = f"worker lost in {tool or 'a call'}; the call is made again"
                yield Mark(at=each.at, text=text, is_bad=True)
            case "failed" | "undo_failed" | "damaged":
                what = event.kind.replace("_", " ")
                yield Mark(at=each.at, text=redact(f"{what}: {shortened(event.text)}"), is_bad=True)
            case "undone":
                yield Mark(
                    at=each.at, text=redact(f"undone{by}: {shortened(event.text)}".rstrip(": "))
                )
            case "restarted":
                yield Mark(at=each.at, text=f"step restarted{by}")
            case "forked":
                yield Mark(at=each.at, text=f"forked{by}")
            case _:
                continue


EffectState = Literal["done", "final", "undone", "remains", "unknown", "failed", "running"]

STATES: Mapping[EffectState, tuple[str, str]] = {
    "done": ("done", "positive"),
    "final": ("done, no undo", "primary"),
    "undone": ("undone", "grey"),
    "remains": ("remains", "negative"),
    "unknown": ("unknown", "negative"),
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
    kept = list(found)
    undone = {each.place: each.event.by for each in kept if isinstance(each, CallUndone)}
    left = undone_steps(kept)
    listed: list[Effect] = []
    for body in bodies_in(kept):
        for call in body.all_calls():
            policy = _policy(body, call, snapshot)
            place = effect_place(body.branch, body.key, call.batch, call.i)
            who = undone.get(place, undone.get(call.child) if call.child else None)
            effect = _effect(body, call, policy, who)
            if effect is None:
                continue
            if effect.state in ("done", "final") and (body.branch, body.n) in left:
                effect = replace(effect, state="remains")
            listed.append(effect)
    return listed


def _policy(body: StepBody, call: StepCall, snapshot: AgentSnapshot | None) -> ToolPolicy | None:
    if snapshot is None:
        return None
    team = (snapshot, *snapshot.team)
    agent = next((each for each in team if each.name == body.step.agent), snapshot)
    return policy_of(agent.policies, call.call)


def _effect(
    body: StepBody, call: StepCall, policy: ToolPolicy | None, undone_by: str | None
) -> Effect | None:
    outcome, called = call.outcome, call.called
    recorded = outcome.effect if outcome is not None else called.effect if called else ""
    effect = recorded or (policy.effect if policy else "")
    is_begun = called is not None or (
        outcome is not None and (outcome.attempts > 0 or outcome.status == "unknown")
    )
    is_read = effect == "read" and not call.child
    if not is_begun or is_read or (policy is not None and policy.handoff):
        return None
    state = _state(body, call, policy)
    edited = outcome.edited if outcome is not None else called.edited if called else ""
    decided = outcome.decided if outcome is not None else called.decided if called else ()
    return Effect(
        tool=call.call.name,
        arguments=redact(brief(data_of(edited or call.call.arguments))),
        result=redact(brief(shown(outcome.content))) if outcome is not None else "",
        state="undone" if undone_by is not None else state,
        n=body.n,
        branch=body.branch,
        at=outcome.ended if outcome is not None else called.at if called else 0.0,
        by=", ".join(dict.fromkeys(each.by for each in decided if each.by)),
        edited=bool(edited),
        child=call.child,
        undone_by=undone_by or "",
    )


def _state(body: StepBody, call: StepCall, policy: ToolPolicy | None) -> EffectState:
    outcome = call.outcome
    if outcome is None:
        if call.called is not None and call.called.error:
            return "failed"
        return "unknown" if body.is_over else "running"
    if outcome.status == "unknown":
        return "unknown"
    if outcome.status == "failed":
        return "failed"
    return "final" if policy is not None and not policy.has_undo and not policy.agent else "done"
