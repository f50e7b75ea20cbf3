"""Undo of one effect: a person is asked where the tool wants it, then its `undo=` is called.

The ledger keeps what is undone, and what may be. That an undo of an effect may have taken effect
outlasts the undo that it was part of: a person may end that one without an answer, and the next one
must not call `undo=` again as if nothing had been tried.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import islice

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityHandle

from holdfast.errors import BlobMissingError, DigestMismatchError
from holdfast.task import undo
from holdfast.task.data.agent_snapshot import ToolPolicy
from holdfast.task.data.calls import Approval
from holdfast.task.data.failures import NOT_REPEATABLE, NOT_STARTED, Failure
from holdfast.task.data.undo import Undoable, UndoInput, UndoState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.queries.labels import call_label
from holdfast.values.base import Json
from holdfast.values.messages import system
from holdfast.values.pauses import pauses
from holdfast.workflows.activity_calls import (
    LONGEST_TOOL,
    MOST_STARTS,
    START_PAUSES,
    failure_of,
    is_certain,
    now,
)


def note_done(ledger: Ledger, state: UndoState, key: str, what: str) -> None:
    """Remember that an effect is undone; `key` names it, `what` is its text for people."""
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
