"""Undo in the workflow: obstacles are checked, then effects undone, then the head is moved.

The main loop takes it as far as no person must decide, then answers who asked for it.

Each undone effect is recorded before the next is begun, and the head moves last: an undo that stops
half way leaves the steps standing, and a later one does not call the same `undo=` again.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError
from temporalio.workflow import ActivityHandle

from holdfast.errors import BlobMissingError, DigestMismatchError
from holdfast.task import refusals, undo
from holdfast.task.data.calls import Approval
from holdfast.task.data.children import UndoAnswer
from holdfast.task.data.commands import RunReply
from holdfast.task.data.failures import NOT_REPEATABLE, NOT_STARTED, Failure
from holdfast.task.data.head import ToolPolicy
from holdfast.task.data.records import OpenState
from holdfast.task.data.undo import Obstacle, Undoable, UndoInput, UndoState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.queries.pages import call_label
from holdfast.tracing.switch import may_trace
from holdfast.values.base import Json, pause_of
from holdfast.values.messages import system
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import (
    LONGEST_TOOL,
    MOST_STARTS,
    PATIENT,
    QUICK,
    START_PAUSES,
    failure_of,
    is_certain,
    now,
)
from holdfast.workflows.children.children import ChildUndos
from holdfast.workflows.core import Core
from holdfast.workflows.tools.tool_runs import begun

# Undo of one effect: a person is asked where the tool wants it, then its `undo=` is called.
#
# The ledger keeps what is undone, and what may be. That an undo of an effect may have taken effect
# outlasts the undo that it was part of: a person may end that one without an answer, and the next
# one must not call `undo=` again as if nothing had been tried.


def note_done(ledger: Ledger, state: UndoState, key: str, what: str) -> None:
    """Remember that an effect is undone; `key` names it, `what` is its text for people."""
    state = ledger.s.undo or state  # a parent may have changed it meanwhile
    if state.unclear or ledger.s.unclear_undos:
        state = note_clear(ledger, state, key)
    state.done, state.undone = (*state.done, key), (*state.undone, what)
    ledger.s.undo = state


def note_unclear(ledger: Ledger, state: UndoState, key: str, what: str, text: str) -> None:
    """Remember that an undo may have taken effect, also when this one ends without an answer."""
    ledger.s.undo = state = ledger.s.undo or state
    state.unclear = {**state.unclear, key: what}
    ledger.s.unclear_undos = {**ledger.s.unclear_undos, key: text}


def note_clear(ledger: Ledger, state: UndoState, key: str) -> UndoState:
    """Remember that it is known now whether an effect is undone."""
    state = ledger.s.undo or state
    if key not in state.unclear and key not in ledger.s.unclear_undos:
        return state
    ledger.s.undo = state
    state.unclear = {k: what for k, what in state.unclear.items() if k != key}
    known = ledger.s.unclear_undos.items()
    ledger.s.unclear_undos = {k: text for k, text in known if k != key}
    return state


def fail_undo(
    ledger: Ledger, state: UndoState, what: str, why: str, facts: dict[str, Json]
) -> Failure:
    """End an undo after a part has failed, for a reason that may say what to do first."""
    stop_undo(ledger)
    done = "; ".join(state.undone) or "nothing"
    ledger.note("undo_failed", now=now(), text=why, body=facts)
    text = f"The undo of {what} failed: {why.rstrip('.')}. Undone before it: {done}."
    return Failure(type="UndoFailedError", message=text, remedy="Ask again.")


def stop_undo(ledger: Ledger) -> None:
    """Stop an undo before its end; effects that it has undone stay so, and a note names them."""
    state = ledger.s.undo
    if state is None:
        return
    approvals.drop_undo(ledger)
    ledger.s.undo = None
    ledger.s.undone_effects = state.done
    parts: list[str] = []
    if state.undone:
        parts.append(f"but this was undone: {'; '.join(state.undone)}")
    if state.unclear:
        unclear = "; ".join(state.unclear.values())
        parts.append(f"but it is unknown whether this was undone: {unclear}")
    if parts:
        text = f"An undo was begun and stopped. The steps stay, {', '.join(parts)}"
        ledger.s.notes = (*ledger.s.notes, system(text))


GRACE_SECONDS = 8
"""How long the undo of an effect may take once its task is ended; the task itself waits longer."""

CUT = "The task was ended meanwhile: it is unknown whether it was undone."

_LOST = frozenset({BlobMissingError.__name__, DigestMismatchError.__name__})
"""Failures of an undo whose effect is recorded by a value that the archive has lost."""

REPEATED = RetryPolicy(maximum_attempts=3, maximum_interval=timedelta(seconds=30))
ONCE = RetryPolicy(maximum_attempts=1)
"""For an `undo=` that must not be called again blindly: its worker may have been lost inside it."""


async def undo_effect(ledger: Ledger, target: Undoable, i: int) -> Failure | None:
    """Undo one effect, after asking a person where the tool wants it; it is recorded when done."""
    state, described = ledger.s.undo, ledger.s.described
    if state is None or described is None:
        return None
    effect = target.effects[i]
    policy = described.rules(target.step.agent).policies[effect.call.name]
    what, key = undo.in_words(effect), undo.effect_key(target, i)
    asked = _asked(ledger, target, i) if ledger.s.approvals else None
    unclear = ledger.s.unclear_undos.get(key, "")
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
        note_done(ledger, state, key, what)
        return None
    if asked is not None and asked.status != "approved":
        stop_undo(ledger)
        text = f"The undo of {effect.call.name} was {asked.status} by {asked.by}: {asked.note}"
        if unclear:
            text += f" An undo of {what} may have taken effect before; the next one asks again."
        return Failure(type="UndoRefusedError", message=text)
    # Newest effect first, one at a time. Recorded before the next begins: an undo that is cut here
    # goes on behind this effect, and calls no `undo=` twice.
    said = await _call_undo(ledger, target, i, policy)
    if isinstance(said, str):
        facts = _facts(target, i)
        ledger.note("effect_undone", now=now(), by=state.asked.by, text=said, body=facts)
        note_done(ledger, state, key, what)
        return None
    # As for a call: what may have happened is never repeated without a person.
    if may_have_happened(said, policy):
        text = f"The undo of {what} in step {target.n} {why_unknown(said)}"
        ledger.note("undo_unknown", now=now(), text=text, body=_facts(target, i))
        note_unclear(ledger, state, key, what, text)
        _ask(ledger, target, i, text)
        return None
    state, failure = note_clear(ledger, state, key), failure_of(said)
    if state.asked.residue == "keep" and failure.type in _LOST:
        _ask(ledger, target, i, f"The undo of {what} cannot be called: {failure.text}")
        return None
    return fail_undo(ledger, state, what, failure.text, _facts(target, i))


def _ask(ledger: Ledger, target: Undoable, i: int, text: str) -> None:
    """Ask a person about the undo of an effect, in the name of the agent whose call it was.

    The approval names its kind: a step in progress that has this number is not held by it.
    """
    effect, agent = target.effects[i], target.step.agent or ledger.given.head.agent
    approvals.ask(
        ledger,
        target.n,
        i,
        "undo",
        now=now(),
        text=text,
        call=effect.call,
        agent=agent,
        rule=effect.rule,
    )


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
        Its text, or how it failed.
    """
    starts = 0
    while True:
        said = await _call_undo_once(ledger, target, i, policy)
        if isinstance(said, str) or failure_of(said).type != NOT_STARTED or starts >= MOST_STARTS:
            return said
        name = target.effects[i].call.name
        await workflow.sleep(pause_of(starts, *START_PAUSES), summary=f"undo {name} again")
        starts += 1


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
        summary=f"undo {call_label(effect.call)}",
    )
    cut = False
    try:
        await workflow.wait([undoing])
    except asyncio.CancelledError:
        # The task is ended meanwhile. The activity has a few seconds to finish, so that its outcome
        # is recorded.
        cut = True
        await workflow.wait([undoing], timeout=GRACE_SECONDS)
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
        note_done(ledger, state, undo.effect_key(target, i), what)
        return
    certain = isinstance(said.cause, ApplicationError) and is_certain(said.cause)
    text = failure_of(said).text if certain else CUT
    ledger.note("undo_failed", now=now(), text=text, body=_facts(target, i))


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


