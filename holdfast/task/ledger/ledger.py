"""The state of one task: a pure machine that the workflow drives and every replay drives again.

It decides nothing by clock or chance and does no I/O: times come in as arguments. Everything it
knows fits into a `Carried`, plus the entries since the last segment that went to the archive.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

from holdfast.models.openai.hosted_items import MOST_OUTLINES, hosted_calls
from holdfast.task.data.calls import Approval, Begun, Called, Decided, Outcome, call_digest
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.failures import NOT_STARTED, Failure
from holdfast.task.data.head import SessionRef, policy_of
from holdfast.task.data.records import (
    Entry,
    JournalEntry,
    LeftStep,
    Mark,
    OpenState,
    OpenStep,
    StepRecord,
    usual_step,
)
from holdfast.task.data.state import AgentRules, Carried, Described, TaskInput
from holdfast.task.data.undo import UNCHANGED, Before
from holdfast.task.data.wire import Advanced, AdvanceInput, ToolInput
from holdfast.task.ledger.ledger_state import INLINE_BYTES, LedgerState
from holdfast.task.ledger.money import Money
from holdfast.task.ledger.queue import (
    Upcoming,
    lasts_after,
    pending,
    problem,
    queued_with,
    taken_from,
)
from holdfast.task.ledger.recording import (
    cost_of,
    joined,
    new_entries,
    newest_answer,
    resolve_calls,
    results_of,
    turns_of,
    usage_of,
    without_adds,
)
from holdfast.task.refusals import is_verdict
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json, canonical, digest, extend
from holdfast.values.checks.gate import MOST_CALLS
from holdfast.values.messages import ToolCall, shown
from holdfast.values.steps import Task, TaskStep

# The open calls of steps in progress: a part of a task's ledger. Pure.


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
        asked = self._ledger.asked.at(self._s.branch, n, i)
        answered = [a for a in asked if a.asks is not None and a.answers]
        answers, resume = _answers(answered) if answered else ({}, "")
        return ToolInput(
            answers=answers,
            resume=resume,
            n=current.n,
            i=i,
            sha=call_digest(edited or current.calls[i]),
            call=edited,
            branch=self._s.branch,
            batch=current.batch,
            child=self._ledger.child(n, i) if self._s.children else "",
            patch=current.begun.get(i, Begun()).patch,
            agent=current.open.step.agent,
            step="" if current.open.step.step_id == f"s{current.n}" else current.open.step.step_id,
            state={} if big else current.state,
            big=big,
            head=self._ledger.changed_head,
        )

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
        child = self._ledger.child(n, i) if self._s.children else ""
        if child:
            began = current.called[i].at if i in current.called else got.ended
            # What the outcome says is how long the activity took that reads the child's result.
            took = max(round(got.ended - began, 3), got.took)
            own = {"child": child, "usage": self._s.children[child].usage, "took": took}
            got = got.model_copy(update=own)
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


def _answers(found: Sequence[Approval]) -> tuple[dict[str, Json], str]:
    """Return the answers to the questions of a call, and what its tool wants back with them.

    A call that begins again is given all answers of before, any other one the newest.

    Args:
        found: The answered questions of the call, newest first.
    """
    newest = found[0].asks
    if newest is None:
        return {}, ""
    used = reversed(found) if newest.repeats else found[:1]
    return {key: each for a in used for key, each in a.answers.items()}, newest.state


_WAITS: Callable[[OpenState], str] = operator.attrgetter("waits")
_WAITING: Callable[[OpenState], object] = operator.attrgetter("waiting")

_SENT: Mapping[str, Literal["", "finish", "past"]] = {
    "": "",
    "allow": "",
    "finish": "finish",
    "past": "past",
}
"""What the activity of a step learns of its limit."""
_ONCE = frozenset({"allow", "past"})
"""Limits of a step that are for one model call."""

AT_DIGITS = 16
"""Digits of the transcript digest that an activity gets: 64 bits. The ledger keeps all of them."""


class Ledger(LedgerState):
    """One task's state. Methods are called in the order in which things happened.

    Attributes:
        queue: The steps to come, and what waits next to them.
        calls: The open calls of steps in progress.
        money: What the task has cost and may cost.
    """

    def __init__(self, given: TaskInput, *, task_id: str, now: float) -> None:
        """Begin a task, or go on with one that continued as new.

        Args:
            given: The workflow's input.
            task_id: The task's id.
            now: Time in seconds since the epoch.
        """
        super().__init__(given, task_id=task_id, now=now)
        self.queue = Upcoming(self)
        self.calls = OpenCalls(self)
        self.money = Money(self)

    def carried(self) -> Carried:
        """Return the state with which the task continues as new."""
        return self.s.model_copy(update={"log": self.log.recorded(), **self.queue.carry()})

    def described(self, result: Described) -> None:
        """Record the result of `describe`."""
        self.s.described = result
        self.s.failure = None
        if result.step != TaskStep() and self.s.steps == 0 and self.s.queue:
            first = self.s.queue[0]
            custom = result.step.model_copy(
                update={"task_id": "", "step_id": result.step.step_id or first.step_id}
            )
            self.s.queue = (custom, *self.s.queue[1:])

    def is_guarded(self, current: OpenState) -> bool:
        """Whether guardrails look at a step: its agent's, or those of the run."""
        described = self.s.described
        if described is None:
            return False
        return bool(described.run_guards or described.rules(current.open.step.agent).guards)

    def begin(self, asked: RunRequest, *, now: float, owner: str = "", step_id: str = "") -> None:
        """Open a queued step, the first that is ready or the one asked for.

        Args:
            asked: The request.
            now: Time, seconds since the epoch.
            owner: Id of the request.
            step_id: Id of the step, for a request that does not name one.
        """
        opened, before = self.queue.take(asked, step_id or asked.step)
        # With a second step in progress no step can tell by itself what the one before it left: an
        # undo takes all of them together, by what the first one found.
        siblings, lane = self.s.opens, 0
        if siblings:
            for each in siblings:
                each.alone, each.before = False, Before()
            # The lowest free lane: a lane names the kept answer in the archive, which the next step
            # of the lane replaces, so two open steps must never share one.
            lane = min(set(range(len(siblings) + 1)) - {each.lane for each in siblings})
        current = OpenState(
            open=opened,
            n=self.last_opened + 1,
            at=self.s.transcript,
            alone=not siblings and not self.s.lasts,
            lane=lane,
            started=now,
            owner=owner,
            before=before,
            stream=asked.stream,
        )
        self.s.answered = False
        self.s.failure = None
        self.log.mark(current, "start")
        self.s.opens = (*siblings, current)

    def retry(self, n: int, asked: RunRequest, *, now: float, owner: str = "") -> None:
        """Try a step that failed again, from its journal or, when asked to, from nothing."""
        current = self.at(n)
        opened = current.open
        images = asked.images_after(opened.step)
        step = opened.step.model_copy(update={"images": images})
        opened = opened.model_copy(update={"step": step})
        if asked.brings_input:
            step = step.model_copy(update={"input": asked.input, "behind": len(opened.notes)})
            opened = opened.model_copy(update={"step": step, "stored": asked.stored})
        if asked.tool_choice:
            opened = opened.model_copy(update={"tool_choice": asked.tool_choice})
        if asked.restart or current.is_unfit:
            current = self._restarted(current, opened, now=now)
        else:
            current.open, current.failure = opened, None
        current.owner, current.stream = owner, current.stream or asked.stream
        self.tried_again(n)
        self.s.failure = None
        self.try_children_again(n)

    def _restarted(self, current: OpenState, opened: OpenStep, *, now: float) -> OpenState:
        """Drop what a step has done; return it as it begins once more, to read this."""
        # What was paid for stands in the ledger before it is dropped: costs and audit count it.
        # The journal of an unfit answer would give it once more.
        n = current.n
        dropped = [f"{current.calls[i].name}: {o.status}" for i, o in current.outcomes.items()]
        body: dict[str, Json] = {"answers": len(current.journal), "calls": dropped}
        self.leave(n, "restarted", now=now)
        self.note("restarted", now=now, body=body)
        # The new calls may get the same places. An undo of theirs must not count as done already.
        mine = f"{self.s.branch}.{n}."
        self.s.undone_effects = tuple(k for k in self.s.undone_effects if not k.startswith(mine))
        unclear = self.s.unclear_undos.items()
        self.s.unclear_undos = {k: v for k, v in unclear if not k.startswith(mine)}
        self.asked.forget(n)  # they were of the calls dropped here
        if current.is_unfit:
            answer = newest_answer(current.journal)
            lacking = () if answer is None else answer.message.open_calls or answer.open_calls
            changed = {"told": len(opened.notes), "unanswered": lacking}
            opened = opened.model_copy(update=changed)
        fresh = OpenState(
            open=opened,
            n=n,
            at=current.at,
            alone=current.alone,
            lane=current.lane,
            started=current.started,
            before=current.before,
            marks=current.marks[:1],
            stream=current.stream,
            tried=current.tried,
            unbegun=True,
        )
        self.s.opens = tuple(fresh if each is current else each for each in self.s.opens)
        return fresh

    def tried_again(self, n: int, *, lost: str = "") -> None:
        """Count the starts that the newest activity of a step may have had: another one follows.

        Args:
            n: The step.
            lost: That activity, if its workers were lost, as in `KeptAnswer`.
        """
        current, described = self.at(n), self.s.described
        starts = described.rules(current.open.step.agent).starts if described is not None else 0
        current.tried += starts
        current.lost = lost or current.lost

    def advance_input(
        self,
        n: int,
        *,
        now: float,
        apart: bool = False,
        dollars: Decimal | None = None,
        keeps: bool = False,
    ) -> AdvanceInput:
        """Return the input of the next step activity.

        Args:
            n: The step.
            now: Time, seconds since the epoch.
            apart: Whether tools must not run in the activity.
            dollars: Money that is reserved for its model call; None without a budget in money.
            keeps: Whether money for a last answer must be left after the call.
        """
        current = self.at(n)
        if current.unbegun:  # it begins once more, with what was said to the model since
            notes = joined((*current.open.notes, *self.s.notes))
            current.open = current.open.model_copy(update={"notes": notes})
            current.unbegun, self.s.notes = False, ()
        length, known = current.chain
        unchained = current.journal[length:]
        current.chain = ChainRef(length + len(unchained), extend(known, unchained))
        opened = current.open.wire()
        usual = opened == usual_step(current.n)
        data = b"" if usual else canonical(opened)
        small = len(data) <= INLINE_BYTES
        described = self.s.described
        rules = AgentRules() if described is None else described.rules(current.open.step.agent)
        limit: Literal["", "stop", "finish", "past"] = _SENT[current.limit]
        tokens = 0
        if self.given.budget is not None:
            tokens = self.money.tokens(n)
            if not current.limit and self.money.exceeded(now=now, n=n):
                limit = "stop"
        return AdvanceInput(
            n=current.n,
            at=current.at._replace(digest=current.at.digest[:AT_DIGITS]),
            journal=current.chain,
            open=current.open if small and not usual else None,
            digest="" if small else digest(data),
            # The worker refuses to call the model beyond these; the workflow alone decides what
            # then.
            limit=limit,
            tokens=tokens,
            apart=apart,
            dollars=dollars,
            keeps=keeps,
            branch=self.s.branch,
            stream=current.stream,
            tried=current.tried if current.stream or self.given.head.run.streams else 0,
            head=self.head_digest if n == 1 and not current.journal else self.changed_head,
            attempts=rules.attempts,
            lane=current.lane,
            lost=current.lost,
            root="" if self.given.parent is None else self.given.parent.first,
        )

    def advanced(self, n: int, got: Advanced, *, now: float = 0.0) -> Failure | None:
        """Record the result of a step activity: an answer, the step's result, or calls of tools.

        Args:
            n: The step.
            got: The result.
            now: Time, seconds since the epoch: when calls of `cut` were begun, at the latest.

        Returns:
            Why its calls or next steps cannot be taken; the step then has no result.
        """
        # One activation, no await: the answer, its cost and its calls are recorded together, or a
        # replay would find an answer that nobody has paid for.
        current, result = self.at(n), got.result
        follows = got.calls if result is None else result.calls or result.next
        refused = self._refused(current, got) if follows else None
        self.s.costs.lost += got.lost
        if got.kept:
            self.s.lanes = max(self.s.lanes, current.lane + 1)
        current.unbegun, current.lost = got.unbegun or current.unbegun, ""
        # Counted even if what follows from the answer is refused: it was paid for.
        if got.answer is not None:
            self.money.needs.pop(n, None)
            if current.limit in _ONCE:
                current.limit = ""
            self.money.paid(cost_of(got.answer))
        said = turns_of(current.journal) if current.journal else 0
        current.journal = (*current.journal, *new_entries(got, last=current.limit == "finish"))
        if got.answer is not None and got.answer.message.items:
            self._mark_hosted(current, got.answer.message.items, said)
        is_end = result is not None and result.last and refused is None
        if not is_end and got.answer is not None and shown(got.answer.message.content).strip():
            self.log.mark(current, "said", said)
        if refused is None and (result is not None or got.calls):
            if result is None:
                current.calls, current.asked, patch = got.calls, got.asked, got.patch
            else:
                current.calls, current.result = resolve_calls(result, current), result
                patch = result.patch
            current.state, current.outcomes = current.open.state, {}
            if patch:
                current.state = merge_patch.apply(current.state, patch)
            if current.calls:
                self._tell(current, got, now=now)
        # A call that a lost attempt had begun is noted, so that the audit shows that it ran again.
        if got.attempts > 1:  # else they failed in a way that may pass
            for i in got.cut:
                self.calls.lost(n, i, 1, now=now)
        return refused

    def _mark_hosted(self, current: OpenState, items: Sequence[dict[str, Json]], said: int) -> None:
        """Mark the calls of the provider's own tools in an answer."""
        for i in range(len(hosted_calls(items)[:MOST_OUTLINES])):
            self.log.mark(current, "hosted", i, batch=said)

    def _tell(self, current: OpenState, got: Advanced, *, now: float) -> None:
        """Add what an activity knows of the calls that it has run or begun."""
        batch = current.batch
        calls = [Mark(self.log.next_number(), "call", batch, i) for i in range(len(current.calls))]
        current.marks = (*current.marks, *calls)
        current.unruled, current.called = got.unruled, {}
        if not (got.told or got.cut or got.going or got.stopped):  # none has begun
            return
        done = [Mark(self.log.next_number(), "done", batch, i) for i in sorted(got.told)]
        current.marks = (*current.marks, *done)
        current.outcomes = {
            i: each.model_copy(
                update={**self.calls.facts(current, i), "worker": each.worker or got.worker}
            )
            if each.ended
            else each
            for i, each in got.outcomes.items()
        }
        called = dict.fromkeys(got.cut, Called(at=now, tried=1))
        called |= dict.fromkeys(got.going, Called(at=now))
        for i, failure in got.stopped.items():
            if failure.type != NOT_STARTED:
                called[i] = Called(at=now, error=failure.text, ended=now)
        current.called = {
            i: each.model_copy(update=self.calls.facts(current, i)) for i, each in called.items()
        }

    def _refused(self, current: OpenState, got: Advanced) -> Failure | None:
        """Say why the step's calls or its next steps cannot be taken, or return None."""
        if got.result is None:
            return _too_many(len(got.calls))
        if isinstance(got.result.calls, tuple) and len(got.result.calls) > MOST_CALLS:
            return _too_many(len(got.result.calls))
        # Its calls are few enough, and it queues nothing that could have a wrong name.
        following = got.result.next
        if not any(step.step_id or step.prev_steps for step in following):
            return None
        others = self.others(current.n)
        # Also the ids that these have given to steps which they are about to queue.
        coming = [step.step_id for o in others if o.result is not None for step in o.result.next]
        text = problem(
            got.result.next,
            queue=self.s.queue,
            opened={*coming, *(other.open.step.step_id for other in others)} - {""},
            known={*self.s.done, current.open.step.step_id},
            serial=self.s.serial,
        )
        return Failure(type="InvalidArgumentError", message=text) if text else None

    def finish(self, n: int, *, now: float) -> StepRecord:
        """Close a step: append its record, move the head, queue its next steps."""
        current = self.at(n)
        self.log.mark(current, "end")
        result = current.result
        if result is None:
            raise RuntimeError("a step is finished only after its result is known")
        state, patch, conflicts = self.s.extra_state, dict[str, Json](), list[str]()
        patched = result.patch or any(each.patch for each in current.outcomes.values())
        if patched or not current.alone:  # else it has changed nothing
            state, conflicts = self._merged(current)
            patch = merge_patch.diff(self.s.extra_state, state)
        output, stored, adds, outcomes = results_of(current, result)
        transcript = ChainRef(
            length=self.s.transcript.length + len(adds),
            digest=extend(self.s.transcript.digest, adds),
        )
        before = current.before if current.alone else self.queue.before()
        found = self.queue.recorded
        if before.found is not None:
            found = before.found.forward(found)
        steps: tuple[TaskStep, ...] = ()
        if result.next:
            at, mine = transcript.length, current.open.step
            steps = self.queue.number([each.after(mine).placed(at) for each in result.next])
        others = self.others(n)
        left = queued_with(self.s.queue, steps) if steps else self.s.queue
        queue = pending(others, left)
        record = StepRecord(
            n=self.s.steps + 1,
            opened=0 if n == self.s.steps + 1 else n,
            step=current.open.step,
            output=output,
            stored=stored,
            last=result.last,
            next=steps,
            adds=adds,
            calls=current.calls,
            outcomes=outcomes,
            journal=without_adds(result, current),
            usage=usage_of(current.journal, outcomes),
            patch=patch,
            inverse=merge_patch.inverse(self.s.extra_state, patch) if patch else {},
            conflicts=tuple(conflicts),
            started=current.started,
            ended=now,
            digest=transcript.digest,
            branch=self.s.branch,
            before=before,
            taken=taken_from(found, queue, current.open.step, len(steps)),
            marks=current.marks,
            alone=current.alone,
            unheard=current.unheard,
        )
        self.messages.extend(adds)
        self.log.append(Entry(step=record))
        self.queue.recorded = queue
        if before.waiting is not UNCHANGED:
            self.queue.found = before.waiting.forward(self.queue.found)
        if self.s.approvals:
            self.asked.forget(n)
        self.s.opens, self.s.queue = others, left
        self.s.extra_state, self.s.transcript = state, transcript
        self._move_head(record)
        return record

    def _merged(self, current: OpenState) -> tuple[dict[str, Json], list[str]]:
        """Merge a step's changes of the state with those of its calls and of steps next to it."""
        patches = [current.outcomes[i].patch for i in range(len(current.calls))]
        mine, conflicts = merge_patch.merge(current.state, patches)
        found = current.open.state
        if current.alone or merge_patch.same(found, self.s.extra_state):
            return mine, conflicts
        sides = [merge_patch.diff(found, self.s.extra_state), merge_patch.diff(found, mine)]
        state, more = merge_patch.merge(found, sides)
        return state, [*conflicts, *more]

    def _move_head(self, record: StepRecord) -> None:
        """Let the task go on from a step that is recorded."""
        # Of several steps side by side no single one has the answer; a join makes it.
        answered = record.last and record.alone
        if not self.s.path or self.s.path[-1][0] != self.s.branch:
            self.s.path = (*self.s.path, (self.s.branch, record.n))
        self.s.steps = record.n
        self.s.answered = answered
        self.s.concluded = answered
        self.s.last_step = record.step if answered and record.step.agent else None
        if not record.alone:
            self.s.lasts = lasts_after(self.s.lasts, record)
        self.queue.keep_output(record)
        if answered and (self.s.notes or self.s.followups):
            self.queue.follow_up(is_over=bool(self.money.exceeded(now=record.ended)))

    def try_children_again(self, n: int) -> None:
        """Let the child tasks of a step that is tried again go on from their failures as well.

        The step may have stopped for another reason. A verdict is not tried again: it is this
        task's to judge.
        """
        for name, child in self.s.children.items():
            waits = child.status == "needs_attention" and not is_verdict(child.failure)
            if waits and child.place[:2] == (self.s.branch, n):
                self.put_child(name, child.model_copy(update={"told": True}))

    def unheard(self, n: int, began: float) -> None:
        """Record that a model call was cut off before its answer, so that its cost is not known."""
        current = self.find(n)
        if current is not None:
            current.unheard = (*current.unheard, began)

    def leave(
        self, n: int, why: Literal["undone", "restarted"], *, now: float, by: str = ""
    ) -> None:
        """Record what a step in progress has done, before it is dropped.

        Args:
            n: The step.
            why: Why it is dropped.
            now: Time, seconds since the epoch.
            by: Who asked for that.
        """
        # Without its state and input: the record of the branch has them, and an audit needs
        # neither.
        current = self.at(n).chained()
        bare: dict[str, object] = {
            "open": OpenStep(step=current.open.step),
            "before": Before(),
            "state": {},
            "called": dict(current.called),
        }
        was = current.model_copy(update=bare)
        left = LeftStep(was=was, branch=self.s.branch, at=now, why=why, by=by)
        self.log.append(Entry(left=left))

    def fail(self, failure: Failure, *, now: float, n: int = 0) -> None:
        """Leave a step first among the upcoming ones, with its error.

        Args:
            failure: Why.
            now: Time, seconds since the epoch.
            n: The step; 0 for a failure of no step.
        """
        current = self.find(n)
        # A step's failure stays with the step, so that steps side by side fail and go on one by
        # one.
        if current is None:
            self.s.failure = failure
        else:
            current.failure = failure
        body: dict[str, Json] = {"step": current.open.step.step_id} if current else {}
        self.note("failed", now=now, text=f"{failure.type}: {failure.text}", body=body)

    def show(self) -> None:
        """Note that a client follows the answers of the open steps while they are made."""
        for current in self.s.opens:
            current.stream = True

    def own(self, owner: str) -> None:
        """Note that the open steps that are run for no request are run for this one."""
        for current in self.s.opens:
            current.owner = current.owner or owner

    def disown(self) -> None:
        """Forget whose requests the open steps are run for: they have been answered."""
        for current in self.s.opens:
            current.owner = ""

    def task(self) -> Task:
        """Describe the task."""
        head, failure = self.given.head, self.failure
        child = self.child_paused if self.s.children else ""
        return Task(
            task_id=self.task_id,
            input=self.given.input,
            agent=head.agent,
            session=head.session.name if head.session else "",
            extra_state=self.s.extra_state,
            status=self.status,
            created=self.s.created,
            steps=self.s.steps,
            usage=self.money.spent,
            unsettled=self.money.unsettled if self.s.closing is not None else {},
            branch_usage=self.money.usage,
            stored=self.given.stored,
            images=self.given.images,
            parent=self.given.parent.task if self.given.parent else "",
            budget=self.money.budget,
            waits=_turn_awaited(head.session, self.s.ahead)
            if self.s.ahead and head.session is not None
            else "; ".join(map(_WAITS, filter(_WAITING, self.s.opens))),
            paused=self.paused or (child and f"a person in task {child!r}"),
            paused_by_run=self.s.paused_by_run,
            error="" if failure is None else self._error(failure),
        )

    def _error(self, failure: Failure) -> str:
        """Describe the failure of each step that has failed, or that of closing."""
        failures = [c.failure for c in self.failed if c.failure is not None]
        if len(failures) > 1 and self.s.closing is None:
            return "; ".join(f"step {f.step!r}: {f.type}: {f.text}" for f in failures)
        return f"{failure.type}: {failure.text}"


def _turn_awaited(session: SessionRef, ahead: tuple[str, ...]) -> str:
    """Say whose turn comes before that of a task, as `Task.waits` does."""
    others = f" and {len(ahead) - 1} more" if ahead[1:] else ""
    return f"waits for task {ahead[0]!r} of session {session.name!r}{others}"


def _too_many(count: int) -> Failure | None:
    """Say that a step wants too many calls at once, if it does."""
    if count <= MOST_CALLS:
        return None
    text = (
        f"The step asked for {count} tool calls at once; {MOST_CALLS} are the most. None was run."
        " Make them in several batches."
    )
    return Failure(type="InvalidArgumentError", message=text)
