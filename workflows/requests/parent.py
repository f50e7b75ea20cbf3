"""What the parent of a task says to it: the task is a call of an agent as a tool."""

from __future__ import annotations

from holdfast.task import refusals
from holdfast.task.data.children import SAYS, ParentSays, UndoAnswer, is_secret
from holdfast.task.data.commands import Command
from holdfast.task.data.records import Obstacle
from holdfast.task.requests.phase import ALLOWED, Word
from holdfast.values.base import Json
from holdfast.workflows.activity_calls import now
from holdfast.workflows.children.reports import undo_for_parent
from holdfast.workflows.core import Core


class ParentWords:
    """Does what the parent task says; the answer is the task's next report."""

    def __init__(self, core: Core) -> None:
        """Drive this task."""
        self._core = core
        self._unheard: list[ParentSays] = []

    def hear(self, said: ParentSays) -> None:
        """Do what the parent says, by the phase that this task is in."""
        core = self._core
        if core.given.parent is None or not is_secret(said.secret, core.given.secret):
            self.refuse(SAYS, "It did not come from a task that this one works for.")
            return
        core.ledger.change(heard=max(said.number, core.ledger.s.heard))
        word = _word(said)
        if word is None:
            return
        match ALLOWED[core.phase][word]:
            case "later":  # in case closing fails
                self._unheard.append(said)
            case "close":
                self._answer_undo(said)
                core.ending.try_again()
            case "take":
                self._take(word, said)
            case _:
                pass

    def hear_again(self) -> None:
        """Hear what was said while the task was closing, which has failed."""
        unheard, self._unheard = self._unheard, []
        for said in unheard:
            self.hear(said)

    def refuse(self, name: str, why: str) -> None:
        """Record a signal that was sent in the name of a parent, a child or an activity."""
        self._core.ledger.note("refused", now=now(), text=why, body={"verb": name})

    def _answer_undo(self, said: ParentSays) -> None:
        """Answer that an accepted end cannot be undone, if the parent wants an undo."""
        if said.undo and said.undo != "release":
            why = self._core.ending.refusal().message
            answer = UndoAnswer(number=said.number, stands=(Obstacle(text=why),), failure=why)
            self._core.ledger.change(undo_answer=answer)

    def _take(self, word: Word, said: ParentSays) -> None:
        core = self._core
        match word:
            case "end":
                self._end(said)
            case "hold":
                was = core.ledger.paused
                core.ledger.change(held=said.paused or "")
                core.hold_children(was)
                core.after_news()
            case "undo_for":
                core.undone_requests = core.requests.ids
                undo_for_parent(core.ledger, said)
            case "run_for" if core.ledger.failure is not None:
                core.unrollable = False
                core.ledger.change(automatic=True, tries_again=True)
            case "run_for":
                pass

    def _end(self, said: ParentSays) -> None:
        """Close as the task is: answered, failed, or neither, as in the middle of an undo."""
        core = self._core
        failure = core.ledger.failure
        rests = said.end == "finish" and core.ledger.s.undo is None
        if rests and core.ledger.s.answered and failure is None:
            core.end("finished")
        elif rests and refusals.is_verdict(failure):
            core.ledger.change(verdict=failure)
            core.end("failed")
        else:
            body: dict[str, Json] = {"reason": said.reason}
            core.abandon(Command(id="parent", verb="abandon", by=said.by, body=body))


def _word(said: ParentSays) -> Word | None:
    """Name what is said, by what comes first where several things are."""
    if said.end:
        return "end"
    if said.paused is not None:
        return "hold"
    if said.undo:
        return "undo_for"
    return "run_for" if said.run else None
