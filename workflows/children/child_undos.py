"""Undo of child tasks: the children of the steps to be undone, stopped, then undone or released."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow

from holdfast.task.data.children import ChildState
from holdfast.task.data.undo import Obstacle, Undoable, UndoRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.workflows.children.children import Children


class ChildUndos:
    """Stops the children of steps that must be undone, and has them undo what they did."""

    def __init__(self, ledger: Ledger, children: Children) -> None:
        """Undo children of this task."""
        self._ledger = ledger
        self._children = children

    def _known(self) -> dict[str, ChildState]:
        return self._ledger.s.children

    def of(self, targets: Iterable[Undoable]) -> list[tuple[Undoable, str]]:
        """List the children of steps whose calls stand, with their steps, oldest first."""
        found: list[tuple[Undoable, str]] = []
        for target in targets:
            mine = [name for name in self.all_of([target]) if not self._known()[name].left]
            found += [(target, name) for name in mine]
        return found

    def all_of(self, targets: Iterable[Undoable]) -> list[str]:
        """List all children of steps, oldest first."""
        steps = {(target.branch, target.key) for target in targets}
        mine = [(c.place, name) for name, c in self._known().items() if c.place[:2] in steps]
        return [name for _, name in sorted(mine)]

    async def stop(self, names: Iterable[str]) -> list[Obstacle]:
        """Stop children, wait for their answers, and list what is in the way."""
        wanted = list(names)
        asked = {
            name: self._children.send(name, undo="check")
            for name in wanted
            if not self.is_gone(name)
        }
        # Noted before the answers come: if this undo is cut, `release` lets these go on.
        for name in asked:
            self._children.change(name, held=True)
        # A child that is closed or lost counts as having answered: it cannot answer any more.
        await workflow.wait_condition(lambda: self._said_of_undo(asked))
        return [each for name in wanted for each in self._stands(name)]

    def is_gone(self, name: str) -> bool:
        """Whether a child is closed, so that nothing of it can be undone."""
        return self._known()[name].closed

    def _said_of_undo(self, asked: dict[str, int]) -> bool:
        known = self._known()
        return all(self._has_answered(known[name], number) for name, number in asked.items())

    def _has_answered(self, child: ChildState, number: int) -> bool:
        return child.closed or (child.undo is not None and child.undo.number >= number)

    def _stands(self, name: str) -> list[Obstacle]:
        child = self._known()[name]
        if child.closed:
            text = f"task {name!r} is closed, and what it did cannot be undone from here"
            return [Obstacle(text=text)]
        found = child.undo.stands if child.undo else ()
        return [each.model_copy(update={"text": f"task {name!r}, {each.text}"}) for each in found]

    async def undo(self, name: str, asked: UndoRequest) -> str:
        """Undo all that a child did, and end it; return why not all was undone, or empty."""
        if self.is_gone(name):
            return ""
        keep = asked.residue == "keep"
        number = self._children.send(name, undo="do", keep=keep, by=asked.by, reason=asked.reason)
        await workflow.wait_condition(lambda: self._said_of_undo({name: number}))
        answer = self._known()[name].undo
        if answer is None or answer.number < number:
            return "it has ended"
        failure = answer.failure or "; ".join(each.text for each in answer.stands)
        if not failure:
            self._children.leave_call(name, "undone")
        return failure

    def words(self, name: str) -> str:
        """Name a child for people, with what was undone in it."""
        child = self._known().get(name)
        undone = child.undo.undone if child is not None and child.undo is not None else ()
        return f"task {name!r}: {'; '.join(undone) or 'nothing to undo'}"

    def forget(self, targets: Iterable[Undoable]) -> None:
        """Forget the children of steps that were undone; a branch has its own names for them."""
        gone = self.all_of(targets)
        for name in gone:
            self._children.emit_span(name, status="undone")
        self._ledger.forget_children(gone)

    def release(self) -> None:
        """Let children go on that were stopped for an undo and were not undone."""
        for name, child in self._known().items():
            if child.held:
                self._children.change(name, held=False)
                self._children.send(name, undo="release")
