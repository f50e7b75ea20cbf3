"""Undo of one effect: a person is asked where the tool wants it, then its `undo=` is called."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import islice

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityHandle

from holdfast.task import step_effects
from holdfast.task.data.agent_snapshot import ToolPolicy
from holdfast.task.data.calls import Approval
from holdfast.task.data.failures import NOT_REPEATABLE, NOT_STARTED, Failure
from holdfast.task.data.undo import Undoable, UndoInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.queries.labels import call_label
from holdfast.values.base import Json
from holdfast.values.pauses import pauses
from holdfast.workflows.activity_calls import (
    LONGEST_TOOL,
    MOST_STARTS,
    START_PAUSES,
    failure_of,
    is_certain,
    now,
)
from holdfast.workflows.undo.undo_progress import (
    fail_undo,
    note_clear,
    note_done,
    note_unclear,
    stop_undo,
)

GRACE_SECONDS = 8
"""How long the undo of an effect may take once its task is ended; the task itself waits longer."""

CUT = "The task was ended meanwhile: it may have been undone, and nobody knows."

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
    what, key = step_effects.in_words(effect), step_effects.effect_key(target, i)
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
    state = note_clear(ledger, state, key)
    return fail_undo(ledger, state, what, failure_of(said).message, _facts(target, i))


def _ask(ledger: Ledger, target: Undoable, i: int, text: str) -> None:
    """Ask a person about the undo of an effect, in the name of the agent whose call it was.

    The approval names its kind: a step in progress that has this number is not held by it.
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
        Its text, or how it failed.
    """
    for pause in islice(pauses(*START_PAUSES), MOST_STARTS):
        said = await _call_undo_once(ledger, target, i, policy)
        if isinstance(said, str) or failure_of(said).type != NOT_STARTED:
            return said
        name = target.effects[i].call.name
        await workflow.sleep(pause, summary=f"undo {name} again")
    return await _call_undo_once(ledger, target, i, policy)


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
    state, what = ledger.s.undo, step_effects.in_words(target.effects[i])
    if state is None:
        return
    if isinstance(said, str):
        facts = _facts(target, i)
        ledger.note("effect_undone", now=now(), by=state.asked.by, text=said, body=facts)
        note_done(ledger, state, step_effects.effect_key(target, i), what)
        return
    certain = isinstance(said.cause, ApplicationError) and is_certain(said.cause)
    text = failure_of(said).text if certain else CUT
    ledger.note("undo_failed", now=now(), text=text, body=_facts(target, i))


async def _is_cut(undoing: ActivityHandle[str]) -> bool:
    """Wait for the undo of an effect; return whether the task is ended meanwhile.

    The activity then has a few seconds to finish, so that its outcome is recorded.
    """
    try:
        await workflow.wait([undoing])
    except asyncio.CancelledError:
        await workflow.wait([undoing], timeout=GRACE_SECONDS)
        return True
    return False


def _facts(target: Undoable, i: int) -> dict[str, Json]:
    """Name an effect for the audit."""
    effect = target.effects[i]
    return {
        "effect": step_effects.in_words(effect),
        "tool": effect.call.name,
        "call_id": effect.call.id,
        "arguments": effect.call.arguments,
        "step": target.step.step_id,
        "branch": target.branch,
        "key": step_effects.effect_key(target, i),
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