def may_have_happened(error: ActivityError, policy: ToolPolicy) -> bool:
    """Whether an undo may have taken effect although its activity failed."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == NOT_REPEATABLE:
        return True
    if policy.undo_idempotent:
        return False
    return not (isinstance(cause, ApplicationError) and is_certain(cause))


def why_unknown(error: ActivityError) -> str:
    """Say to a person why it is not known whether an undo took effect, and how to decide."""
    cause = error.cause
    lost = "was cut off, because its worker was lost."
    why = f"failed: {cause.message}" if isinstance(cause, ApplicationError) else lost
    return (
        f"{why} It is not known whether it took effect. Approve: it did not, call it again."
        " Respond: it did. Reject: the undo ends here."
    )


async def run_undo(ledger: Ledger, children: ChildUndos) -> Failure | None:
    """Continue the undo in progress until it is done or needs a person.

    Args:
        ledger: The task; its step in progress, if any, is not being worked on any more.
        children: Undoes its child tasks.

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
    mine: list[tuple[Undoable, str]] = []
    stopped: list[Obstacle] = []
    if ledger.s.children or any(each.child for target in targets for each in target.effects):
        children.recall(targets)
        mine = [(target, name) for target, name in children.of(targets) if name not in state.done]
        stopped = await children.stop(name for _, name in mine)
    blocked: list[Obstacle] = []
    for target in targets:
        blocked += undo.obstacles(target, described.rules(target.step.agent).policies)
    blocked += stopped
    if state.mode == "check":
        answer = UndoAnswer(number=state.number, stands=tuple(blocked))
        state.mode = "held"
        ledger.s.undo, ledger.s.undo_answer = state, answer
        return None
    if blocked and state.asked.residue == "refuse":
        stop_undo(ledger)
        lines = "\n".join(f"- {each.text}" for each in blocked)
        done = "; ".join(state.undone) or "nothing"
        text = f"The undo was refused. Undone before it: {done}. In the way:\n{lines}\n"
        remedy = 'residue="keep" undoes the rest and records that these remain.'
        return Failure(type="UndoRefusedError", message=text, remedy=remedy)
    for target in reversed(targets):
        failure = await _undo_children(ledger, children, target, mine) if mine else None
        if failure is not None:
            return failure
        policies = described.rules(target.step.agent).policies
        for i, _ in undo.to_undo(target, policies, state):
            failure = await undo_effect(ledger, target, i)
            if failure is not None:
                return failure
            if approvals.undo_waits(ledger):
                return None
    _leave(ledger, children, targets, blocked)
    return None


