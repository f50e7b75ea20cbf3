"""An undo that ends before it begins, and the questions that it has asked by then."""

from typing import Any, cast

import pytest

from holdfast.task.data.children import ChildState
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import Described, TaskInput
from holdfast.task.data.undo import Obstacle, UndoRequest, UndoState
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.values.messages import ToolCall
from holdfast.workflows.children.children import ChildUndos
from holdfast.workflows.undo.undo import run_undo

CALL = ToolCall(id="k1", name="book", arguments="{}")


class InTheWay:
    """Children that stand in the way of an undo."""

    def recall(self, _targets: Any) -> None:
        """Have none in the archive."""

    def of(self, _targets: Any) -> list[Any]:
        """Have no call of the steps that are to be undone."""
        return []

    def all_of(self, _targets: Any) -> list[Any]:
        """Have no call of the steps that are left."""
        return []

    def forget(self, _targets: Any) -> None:
        """Know nothing to forget."""

    async def stop(self, _names: Any) -> list[Obstacle]:
        """Say what stands in the way, one of them unknown."""
        return [Obstacle(text="task 'c' is closed"), Obstacle(text="odd words", is_unknown=True)]


def undoing(**fields: Any) -> Ledger:
    """Make a task with an undo in progress, which has asked about its call."""
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    ledger.described(Described(snapshot="s"))
    ledger.s.undo = UndoState(asked=UndoRequest(to=0), **fields)
    approvals.ask(ledger, 1, 0, "undo", now=2.0, call=CALL)
    return ledger


async def end(ledger: Ledger) -> str:
    """Take the undo to its end; return why it was refused, or empty."""
    ledger.put_child("c", ChildState(place=(0, 1, 0, 0), closed=True))
    failure = await run_undo(ledger, cast("ChildUndos", InTheWay()))
    assert ledger.s.undo is None
    return failure.message if failure is not None else ""


async def test_a_refused_undo_leaves_no_question() -> None:
    ledger = undoing()
    said = await end(ledger)
    assert "Undone before it: nothing. In the way:\n- task 'c' is closed\n- odd words\n" in said
    assert approvals.pending(ledger) == []


async def test_what_is_to_be_checked_after_an_undo_is_what_is_unknown_whatever_its_words_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.workflows.undo.undo.now", lambda: 3.0)
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    ledger.described(Described(snapshot="s"))
    ledger.s.undo = UndoState(asked=UndoRequest(to=0, residue="keep"))
    assert await end(ledger) == ""
    events = [entry.event for entry in ledger.log.entries if entry.event is not None]
    [undone] = [event for event in events if event.kind == "undone"]
    assert undone.body["remains"] == ["task 'c' is closed", "odd words"]
    assert undone.body["check"] == ["odd words"]


async def test_an_undo_that_is_refused_half_way_tells_what_it_has_undone() -> None:
    ledger = undoing(done=("0.1.0.1",), undone=("book({})",))
    assert "Undone before it: book({})." in await end(ledger)
    assert ledger.s.undone_effects == ("0.1.0.1",)
    assert any("book({})" in note.text for note in ledger.s.notes)


def test_a_question_about_an_undo_is_none_about_a_call_at_the_same_place() -> None:
    ledger = undoing()
    assert approvals.latest(ledger, 1, 0) is None
    assert approvals.latest(ledger, 1, 0, "undo") is not None
    asked = approvals.ask(ledger, 1, 0, "tool", now=3.0, call=CALL)
    approvals.ask(ledger, 1, 0, "undo", now=4.0, call=CALL)
    assert approvals.latest(ledger, 1, 0) == asked
