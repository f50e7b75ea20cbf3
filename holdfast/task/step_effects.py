"""Effects of steps: what their calls have done, and what of it an undo can take back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.models.openai.hosted_items import calls_of_servers
from holdfast.task.data.agent_snapshot import ToolPolicy, policy_of
from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import OpenState, StepRecord
from holdfast.task.data.undo import EffectRef, Obstacle, Undoable, UndoState
from holdfast.task.ledger.references import told
from holdfast.values.messages import Message, ToolCall


def undoable(record: StepRecord) -> Undoable:
    """Reduce a completed step to what its undo needs."""
    return Undoable(
        n=record.n,
        key=record.key,
        step=record.step,
        added=len(record.adds),
        inverse=record.inverse,
        before=record.before,
        taken=record.taken,
        queued=len(record.next),
        effects=tuple(_effects_of_record(record)),
        branch=record.branch,
    )


def _effects_of_record(record: StepRecord) -> list[EffectRef]:
    batches = [(entry.calls, entry.outcomes) for entry in record.journal if entry.calls]
    batches.append((record.calls, record.outcomes))
    answers = [entry.answer.message for entry in record.journal if entry.answer is not None]
    made = [
        _effect(record.adds, call, outcome, batch, i)
        for batch, (calls, outcomes) in enumerate(batches)
        for i, (call, outcome) in enumerate(zip(calls, outcomes, strict=True))
    ]
    return [*made, *_effects_at_provider((*record.adds, *answers))]


def _effects_at_provider(messages: Iterable[Message]) -> Iterator[EffectRef]:
    """Yield the calls that MCP servers of the provider have run inside model calls."""
    for call, is_error in (each for message in messages for each in calls_of_servers(message)):
        yield EffectRef(call=call, status="failed" if is_error else "done", batch=-1)


def effects_of_open(current: OpenState, running: Iterable[int]) -> tuple[EffectRef, ...]:
    """List what the step in progress has done; calls that were running count as unknown."""
    done = [entry for entry in current.journal if entry.calls]
    effects = [
        _effect((), call, outcome, batch, i)
        for batch, entry in enumerate(done)
        for i, (call, outcome) in enumerate(zip(entry.calls, entry.outcomes, strict=True))
    ]
    cut = set(running)
    for i, call in enumerate(current.calls):
        outcome = current.outcomes.get(i)
        if outcome is not None:
            effects.append(_effect((), call, outcome, len(done), i))
        elif i in cut:
            effects.append(EffectRef(call=call, status="unknown", batch=len(done), i=i))
    answers = (entry.answer.message for entry in current.journal if entry.answer is not None)
    return (*effects, *_effects_at_provider(answers))


def _effect(
    adds: Sequence[Message], call: ToolCall, outcome: Outcome, batch: int, i: int
) -> EffectRef:
    return EffectRef(
        call=call.model_copy(update={"arguments": outcome.edited}) if outcome.edited else call,
        content=told(adds, call, outcome).content,
        status=outcome.status,
        ran=outcome.attempts > 0 or outcome.status == "unknown",
        batch=batch,
        i=i,
        child=outcome.child,
    )


def obstacles(target: Undoable, policies: Mapping[str, ToolPolicy]) -> list[Obstacle]:
    """List the effects of a step that an undo cannot take back."""
    found: list[Obstacle] = []
    for effect in target.effects:
        policy = policy_of(policies, effect.call)
        if policy is None or policy.effect == "read" or not effect.ran:
            continue
        what = step_words(target.n, effect.call.name, effect.call.arguments)
        if effect.status == "unknown":
            text = f"{what} may have happened; nobody knows"
            found.append(Obstacle(text=text, is_unknown=True))
        elif effect.status == "done" and effect.call.server:
            text = (
                f"{what} was run by the provider, which has no undo; while its approval stands, the"
                " next model call lets the provider run it again"
            )
            found.append(Obstacle(text=text))
        elif effect.status == "done" and not policy.has_undo:
            found.append(Obstacle(text=f"{what} was done and has no undo="))
    return found


def to_undo(
    target: Undoable, policies: Mapping[str, ToolPolicy], state: UndoState
) -> list[tuple[int, EffectRef]]:
    """List the effects of a step to be undone now, newest first, with their positions."""
    found = [
        (i, effect)
        for i, effect in enumerate(target.effects)
        if effect.status == "done"
        and effect.ran
        and (policy := policy_of(policies, effect.call)) is not None
        and policy.has_undo
        and effect_key(target, i) not in state.done
    ]
    return found[::-1]


def effect_key(target: Undoable, i: int) -> str:
    """Name one effect of one step, the same while the step is open and when it is done."""
    effect = target.effects[i]
    return effect_place(target.branch, target.key, effect.batch, effect.i)


def effect_place(branch: int, key: int, batch: int, i: int) -> str:
    """Name the place of a call in its task: branch, number of the step, batch and position."""
    return f"{branch}.{key}.{batch}.{i}"


def step_words(n: int, tool: str, arguments: str) -> str:
    """Name an effect of a step for people."""
    return f"step {n}: {tool}({arguments})"


def in_words(effect: EffectRef) -> str:
    """Name an effect for people."""
    return f"{effect.call.name}({effect.call.arguments})"
