"""Requests to run steps: which of them wait for the task, and when they are answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from holdfast.task import refusals
from holdfast.task.data.commands import RunReply, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import AGENTS_SDK
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.steps import TaskStep

_MADE = re.compile(r"([0-9a-f]{7})~[0-9a-f]{8}")


def caller_of(request_id: str) -> str:
    """Return the caller that made a request, by the id that its AgentRunner made up; else empty.

    A caller that names its requests itself knows which step each of them ran.
    """
    found = _MADE.fullmatch(request_id)
    return found[1] if found else ""


class Pending:
    """One `run` update in progress.

    Attributes:
        id: The update's id.
        asked: What was asked.
        done: Whether the update may return.
        reply: What it returns then, or why it fails.
        parked: Whether the task waits with that failure; false when the request was wrong.
        joins: Number of the open step whose output it gets, although the step was begun for
            another caller; 0 for none.
    """

    def __init__(
        self, request_id: str, asked: RunRequest, tell: Callable[[], None] | None = None
    ) -> None:
        """Remember the request.

        Args:
            request_id: Its id.
            asked: What was asked.
            tell: Called when the update may return.
        """
        self.id = request_id
        self.asked = asked
        self._tell = tell
        self.done = False
        self.reply: RunReply | Failure = RunReply()
        self.parked = False
        self.joins = 0

    def answer(self, reply: RunReply) -> None:
        """Let the update return."""
        self.reply = reply
        self._finish()

    def fail(self, failure: Failure, *, parked: bool = False) -> None:
        """Let the update raise; with `parked`, the task waits with this failure."""
        self.reply = failure
        self.parked = parked
        self._finish()

    def _finish(self) -> None:
        self.done = True
        if self._tell is not None:
            self._tell()


class RunRequests:
    """Requests in the order in which they came."""

    def __init__(self) -> None:
        """Begin with none."""
        self._waiting: list[Pending] = []
        self._told: list[tuple[Pending, Failure]] = []

    def __bool__(self) -> bool:
        """Whether any request waits."""
        return bool(self._waiting)

    @property
    def want_a_step(self) -> bool:
        """Whether a request waits for one step, rather than for all."""
        return any(not (p.asked.all or p.asked.round or p.joins) for p in self._waiting)

    @property
    def round(self) -> Pending | None:
        """The first request for all ready steps at once."""
        return next((p for p in self._waiting if p.asked.round), None)

    @property
    def want_all(self) -> bool:
        """Whether a request waits for the task's answer."""
        return any(p.asked.all for p in self._waiting)

    def ask_anew(self, owners: Collection[str]) -> bool:
        """Whether a request waits whose step is not in progress.

        Args:
            owners: Ids of the requests whose steps are in progress.
        """
        return any(p.id not in owners and not p.joins for p in self._waiting)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the requests that wait."""
        return frozenset(pending.id for pending in self._waiting)

    def add(self, pending: Pending) -> None:
        """Take a request."""
        self._waiting.append(pending)

    def next_for(self, steps: tuple[TaskStep, ...], owners: Collection[str] = ()) -> Pending | None:
        """Return the next request for one step; refuse those whose step has been run meanwhile.

        Args:
            steps: The steps that may be run.
            owners: Ids of the requests whose steps are in progress already.
        """
        for pending in [p for p in self._waiting if not (p.asked.all or p.asked.round)]:
            if pending.id in owners or pending.joins:
                continue
            if pending.asked.step in {"", *(step.step_id for step in steps)}:
                return pending
            self._waiting.remove(pending)
            pending.fail(refusals.no_such_step(pending.asked.step, steps))
        return None

    def deliver(self, owner: str, reply: RunReply, owners: Collection[str] = ()) -> str:
        """Answer the request that a finished step belongs to; return its id, or empty.

        Args:
            owner: Id of the request for which the step was begun, or empty.
            reply: The answer.
            owners: Ids of the requests whose own steps are in progress.
        """
        if owner:
            found = next((p for p in self._waiting if p.id == owner), None)
        else:
            free = (p for p in self._waiting if p.asked.attaches and not p.joins)
            found = next((p for p in free if p.id not in owners), None)
        if found is None:
            return owner  # none waits: it was answered, has failed, or the task continued as new
        self._waiting.remove(found)
        found.answer(reply)
        return found.id

    def joined_by(self, caller: str) -> frozenset[int]:
        """Return the numbers of the open steps that requests of a caller have joined."""
        return frozenset(p.joins for p in self._waiting if p.joins and caller_of(p.id) == caller)

    def answer_joined(self, n: int, reply: RunReply) -> tuple[str, ...]:
        """Answer the requests that have joined a step; return their ids."""
        found = [p for p in self._waiting if p.joins == n]
        for pending in found:
            self._waiting.remove(pending)
            pending.answer(reply)
        return tuple(p.id for p in found)

    def answer_all(self, reply: RunReply, *, only_all: bool = False) -> None:
        """Answer all requests, or only those for the task's answer."""
        for pending in [p for p in self._waiting if p.asked.all or not only_all]:
            self._waiting.remove(pending)
            pending.answer(reply)

    def fail_all(self, failure: Failure, *, parked: bool = False) -> None:
        """Let all requests fail."""
        while self._waiting:
            self._waiting.pop(0).fail(failure, parked=parked)

    def fail_later(self, failure: Failure) -> None:
        """Keep all requests to fail at the next `tell`, when the steps next to have stopped too."""
        self._told += [(pending, failure) for pending in self._waiting]
        self._waiting.clear()

    def tell(self) -> None:
        """Let the requests fail that `fail_later` has kept."""
        while self._told:
            pending, failure = self._told.pop(0)
            pending.fail(failure, parked=True)

    def fail_some(self, ids: frozenset[str], failure: Failure) -> None:
        """Let the requests of these ids fail."""
        for pending in [p for p in self._waiting if p.id in ids]:
            self._waiting.remove(pending)
            pending.fail(failure)

    def settle(self, ledger: Ledger) -> None:
        """Answer requests that would wait for a person or a resume, or that nothing can answer."""
        s = ledger.s
        if ledger.status == "waiting" and _nested_run_goes_on(ledger):
            return
        if ledger.status == "waiting":
            asked = [a.n for a in s.approvals if a.status == "open"]
            asked += [a.n for child in s.children.values() for a in child.approvals]
            n = next((c.n for c in s.opens if c.n in asked), s.steps)
            self._settle_rounds(ledger, RunReply(status="waiting"))
            ledger.disown()
            self.answer_all(RunReply(n=n, status="waiting"))
        elif ledger.child_paused or (
            ledger.paused and (ledger.failure is not None or all(map(ledger.is_held, s.opens)))
        ):
            n = s.opens[0].n if s.opens else s.steps
            self._settle_rounds(ledger, RunReply(n=n, status="paused"))
            ledger.disown()
            self.answer_all(RunReply(n=n, status="paused"))
        elif s.answered and ledger.failure is None:
            self.answer_all(RunReply(n=s.steps), only_all=True)
            if not ledger.ready():
                self.fail_all(refusals.none_ready(s.queue) if s.queue else refusals.NO_STEPS)
        elif not s.opens and ledger.failure is None and not ledger.ready():
            self.fail_all(refusals.none_ready(s.queue) if s.queue else refusals.stalled(""))

    def _settle_rounds(self, ledger: Ledger, reply: RunReply) -> None:
        """Answer the requests for several steps; some of these have to wait."""
        for pending in [p for p in self._waiting if p.id in ledger.s.rounds]:
            self._waiting.remove(pending)
            done = ledger.s.rounds[pending.id]
            pending.answer(reply.model_copy(update={"round": tuple(done.values())}))
        ledger.change(rounds={})


def _nested_run_goes_on(ledger: Ledger) -> bool:
    """Whether a run of the Agents SDK's kind has a nested run that does not wait for anything.

    As there, it says what it waits for once its nested runs have come as far as they can.
    """
    if ledger.given.head.dialect != AGENTS_SDK:
        return False
    return any(
        child.status == "running" and not (child.approvals or child.closed or child.left)
        for child in ledger.s.children.values()
    )