async def _targets(ledger: Ledger, state: UndoState) -> list[Undoable]:
    """List the steps to be undone, oldest first; the step in progress is the last of them."""
    wanted = range(state.asked.to + 1, ledger.s.steps + 1)
    known = {
        record.n: undo.undoable(record)
        for record in undo.active_steps(ledger.log.entries)
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
            summary=f"{len(missing)} steps",
        )
        known |= {target.n: target for target in recalled}
        known = {n: known[n] for n in wanted}
    targets = list(known.values())
    if not ledger.s.opens:
        return targets
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


async def _undo_children(
    ledger: Ledger, children: ChildUndos, target: Undoable, mine: list[tuple[Undoable, str]]
) -> Failure | None:
    """Have the child tasks of a step undo what they did, the newest first."""
    for step, name in reversed(mine):
        failure = await _undo_child(ledger, children, name) if step is target else None
        if failure is not None:
            return failure
    return None


async def _undo_child(ledger: Ledger, children: ChildUndos, name: str) -> Failure | None:
    """Have a child task undo all that it did; it closes then."""
    state = ledger.s.undo
    if state is None or children.is_gone(name):
        return None
    failure = await children.undo(name, state.asked)
    state = ledger.s.undo or state
    if failure:
        what = f"task {name!r}"
        return fail_undo(ledger, state, what, failure, {"effect": what, "task": name})
    what = children.words(name)
    body: dict[str, Json] = {"effect": what, "task": name}
    ledger.note("effect_undone", now=now(), by=state.asked.by, body=body)
    note_done(ledger, state, name, what)
    return None


