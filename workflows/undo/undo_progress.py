"""What the ledger keeps of an undo in progress: what is undone, and what may be.

That an undo of an effect may have taken effect outlasts the undo that it was part of: a person may
end that one without an answer, and the next one must not call `undo=` again as if nothing had been
tried.
"""

from __future__ import annotations

from holdfast.task.data.failures import Failure
from holdfast.task.data.undo import UndoState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.values.base import Json
from holdfast.values.messages import system
from holdfast.workflows.activity_calls import now


def note_done(ledger: Ledger, state: UndoState, key: str, what: str) -> None:
    """Remember that an effect is undone; `key` names it, `what` is its text for people."""
    state = note_clear(ledger, state, key)
    done = {"done": (*state.done, key), "undone": (*state.undone, what)}
    ledger.change(undo=state.model_copy(update=done))


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


def fail_undo(
    ledger: Ledger, state: UndoState, what: str, why: str, facts: dict[str, Json]
) -> Failure:
    """End an undo of which a part has failed."""
    stop_undo(ledger)
    done = "; ".join(state.undone) or "nothing"
    ledger.note("undo_failed", now=now(), text=why, body=facts)
    text = f"The undo of {what} failed: {why}. Undone before it: {done}."
    return Failure(type="UndoFailedError", message=text, remedy="Ask again.")


def stop_undo(ledger: Ledger) -> None:
    """Stop an undo before its end; effects that it has undone stay so, and a note names them."""
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
