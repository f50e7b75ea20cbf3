"""What a task did outside: each call that was begun and does more than read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.desk.views.timeline import bodies_in, undone_steps
from holdfast.desk.views.words import brief, data_of
from holdfast.task.data.agent_snapshot import AgentSnapshot, ToolPolicy, policy_of
from holdfast.task.happenings import CallUndone, Happening
from holdfast.task.step_body import StepBody, StepCall
from holdfast.task.undo import effect_place
from holdfast.values.messages import shown
from holdfast.values.text.redact import redact

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