def answer_parent(ledger: Ledger, state: UndoState, failure: Failure | None) -> None:
    """Answer the parent that requested an undo with its result."""
    if state.mode == "release":
        return
    last = ledger.log.entries[-1].event if ledger.log.entries else None
    body = last.body if last is not None and failure is None else {}
    answer = UndoAnswer(
        number=state.number,
        undone=tuple(body.get("undone", ())),
        remains=tuple(body.get("remains", ())),
        failure=failure.message.rstrip() if failure is not None else "",
    )
    ledger.s.undo_answer = answer


def _leave(
    ledger: Ledger, children: ChildUndos, targets: list[Undoable], blocked: list[Obstacle]
) -> None:
    """Move the head, and record what was done."""
    state = ledger.s.undo
    if state is None:
        return
    known = {
        undo.effect_key(target, i): undo.in_words(effect)
        for target in targets
        for i, effect in enumerate(target.effects)
    }
    if ledger.s.children:
        known |= {name: children.words(name) for name in children.all_of(targets)}
        children.forget(targets)
    if ledger.s.approvals:
        approvals.close_open(ledger, now=now())
    ledger.s.delivery.rounds = {}
    if ledger.s.opens:
        undo.leave_open_steps(ledger, now=now(), by=state.asked.by)
    for target in reversed(targets):
        if target.n <= ledger.s.steps:
            undo.leave_step(ledger, target)
    state.undone = tuple(known[key] for key in state.done if key in known)
    if blocked:
        state.remains = tuple(each.text for each in blocked)
        state.check = tuple(each.text for each in blocked if each.is_unknown)
    state.steps = tuple(target.step.step_id for target in targets)
    undo.finish_undo(ledger, known, now=now())


async def undo_unit(core: Core) -> None:
    """Take the undo in progress to its end, or to a person; then answer what it concerns."""
    s, state = core.ledger.s, core.ledger.s.undo
    if state is None:
        return
    # The steps' unit was cancelled before this one began. Calls that it left running may have
    # taken effect, so they count as cut until a probe or a person says more.
    opens, branch = s.opens, s.branch
    state.cut = tuple(sorted({*state.cut, *core.running}))
    s.long_calls = ()
    try:
        if core.ledger.s.described is None:
            core.ledger.described(await calls.describe(core.ledger))
        core.undo_failure = await run_undo(core.ledger, core.child_undos)
    except FailureError as error:
        core.undo_failure = calls.failure_of(error)
        core.ledger.note("undo_failed", now=now(), text=core.undo_failure.text)
        stop_undo(core.ledger)
    # It still waits for a person. `cut` is in the ledger, for the unit that goes on later.
    if core.ledger.s.undo is not None:
        return
    if core.ledger.s.children:
        core.child_undos.release()
    core.running.clear()
    if core.undo_failure is None and may_trace():
        core.spans.left(opens, branch, at=now())
    await _over(core, state)


async def _over(core: Core, state: UndoState) -> None:
    """Answer the parent or the requests, and go on: with the steps, or with the end."""
    if state.number:
        answer_parent(core.ledger, state, core.undo_failure)
    if core.undo_failure is not None or state.mode == "release":
        await core.tool_calls.ask_about_cut(state.cut)
    elif state.number:
        core.ending.abandon(f"{state.asked.by or 'its parent'}: undone")
    else:
        core.requests.remember(state.request, RunReply(n=core.ledger.s.steps))
        # The requests whose steps were undone fail; later requests stay.
        if core.undone_requests:
            core.requests.fail_some(core.undone_requests, refusals.UNDONE)
        waiting = core.requests.waiting
        if waiting["all"] and not waiting["step"]:
            core.ledger.s.automatic = not core.ledger.s.answered
