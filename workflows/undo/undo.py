"""Undo as the task does it: first what stands in the way, then each effect, then the head."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityHandle

from holdfast.task import approvals, undo
from holdfast.task.data.children import UndoAnswer
from holdfast.task.data.records import Approval, Failure, OpenState
from holdfast.task.data.state import UndoState
from holdfast.task.data.tool_failures import NOT_STARTED, is_certain
from holdfast.task.data.tool_policy import ToolPolicy
from holdfast.task.data.wire import Undoable, UndoInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.base import Json
from holdfast.values.messages import system
from holdfast.workflows.activity_calls import (
    LONGEST_TOOL,
    MOST_STARTS,
    PATIENT,
    QUICK,
    failure_of,
    now,
)
from holdfast.workflows.children.children import Children
from holdfast.workflows.children.finished import recall
from holdfast.workflows.tools.call_outcomes import begun
from holdfast.workflows.undo.unclear_undos import (
    may_have_happened,
    note_clear,
    note_unclear,
    why_unknown,
)

GRACE_SECONDS = 8
"""How long the undo of an effect may take once its task is ended; the task itself waits longer."""

CUT = "The task was ended meanwhile: it may have been undone, and nobody knows."

REPEATED = RetryPolicy(maximum_attempts=3, maximum_interval=timedelta(seconds=30))
ONCE = RetryPolicy(maximum_attempts=1)
"""For an `undo=` that must not be called again blindly: its worker may have been lost inside it."""


async def run_undo(ledger: Ledger, children: Children) -> Failure | None:
    """Take the undo in progress as far as it goes without a person.

    Args:
        ledger: The task; its step in progress, if any, is not being worked on any more.
        children: The tasks that work for it.

    Returns:
        Why the undo was refused or failed; None when it is done or waits for a person.
    """
    state = ledger.s.undo
    if state is None or ledger.s.described is None:
        return None
    if state.mode == "release":
        stop_undo(ledger)
        return None
    described = ledger.s.described
    targets = await _targets(ledger, state)
    recall(ledger, targets)
    mine = [(target, name) for target, name in children.of(targets) if name not in state.done]
    stopped = await children.stop(name for _, name in mine)
    blocked = [
        text
        for target in targets
        for text in undo.obstacles(target, described.rules(target.step.agent).policies)
    ] + stopped
    if state.mode == "check":
        answer = UndoAnswer(number=state.number, stands=tuple(blocked))
        ledger.change(undo=state.model_copy(update={"mode": "held"}), undo_answer=answer)
        return None
    if blocked and state.asked.residue == "refuse":
        stop_undo(ledger)
        lines = "\n".join(f"- {text}" for text in blocked)
        done = "; ".join(state.undone) or "nothing"
        text = (
            f"The undo was refused. Undone before it: {done}. In the way:\n{lines}\n"
            'residue="keep" undoes the rest and records that these remain.'
        )
        return Failure(type="UndoRefusedError", message=text)
    for target in reversed(targets):
        for name in [name for step, name in reversed(mine) if step is target]:
            failure = await _undo_child(ledger, children, name)
            if failure is not None:
                return failure
        policies = described.rules(target.step.agent).policies
        for i, _ in undo.to_undo(target, policies, state):
            failure = await _undo_effect(ledger, target, i)
            if failure is not None:
                return failure
            if approvals.undo_waits(ledger):
                return None
    _leave(ledger, children, targets, tuple(blocked))
    return None


async def _targets(ledger: Ledger, state: UndoState) -> list[Undoable]:
    """List the steps to be undone, oldest first; the step in progress is the last of them."""
    wanted = range(state.asked.to + 1, ledger.s.steps + 1)
    known = {
        record.n: undo.undoable(record)
        for record in undo.active_steps(ledger.entries)
        if record.n in wanted
    }
    if len(known) < len(wanted):
        missing = [n for n in wanted if n not in known]
        recalled: list[Undoable] = await workflow.execute_activity(
            "recall",
            missing,
            result_type=list[Undoable],
            start_to_close_timeout=QUICK,
            heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
            retry_policy=PATIENT,
        )
        known |= {target.n: target for target in recalled}
    targets = [known[n] for n in wanted]
    asked = [a for a in approvals.pending(ledger) if a.kind == "unknown"]
    cut = {*state.cut, *((approval.n, approval.i) for approval in asked), *begun(ledger)}
    for k, current in enumerate(ledger.s.opens, start=ledger.s.steps + 1):
        mine = {i for n, i in cut if n == current.n}
        targets.append(_of_open(current, mine, n=k, branch=ledger.s.branch))
    return targets


def _of_open(current: OpenState, cut: set[int], *, n: int, branch: int) -> Undoable:
    return Undoable(
        n=n,
        key=current.n,
        step=current.open.step,
        before=current.before,
        effects=undo.effects_of_open(current, cut),
        branch=branch,
    )


async def _undo_effect(ledger: Ledger, target: Undoable, i: int) -> Failure | None:
    """Undo one effect, after asking a person where the tool wants it; it is recorded when done."""
    state, described = ledger.s.undo, ledger.s.described
    if state is None or described is None:
        return None
    effect = target.effects[i]
    policy = described.rules(target.step.agent).policies[effect.call.name]
    what, key = undo.in_words(effect), undo.effect_key(target, i)
    asked, unclear = _asked(ledger, target, i), ledger.s.unclear_undos.get(key, "")
    if asked is None and unclear:
        _ask(ledger, target, i, f"An undo of {what} was tried before. {unclear}")
        return None
    if asked is None and policy.undo_needs_approval:
        _ask(ledger, target, i, f"Undo of {what} in step {target.n}")
        return None
    if asked is not None and asked.status == "open":
        return None
    if asked is not None and asked.status == "responded":
        facts = _facts(target, i)
        ledger.note("effect_undone", now=now(), by=asked.by, text=asked.message, body=facts)
        _note_done(ledger, state, key, what)
        return None
    if asked is not None and asked.status != "approved":
        stop_undo(ledger)
        text = f"The undo of {effect.call.name} was {asked.status} by {asked.by}: {asked.note}"
        if unclear:
            text += f" An undo of {what} may have taken effect before; the next one asks again."
        return Failure(type="UndoRefusedError", message=text)
    said = await _call_undo(ledger, target, i, policy)
    if isinstance(said, str):
        facts = _facts(target, i)
        ledger.note("effect_undone", now=now(), by=state.asked.by, text=said, body=facts)
        _note_done(ledger, state, key, what)
        return None
    if may_have_happened(said, policy):
        text = f"The undo of {what} in step {target.n} {why_unknown(said)}"
        ledger.note("undo_unknown", now=now(), text=text, body=_facts(target, i))
        note_unclear(ledger, state, key, what, text)
        _ask(ledger, target, i, text)
        return None
    state = note_clear(ledger, state, key)
    return _failed(ledger, state, what, failure_of(said).message, _facts(target, i))


def _ask(ledger: Ledger, target: Undoable, i: int, text: str) -> None:
    """Ask a person about the undo of an effect, in the name of the agent whose call it was.

    It is not asked of a step in progress that happens to have this number.
    """
    call, agent = target.effects[i].call, target.step.agent or ledger.given.head.agent
    approvals.ask(ledger, target.n, i, "undo", now=now(), text=text, call=call, agent=agent)


def _asked(ledger: Ledger, target: Undoable, i: int) -> Approval | None:
    """Return the newest question about the undo of an effect."""
    asked = (
        each
        for each in reversed(ledger.s.approvals)
        if (each.kind, each.n, each.i) == ("undo", target.n, i)
    )
    return next(asked, None)


async def _call_undo(
    ledger: Ledger, target: Undoable, i: int, policy: ToolPolicy
) -> str | ActivityError:
    """Call the `undo=` of an effect; one that is known not to have started is called again.

    Returns:
        What it says, or how it failed.
    """
    for attempt in itertools.count():
        said = await _call_undo_once(ledger, target, i, policy)
        if isinstance(said, str) or attempt >= MOST_STARTS:
            return said
        if failure_of(said).type != NOT_STARTED:
            return said
        await workflow.sleep(min(2.0**attempt, 60.0))
    raise RuntimeError  # unreachable: the loop returns


async def _call_undo_once(
    ledger: Ledger, target: Undoable, i: int, policy: ToolPolicy
) -> str | ActivityError:
    """Call the `undo=` of an effect.

    Raises:
        asyncio.CancelledError: The task is ended meanwhile. What is known of the undo is recorded.
    """
    effect = target.effects[i]
    undoing: ActivityHandle[str] = workflow.start_activity(
        "undo",
        UndoInput(
            n=target.key,
            i=i,
            effect=effect,
            branch=target.branch,
            agent=target.step.agent,
            step="" if target.step.step_id == f"s{target.key}" else target.step.step_id,
        ),
        result_type=str,
        start_to_close_timeout=LONGEST_TOOL,
        heartbeat_timeout=timedelta(seconds=ledger.given.heartbeat),
        retry_policy=REPEATED if policy.undo_idempotent else ONCE,
    )
    cut = await _is_cut(undoing)
    if not undoing.done():
        undoing.cancel()
        ledger.note("undo_failed", now=now(), text=CUT, body=_facts(target, i))
        raise asyncio.CancelledError
    try:
        said: str | ActivityError = undoing.result()
    except ActivityError as error:
        said = error
    if cut:
        _note_cut(ledger, target, i, said)
        raise asyncio.CancelledError
    return said


def _note_cut(ledger: Ledger, target: Undoable, i: int, said: str | ActivityError) -> None:
    """Record how an undo ended whose task is ended meanwhile."""
    state, what = ledger.s.undo, undo.in_words(target.effects[i])
    if state is None:
        return
    if isinstance(said, str):
        facts = _facts(target, i)
        ledger.note("effect_undone", now=now(), by=state.asked.by, text=said, body=facts)
        _note_done(ledger, state, undo.effect_key(target, i), what)
        return
    certain = isinstance(said.cause, ApplicationError) and is_certain(said.cause)
    text = failure_of(said).message if certain else CUT
    ledger.note("undo_failed", now=now(), text=text, body=_facts(target, i))


async def _is_cut(undoing: ActivityHandle[str]) -> bool:
    """Wait for the undo of an effect; return whether the task is ended meanwhile.

    It has a while to come to its end then, so that what it did is known.
    """
    try:
        await workflow.wait([undoing])
    except asyncio.CancelledError:
        await workflow.wait([undoing], timeout=GRACE_SECONDS)
        return True
    return False


async def _undo_child(ledger: Ledger, children: Children, name: str) -> Failure | None:
    """Undo all that a task did which was a call of this one; it is closed then."""
    state = ledger.s.undo
    if state is None or children.is_gone(name):
        return None
    failure = await children.undo(name, state.asked)
    state = ledger.s.undo or state
    if failure:
        what = f"task {name!r}"
        return _failed(ledger, state, what, failure, {"effect": what, "task": name})
    what = children.words(name)
    body: dict[str, Json] = {"effect": what, "task": name}
    ledger.note("effect_undone", now=now(), by=state.asked.by, body=body)
    _note_done(ledger, state, name, what)
    return None


def _facts(target: Undoable, i: int) -> dict[str, Json]:
    """Name an effect for the audit."""
    effect = target.effects[i]
    return {
        "effect": undo.in_words(effect),
        "tool": effect.call.name,
        "call_id": effect.call.id,
        "arguments": effect.call.arguments,
        "step": target.step.step_id,
        "branch": target.branch,
        "key": undo.effect_key(target, i),
    }


def _failed(
    ledger: Ledger, state: UndoState, what: str, why: str, facts: dict[str, Json]
) -> Failure:
    """End an undo of which a part has failed."""
    stop_undo(ledger)
    done = "; ".join(state.undone) or "nothing"
    ledger.note("undo_failed", now=now(), text=why, body=facts)
    text = f"The undo of {what} failed: {why}. Undone before it: {done}. Ask again."
    return Failure(type="UndoFailedError", message=text)


def _note_done(ledger: Ledger, state: UndoState, key: str, what: str) -> None:
    state = note_clear(ledger, state, key)
    done = {"done": (*state.done, key), "undone": (*state.undone, what)}
    ledger.change(undo=state.model_copy(update=done))


def answer_parent(ledger: Ledger, state: UndoState, failure: Failure | None) -> None:
    """Tell the parent, which wanted an undo, what came of it."""
    if state.mode == "release":
        return
    last = ledger.entries[-1].event if ledger.entries else None
    body = last.body if last is not None and failure is None else {}
    answer = UndoAnswer(
        number=state.number,
        undone=tuple(body.get("undone", ())),
        remains=tuple(body.get("remains", ())),
        failure=failure.message if failure is not None else "",
    )
    ledger.change(undo_answer=answer)


def stop_undo(ledger: Ledger) -> None:
    """End an undo that did not come to its end; what it has undone stays so, and is told."""
    state = ledger.s.undo
    if state is None:
        return
    approvals.drop_undo(ledger)
    ledger.change(undo=None, undone_effects=state.done)
    parts: list[str] = []
    if state.undone:
        parts.append(f"but this was undone: {'; '.join(state.undone)}")
    if state.unclear:
        unclear = "; ".join(state.unclear.values())
        parts.append(f"but this may have been undone, and nobody knows: {unclear}")
    if parts:
        text = f"An undo was begun and stopped. The steps stand, {', '.join(parts)}"
        ledger.change(notes=(*ledger.s.notes, system(text)))


def _leave(
    ledger: Ledger, children: Children, targets: list[Undoable], remains: tuple[str, ...]
) -> None:
    """Move the head, and record what was done."""
    state = ledger.s.undo
    if state is None:
        return
    steps = tuple(target.step.step_id for target in targets)
    check = tuple(text for text in remains if "nobody knows" in text)
    known = {
        undo.effect_key(target, i): undo.in_words(effect)
        for target in targets
        for i, effect in enumerate(target.effects)
    }
    known |= {name: children.words(name) for name in children.all_of(targets)}
    children.forget(targets)
    approvals.close_open(ledger, now=now())
    undo.leave_open_steps(ledger, now=now(), by=state.asked.by)
    for target in reversed(targets):
        if target.n <= ledger.s.steps:
            undo.leave_step(ledger, target)
    found = {
        "undone": tuple(known[key] for key in state.done if key in known),
        "remains": remains,
        "check": check,
        "steps": steps,
    }
    ledger.change(undo=state.model_copy(update=found))
    undo.finish_undo(ledger, known, now=now())
