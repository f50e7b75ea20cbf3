"""The `run` requests that wait for a task, and when they are answered without a step being run."""

from __future__ import annotations

from holdfast.ledger import Ledger
from holdfast.records import Failure
from holdfast.state import RunReply
from holdfast.steps import TaskStep
from holdfast.workflows import calls
from holdfast.workflows.pending import Pending


class Requests:
    """Requests in the order in which they came."""

    def __init__(self) -> None:
        """Begin with none."""
        self._waiting: list[Pending] = []

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    @property
    def want_a_step(self) -> bool:
        """Whether somebody waits for one step, rather than for the task's answer."""
        return any(not pending.asked.all for pending in self._waiting)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the requests that wait."""
        return frozenset(pending.id for pending in self._waiting)

    def add(self, pending: Pending) -> None:
        """Take a request."""
        self._waiting.append(pending)

    def next_for(self, steps: tuple[TaskStep, ...]) -> Pending | None:
        """Return the next request for one step; refuse those whose step has been run meanwhile."""
        for pending in [p for p in self._waiting if not p.asked.all]:
            if pending.asked.step in {"", *(step.step_id for step in steps)}:
                return pending
            self._waiting.remove(pending)
            pending.fail(calls.no_such_step(pending.asked.step))
        return None

    def deliver(self, owner: str, reply: RunReply) -> str:
        """Answer the request that a finished step belongs to; return its id, or empty.

        Args:
            owner: Id of the request for which the step was begun, or empty.
            reply: The answer.
        """
        if owner:
            found = next((p for p in self._waiting if p.id == owner), None)
        else:
            found = next((p for p in self._waiting if p.asked.attaches), None)
        if found is None:
            return owner  # an owner that is away asks again after a rollover
        self._waiting.remove(found)
        found.answer(reply)
        return found.id

    def answer_all(self, reply: RunReply, *, only_all: bool = False) -> None:
        """Answer everybody, or only those who wait for the task's answer."""
        for pending in [p for p in self._waiting if p.asked.all or not only_all]:
            self._waiting.remove(pending)
            pending.answer(reply)

    def fail_all(self, failure: Failure, *, parked: bool = False) -> None:
        """Tell everybody of a failure."""
        while self._waiting:
            self._waiting.pop(0).fail(failure, parked=parked)

    def fail_some(self, ids: frozenset[str], failure: Failure) -> None:
        """Tell these of a failure."""
        for pending in [p for p in self._waiting if p.id in ids]:
            self._waiting.remove(pending)
            pending.fail(failure)

    def settle(self, ledger: Ledger) -> None:
        """Answer those who would otherwise wait for a person, or have nothing to wait for."""
        n = ledger.s.current.n if ledger.s.current is not None else ledger.s.steps
        if ledger.status == "waiting":
            ledger.disown()
            self.answer_all(RunReply(n=n, status="waiting"))
        elif ledger.s.paused and (ledger.s.current is None or ledger.failure is not None):
            self.answer_all(RunReply(n=n, status="paused"))
        elif ledger.s.answered and ledger.failure is None:
            self.answer_all(RunReply(n=n), only_all=True)
            if not ledger.s.queue:
                self.fail_all(calls.NO_STEPS)
