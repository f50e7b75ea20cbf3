"""Who gets which output: the requests to run steps that wait, and what each of them is given.

`GETS` has an answer for every kind of request and every outcome. What must outlive the present run
of the workflow is in `Delivery`, a part of the ledger. The requests themselves are not carried
over. At a rollover each is answered with "moved", and its client sends it again to the next run.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from holdfast.task import refusals
from holdfast.task.data.commands import RunReply, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import AGENTS_SDK
from holdfast.task.data.records import StepRecord
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people.approvals import asked_everywhere
from holdfast.values.steps import TaskStep

Kind = Literal["step", "join", "round", "all"]
"""step: asks for one step. join: gets the output of a step that was begun for another caller.
round: asks for all steps that are ready, at once. all: asks for the task's answer."""

Outcome = Literal["done", "waits", "answered", "over", "idle", "failed", "moved", "closed", "ended"]
"""done: a step of the request's is. waits: the task waits for a person, who is to decide, or has
paused it. answered: it has its answer, and a step can be begun. over: it has, and none can. idle:
nothing is in progress, and nothing can be begun. failed: a step has. moved: the next run of the
workflow goes on. closed: the task is, with its answer. ended: it is, without one."""

Gets = Literal["output", "part", "news", "failure", "nothing"]
"""output: the step, or the answer. part: a step of its round, which is answered with the last one.
news: what the task waits for, with what is done of a round. nothing: it waits on."""

KINDS: tuple[Kind, ...] = get_args(Kind)


def _row(*gets: Gets) -> dict[Kind, Gets]:
    return dict(zip(KINDS, gets * len(KINDS), strict=False))


GETS: Mapping[Outcome, Mapping[Kind, Gets]] = {
    # what a request of each kind gets: step, join, round, all
    "done": _row("output", "output", "part", "nothing"),
    "answered": _row("nothing", "nothing", "nothing", "output"),
    "over": _row("failure", "failure", "failure", "output"),
    "closed": _row("failure", "failure", "failure", "output"),
    "waits": _row("news"),
    "moved": _row("news"),
    "idle": _row("failure"),
    "failed": _row("failure"),
    "ended": _row("failure"),
}
"""What a request of each kind gets by each outcome."""

SEEN_KEPT = 5000
"""Requests whose replies are kept: one that is sent again is not carried out again."""

GIVEN_KEPT = 64
"""Most steps whose callers are remembered."""

_MADE = re.compile(r"([0-9a-f]{7})~[0-9a-f]{8}")


def caller_of(request_id: str) -> str:
    """Return the caller that made a request, by the id that its AgentRunner made up; else empty.

    A caller that names its requests itself knows which step each of them ran.
    """
    found = _MADE.fullmatch(request_id)
    return found[1] if found else ""


@dataclass(eq=False)
class Pending:
    """One `run` update in progress.

    Attributes:
        id: The update's id.
        asked: What was asked.
        tell: Called when the update may return.
        done: Whether the update may return.
        reply: What it returns then, or why it fails.
        parked: Whether the task waits with that failure; false when the request was wrong.
        kind: What it asks for, once it waits.
        joins: Number of the open step whose output it gets, although the step was begun for
            another caller; 0 for none.
    """

    id: str
    asked: RunRequest
    tell: Callable[[], None] | None = None
    done: bool = False
    reply: RunReply | Failure = field(default_factory=RunReply)
    parked: bool = False
    kind: Kind = "step"
    joins: int = 0

    def answer(self, reply: RunReply | Failure, *, parked: bool = False) -> None:
        """Let the update return, or raise; with `parked`, the task waits with this failure."""
        self.reply = reply
        self.parked = parked
        self.done = True
        if self.tell is not None:
            self.tell()


_ID: Callable[[Pending], str] = operator.attrgetter("id")


