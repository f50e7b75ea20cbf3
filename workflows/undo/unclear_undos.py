"""Undos of effects that may have taken effect although nobody has heard that they did.

What is known of one outlasts the undo that it was part of: a person may end that without an answer,
and the next one must not call it again as if nothing had been tried.
"""

from __future__ import annotations

from temporalio.exceptions import ActivityError, ApplicationError

from holdfast.task.data.state import UndoState
from holdfast.task.data.tool_failures import NOT_REPEATABLE, is_certain
from holdfast.task.data.tool_policy import ToolPolicy
from holdfast.task.ledger.ledger import Ledger


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


def note_unclear(ledger: Ledger, state: UndoState, key: str, what: str, text: str) -> None:
    """Remember that an undo may have taken effect, also when this one ends without an answer."""
    state = ledger.s.undo or state
    unclear = {**state.unclear, key: what}
    ledger.change(
        undo=state.model_copy(update={"unclear": unclear}),
        unclear_undos={**ledger.s.unclear_undos, key: text},
    )


def note_clear(ledger: Ledger, state: UndoState, key: str) -> UndoState:
    """Remember that it is known now whether an effect is undone."""
    state = ledger.s.undo or state
    known = {k: text for k, text in ledger.s.unclear_undos.items() if k != key}
    unclear = {k: what for k, what in state.unclear.items() if k != key}
    state = state.model_copy(update={"unclear": unclear})
    ledger.change(undo=state, unclear_undos=known)
    return state
