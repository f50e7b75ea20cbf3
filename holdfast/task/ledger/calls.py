"""The open calls of steps in progress: a part of a task's ledger. Pure."""

from __future__ import annotations

from holdfast.task.data.agent_snapshot import policy_of
from holdfast.task.data.calls import Begun, Called, Decided, Outcome, call_digest
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import JournalEntry, OpenState
from holdfast.task.data.wire import ToolInput
from holdfast.task.ledger.ledger_state import INLINE_BYTES, LedgerState
from holdfast.values.base import Json, canonical
from holdfast.values.messages import ToolCall


class OpenCalls:
    """Begins calls and takes their outcomes. A call is named by its step and its position there."""

    def __init__(self, ledger: LedgerState) -> None:
        """Change the steps in progress of this task."""
        self._ledger = ledger
        self._s = ledger.s

    def missing(self, n: int) -> list[int]:
        """Positions of a step's open calls that have no outcome yet."""
        current = self._ledger.at(n)
        if not current.calls:
            return []
        return [i for i in range(len(current.calls)) if i not in current.outcomes]

    def is_missing(self, n: int, i: int) -> bool:
        """Whether an open call of a step has no outcome yet."""
        current = self._ledger.find(n)
        return current is not None and i < len(current.calls) and i not in current.outcomes

    def tool_input(self, n: int, i: int, edited: ToolCall | None = None) -> ToolInput:
        """Return the input of the tool activity for a call, as a person edited it if one did."""
        current = self._ledger.at(n)
        big = len(canonical(current.state)) > INLINE_BYTES
        answers, resume = self._answers(n, i)
        return ToolInput(
            answers=answers,
            resume=resume,
            n=current.n,
            i=i,
            sha=call_digest(edited or current.calls[i]),
            call=edited,
            branch=self._s.branch,
            batch=current.batch,
            child=self._ledger.child(n, i),
            patch=current.begun.get(i, Begun()).patch,
            agent=current.open.step.agent,
            step="" if current.open.step.step_id == f"s{current.n}" else current.open.step.step_id,
            state={} if big else current.state,
            big=big,
            head=self._ledger.changed_head,
        )

    def _answers(self, n: int, i: int) -> tuple[dict[str, Json], str]:
        """Return the answers to the questions of a call, and what its tool wants back with them.

        A call that begins again is given all answers of before, any other one the newest.
        """
        found = [
            a
            for a in self._ledger.asked.at(self._s.branch, n, i)
            if a.asks is not None and a.answers
        ]
        newest = found[0].asks if found else None
        if newest is None:
            return {}, ""
        used = reversed(found) if newest.repeats else found[:1]
        return {key: each for a in used for key, each in a.answers.items()}, newest.state

    def begins(self, n: int, i: int, *, now: float, edited: str = "", child: str = "") -> None:
        """Record that an open call is begun: from now on it may have taken effect.

        Args:
            n: The step.
            i: Position of the call.
            now: Time, seconds since the epoch.
            edited: The arguments with which it runs, when a person changed them.
            child: For a call of an agent as a tool: id of its child task.
        """
        current = self._ledger.at(n)
        facts = self.facts(current, i)
        found = Called(at=now, edited=edited, child=child).model_copy(update=facts)
        current.called[i] = found  # in place, because there may be thousands

    def not_begun(self, n: int, i: int) -> None:
        """Record that a call was not begun after all."""
        self._ledger.at(n).called.pop(i, None)

    def failed(self, n: int, i: int, text: str, *, now: float) -> None:
        """Record that a call that was begun is certain to have taken no effect."""
        called = self._ledger.at(n).called
        if i in called:
            called[i] = called[i].model_copy(update={"error": text, "ended": now})

    def lost(self, n: int, i: int, lost: int, *, now: float) -> None:
        """Note that the worker of a repeatable call was lost, and that the call is made again.

        Args:
            n: The step.
            i: Position of the call.
            lost: How many times it was lost up to now.
            now: Time, seconds since the epoch.
        """
        current = self._ledger.at(n)
        call = current.calls[i]
        body = {"tool": call.name, "call_id": call.id, "step": current.open.step.step_id}
        self._ledger.note("lost", now=now, body={**body, "attempt": lost + 1})

    def tried(self, n: int, i: int) -> int:
        """Count the attempts that the activity of the step made of a call which has not its own."""
        called = self._ledger.at(n).called.get(i)
        return 0 if called is None else called.tried

    def clear(self, n: int, i: int) -> None:
        """Record that an open call turned out to need no approval."""
        current = self._ledger.at(n)
        current.cleared = (*current.cleared, i)

    def wait(self, n: int, i: int, over: Outcome) -> None:
        """Record that an open call waits, with its outcome then."""
        current = self._ledger.at(n)
        edited = current.called.get(i, Called(at=0.0)).edited
        over = over.model_copy(update={"edited": edited, **self.facts(current, i)})
        current.waiting = {**current.waiting, i: over}

    def stop(self, n: int, stops: dict[int, Failure]) -> None:
        """Record why a step will stop once its calls in progress have ended."""
        current = self._ledger.find(n)
        if current is not None:
            current.stops = stops

    def begin_child(self, n: int, i: int, begun: Begun) -> None:
        """Record what guardrails and hooks did before the child task of an open call begins."""
        self._ledger.at(n).begun[i] = begun

    def outcome(self, n: int, i: int, got: Outcome) -> None:
        """Record the outcome of an open call."""
        current = self._ledger.at(n)
        child = self._ledger.child(n, i)
        if child:
            got = got.model_copy(update={"child": child, "usage": self._s.children[child].usage})
            self._s.costs.usage += got.usage
        got = got.model_copy(update=self.facts(current, i))
        if i in current.begun:
            got = got.model_copy(update={"guards": (*current.begun.pop(i).guards, *got.guards)})
        # No await: at any moment a call either may be running, or has its outcome. In place,
        # because there may be thousands.
        current.called.pop(i, None)
        current.waiting.pop(i, None)
        current.outcomes[i] = got
        self._ledger.log.mark(current, "done", i, batch=current.batch)

    def settled(self, n: int, i: int, got: Outcome, *, now: float) -> None:
        """Record the outcome of a call as a probe or a person tells it: it took until now."""
        called = self._ledger.at(n).called.get(i)
        # A call that never began took no time, and one that failed without an effect ended then.
        if called is not None and not called.error:
            took = round(max(now - called.at, 0.0), 3)
            ran = got.edited or called.edited
            got = got.model_copy(update={"ended": now, "took": took, "edited": ran})
        self.outcome(n, i, got)

    def hand_back(self, n: int) -> None:
        """Hand the outcomes of calls made in the middle of a step to its journal."""
        # All calls have outcomes here (`Steps._advance`): the journal takes an answer whole.
        current = self._ledger.at(n)
        outcomes = tuple(current.outcomes[i] for i in range(len(current.calls)))
        entry = JournalEntry(request=current.asked, calls=current.calls, outcomes=outcomes)
        current.journal = (*current.journal, entry)
        current.calls, current.asked, current.cleared = (), "", ()
        current.outcomes, current.called, current.state = {}, {}, {}
        self._ledger.asked.forget(n)  # used: later calls at these places ask again

    def facts(self, current: OpenState, i: int) -> dict[str, object]:
        """Return the facts of an open call for the audit: its decisions and its side effect."""
        described = self._s.described
        policies = described.rules(current.open.step.agent).policies if described else {}
        policy = policy_of(policies, current.calls[i])
        decided = tuple(
            Decided(
                approval=a.id,
                kind=a.kind,
                status=a.status,
                by=a.by,
                at=a.at,
                note=a.note,
                rule=a.rule,  # the undo of the call asks the same people
            )
            for a in reversed(list(self._ledger.asked.at(self._s.branch, current.n, i)))
            if a.status in ("approved", "rejected", "responded", "expired")
        )
        return {"decided": decided, "effect": policy.effect if policy is not None else ""}
