"""Requests of the parent task to this one, which is a call of an agent as a tool."""

from __future__ import annotations

from holdfast.task import refusals
from holdfast.task.data.children import SAYS, ParentSays, UndoAnswer, is_secret
from holdfast.task.data.commands import Command
from holdfast.task.data.undo import Obstacle
from holdfast.task.requests.command_effects import configure
from holdfast.task.requests.phase import ALLOWED, Word
from holdfast.values.base import Json
from holdfast.workflows.activity_calls import now
from holdfast.workflows.children.reports import undo_for_parent
from holdfast.workflows.core import Core


class ParentWords:
    """Carries out the requests of the parent task; the task's next report is the answer."""

    def __init__(self, core: Core) -> None:
        """Drive this task."""
        self._core = core
        self._postponed: list[ParentSays] = []

    def take(self, said: ParentSays) -> None:
        """Carry out a request of the parent, as the phase of this task allows."""
        core = self._core
        if core.given.parent is None or not is_secret(said.secret, core.given.secret):
            self.refuse(SAYS, "It did not come from a task that this one works for.")
            return
        core.ledger.change(heard=max(said.number, core.ledger.s.heard))
        word = _word(said)
        if word is None:
            return
        match ALLOWED[core.phase][word]:
            case "later":  # closing answers it by ending the task, unless closing fails
                self._postponed.append(said)
            case "close":
                self._answer_undo(said)
                core.ending.try_again()
            case "take":
                self._carry_out(word, said)
            case _:
                pass

    def take_postponed(self) -> None:
        """Carry out the requests that came while the task was closing, which has failed."""
        postponed, self._postponed = self._postponed, []
        for said in postponed:
            self.take(said)

    def refuse(self, name: str, why: str) -> None:
        """Record a signal that is refused: it claims a sender whose secret it does not have."""
        self._core.ledger.note("refused", now=now(), text=why, body={"verb": name})

    def _answer_undo(self, said: ParentSays) -> None:
        """Answer that an accepted end cannot be undone, if the parent wants an undo."""
        if said.undo and said.undo != "release":
            why = self._core.ending.refusal().message
            answer = UndoAnswer(number=said.number, stands=(Obstacle(text=why),), failure=why)
            self._core.ledger.change(undo_answer=answer)

    def _carry_out(self, word: Word, said: ParentSays) -> None:
        core = self._core
        match word:
            case "end":
                self._end(said)
            case "hold":
                was = core.ledger.paused
                core.ledger.change(held=said.paused or "")
                core.hold_children(was)
                core.after_news()
            case "change":
                self._configure(said)
            case "undo_for":
                core.undone_requests = core.requests.ids
                undo_for_parent(core.ledger, said)
            case "run_for" if core.ledger.failure is not None:
                core.unrollable = False
                core.ledger.change(automatic=True, tries_again=True)
            case "run_for":
                pass

    def _configure(self, said: ParentSays) -> None:
        """Give this run the settings that the calling run was given, unless it has its own."""
        ledger, change = self._core.ledger, said.change
        if change is None or not ledger.takes_settings:
            return
        if change.applied(ledger.head) == ledger.head:
            return
        for part in (change, change.without("model", "model_settings")):  # as the step allows
            refused = configure(ledger, part)
            shown = Command(verb="configure", body=part.wire()).shown
            body: dict[str, Json] = {"verb": "configure", "arguments": shown}
            kind = "refused" if refused else "command"
            ledger.note(kind, now=now(), by=said.by, text=refused, body=body)
            if not refused:
                self._core.children.configure(said.by)
                return

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
    """Return the verb of a request; of one that has several, the one that is carried out."""
    if said.end:
        return "end"
    if said.paused is not None:
        return "hold"
    if said.undo:
        return "undo_for"
    if said.change is not None:
        return "change"
    return "run_for" if said.run else None