class RunRequests:
    """Requests to run steps that wait, and who has got which output.

    Attributes:
        waiting: The requests of each kind, in the order in which they came.
        told: Requests that fail when the steps next to a failed one have ended, with its failure.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Serve this task; begin with no request."""
        self.waiting: dict[Kind, list[Pending]] = {kind: [] for kind in KINDS}
        self.told: list[tuple[Pending, Failure]] = []
        self._ledger = ledger

    def ask_anew(self, owners: Collection[str]) -> bool:
        """Whether a request waits whose step is not in progress.

        Args:
            owners: Ids of the requests whose steps are in progress.
        """
        kinds = (self.waiting[kind] for kind in ("step", "round", "all"))
        return any(pending.id not in owners for each in kinds for pending in each)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the requests that wait."""
        return frozenset(map(_ID, itertools.chain.from_iterable(self.waiting.values())))

    def known(self, pending: Pending) -> RunReply | None:
        """Return the reply to a request that needs no step, or None.

        By the request its caller acknowledges all that was sent to it before.
        """
        asked, caller, sent = pending.asked, caller_of(pending.id), self._ledger.s.delivery
        if sent.given:
            self.acknowledge(caller)
        left = sent.undelivered
        is_bare = bool(left or sent.given) and asked.attaches
        n = self.ungiven(caller) if is_bare else 0
        if n:
            reply = RunReply(n=n, branch=self._ledger.branch_of(n))
            self._give(n, (pending.id,))
            self.remember(pending.id, reply)
            return reply
        if asked.round and left and not self._ledger.s.opens:
            reply = RunReply(n=left[0], round=left)
            self._ledger.s.delivery.undelivered = ()
            self.remember(pending.id, reply)
            return reply
        if asked.all and not self._ledger.s.answered:
            self._ledger.s.automatic = True
            self._ledger.s.delivery.undelivered = self._ledger.s.delivery.given = ()
        return None

    def add(self, pending: Pending) -> None:
        """Take a request; a bare one may join a step that was begun for another caller.

        A caller that was killed in a step and starts again is another one to the task.
        """
        asked, opens = pending.asked, self._ledger.s.opens
        pending.kind = "all" if asked.all else "round" if asked.round else "step"
        caller = caller_of(pending.id) if opens else ""
        if caller and asked.attaches:
            others = self.waiting["join"]
            taken = {p.joins for p in others if caller_of(p.id) == caller} if others else set[int]()
            for current in opens:
                owner = caller_of(current.owner)
                is_running = current.failure is None and current.n not in taken
                if owner not in ("", caller) and is_running:
                    pending.kind, pending.joins = "join", current.n
                    break
        self.waiting[pending.kind].append(pending)

    def next_for(self, steps: tuple[TaskStep, ...], owners: Collection[str] = ()) -> Pending | None:
        """Return the next request for one step; refuse those whose step has been run meanwhile.

        Args:
            steps: The steps that may be run.
            owners: Ids of the requests whose steps are in progress already.
        """
        for pending in tuple(self.waiting["step"]):
            if pending.id in owners:
                continue
            wanted = pending.asked.step
            if not wanted or any(step.step_id == wanted for step in steps):
                return pending
            self.waiting["step"].remove(pending)
            pending.answer(refusals.no_such_step(wanted, steps))
        return None

    def step_done(self, record: StepRecord, owner: str) -> None:
        """Give a step that was completed to the requests that it belongs to.

        Args:
            record: The step.
            owner: Id of the request for which it was begun, or empty.
        """
        ledger, s = self._ledger, self._ledger.s
        found = [p for p in self.waiting["join"] if p.joins == record.key]
        rounds = s.delivery.rounds
        if owner in rounds:
            plan = {**rounds[owner], record.step.step_id: record.n}
            s.delivery.rounds = {**rounds, owner: plan}
            self.close_rounds()
        elif owner:
            found += [p for p in (*self.waiting["step"], *self.waiting["join"]) if p.id == owner]
        else:
            own = ledger.owners
            free = (p for p in self.waiting["step"] if p.asked.attaches and p.id not in own)
            found += itertools.islice(free, 1)
        reply, done = RunReply(n=record.n, branch=record.branch), list[str]()
        for pending in found:
            self.waiting[pending.kind].remove(pending)
            pending.answer(reply)
            done.append(pending.id)
        if owner not in ("", *rounds, *done):
            done.append(owner)  # none waits: it has failed, or was told to move on
        # Remembered before the handler of the update wakes up: the same request, sent again after a
        # rollover, gets this reply and begins no second step.
        for request in done:
            self.remember(request, reply)
        if s.automatic:
            return
        if done:
            self._give(record.n, done)
        elif owner not in rounds and ledger.failure is None:
            s.delivery.undelivered = (*s.delivery.undelivered, record.n)

    def begin_round(self, pending: Pending, plan: Collection[TaskStep]) -> None:
        """Note which steps a round runs; open steps of no request are run for it."""
        self._ledger.own(pending.id)
        planned = {step.step_id: 0 for step in plan}
        self._ledger.s.delivery.rounds = {**self._ledger.s.delivery.rounds, pending.id: planned}

    def close_rounds(self) -> None:
        """Answer the rounds that are done; drop from the others the steps that cannot begin.

        Such a step was dropped from the queue, or a join must run before it.
        """
        s = self._ledger.s
        if not s.delivery.rounds:
            return
        ready = () if s.lasts and s.opens else self._ledger.queue.ready()
        there = {step.step_id for step in (*ready, *(current.open.step for current in s.opens))}
        left: dict[str, dict[str, int]] = {}
        for owner, planned in s.delivery.rounds.items():
            plan = {step: n for step, n in planned.items() if n or step in there}
            if plan and all(plan.values()):
                reply = RunReply(n=max(plan.values()), round=tuple(plan.values()))
                for pending in [p for p in self.waiting["round"] if p.id == owner]:
                    self.waiting["round"].remove(pending)
                    pending.answer(reply)
                self.remember(owner, reply)
            elif plan:
                left[owner] = plan
        s.delivery.rounds = left

    def settle(self) -> None:
        """Answer requests that would wait for a person or a resume, or that nothing can answer."""
        ledger, s = self._ledger, self._ledger.s
        status, failure = ledger.status, ledger.failure
        if status == "waiting":
            if not (s.children and _nested_run_goes_on(ledger)):
                asked = {a.n for a in asked_everywhere(ledger)}
                n = next((c.n for c in s.opens if c.n in asked), s.steps)
                self.rest("waits", RunReply(n=n, status="waiting"))
        elif (s.children and ledger.child_paused) or (
            ledger.paused and (failure is not None or all(map(ledger.is_held, s.opens)))
        ):
            n = s.opens[0].n if s.opens else s.steps
            self.rest("waits", RunReply(n=n, status="paused"))
        elif failure is None and (s.answered or not s.opens):
            is_ready = bool(ledger.queue.ready())
            none = refusals.none_ready(s.queue) if s.queue and not is_ready else None
            if s.answered:
                reply, none = RunReply(n=s.steps), none or refusals.NO_STEPS
                self.tell("answered" if is_ready else "over", reply, none)
            elif not is_ready:
                self.tell("idle", failure=none or refusals.stalled(""))

    def rest(
        self, outcome: Outcome, reply: RunReply | None = None, failure: Failure | None = None
    ) -> None:
        """Answer all requests, as `tell` does: no step in progress is any of theirs then."""
        self._ledger.disown()
        self.tell(outcome, reply, failure)
        self._ledger.s.delivery.rounds = {}

    def tell(
        self, outcome: Outcome, reply: RunReply | None = None, failure: Failure | None = None
    ) -> None:
        """Give the requests that wait what the table says.

        Args:
            outcome: What has happened.
            reply: The output, or the news.
            failure: With what the others fail.
        """
        rounds = self._ledger.s.delivery.rounds
        for kind, gets in GETS[outcome].items():
            found = self.waiting[kind]
            if gets == "nothing" or not found:
                continue
            self.waiting[kind] = []
            for pending in found:
                if gets == "failure" and failure is not None:
                    # Those of a failed step fail once the steps next to it have ended.
                    if outcome == "failed":
                        self.told.append((pending, failure))
                    else:
                        pending.answer(failure)
                elif reply is not None:
                    done = tuple(rounds.get(pending.id, {}).values())
                    pending.answer(reply.model_copy(update={"round": done}) if done else reply)

    def tell_failures(self) -> None:
        """Let the requests fail that were told of a failed step."""
        while self.told:
            pending, failure = self.told.pop(0)
            pending.answer(failure, parked=True)

    def fail_some(self, ids: Collection[str], failure: Failure) -> None:
        """Let the requests of these ids fail."""
        for kind, found in self.waiting.items():
            self.waiting[kind] = [pending for pending in found if pending.id not in ids]
            for pending in found:
                if pending.id in ids:
                    pending.answer(failure)

    def remember(self, request_id: str, reply: RunReply) -> None:
        """Keep the reply to a request, so that the same request gets it again."""
        # The oldest is forgotten first: a request is sent again within minutes, if at all.
        seen = self._ledger.s.delivery.seen  # in place, because there may be thousands
        seen[request_id] = reply
        if len(seen) > SEEN_KEPT:
            del seen[next(iter(seen))]

    def acknowledge(self, caller: str) -> None:
        """Forget the outputs that a caller has got, as its next request or signal shows.

        The answer is kept: a program that is run again after its end gets it once more.
        """
        s = self._ledger.s
        if not s.delivery.given:
            return
        answer = s.steps if s.answered else 0
        left = [each for each in s.delivery.given if caller not in each[1] or each[0] == answer]
        s.delivery.given = tuple(left)

    def ungiven(self, caller: str) -> int:
        """Return the first completed step that no one is known to have got, this caller included.

        Args:
            caller: The caller; empty for one that is not known.

        Returns:
            The step's ordinal; 0 for none.
        """
        # The lowest first: outputs reach each caller in the order of the steps.
        known = self._ledger.s.delivery
        found = list(known.undelivered)
        if caller and known.given:
            found += [n for n, callers in known.given if caller not in callers]
        return min(found, default=0)

    def _give(self, n: int, requests: Collection[str]) -> None:
        """Record that the output of a completed step is sent to the callers of requests."""
        known = self._ledger.s.delivery
        given, left = dict(known.given), known.undelivered
        for caller in filter(None, map(caller_of, requests)):
            given[n] = (*given.get(n, ()), caller)
        if n in left:
            left = tuple(each for each in left if each != n)
        known.given, known.undelivered = tuple(sorted(given.items())[-GIVEN_KEPT:]), left


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
