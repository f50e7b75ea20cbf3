"""Steps in progress: their calls, requests and failures; what they leave to steps to come. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal

from holdfast.models.base import ModelAnswer
from holdfast.models.openai.hosted_items import MOST_OUTLINES, hosted_calls
from holdfast.task.data.agent_snapshot import policy_of
from holdfast.task.data.calls import Begun, Called, Decided, Outcome, call_digest
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import (
    Entry,
    InputRef,
    JournalEntry,
    LeftStep,
    Mark,
    MarkKind,
    OpenState,
    OpenStep,
    StepRecord,
)
from holdfast.task.data.state import head_digest, known_head
from holdfast.task.data.undo import Before, FollowUp, WaitingChange
from holdfast.task.data.wire import ToolInput
from holdfast.task.ledger.ledger_state import LedgerState
from holdfast.task.ledger.money import Money
from holdfast.task.ledger.queue import (
    change_if_any,
    join_of,
    lasts_after,
    pending,
    queued_with,
    ready_steps,
    serial_of,
    waiting,
)
from holdfast.task.ledger.references import output_digest, turns_of, usage_of, with_entry
from holdfast.task.refusals import is_verdict
from holdfast.values.base import ChainRef, Json, canonical
from holdfast.values.messages import ImagePart, ToolCall, Usage
from holdfast.values.steps import Task, TaskStep

INLINE_BYTES = 512
"""Up to this size a step's input travels with the activity; beyond, the activity asks for it."""

_WAITS: Callable[[OpenState], str] = operator.attrgetter("waits")
_WAITING: Callable[[OpenState], object] = operator.attrgetter("waiting")


class OpenSteps(LedgerState):
    """The part of the ledger that changes steps in progress."""

    @cached_property
    def money(self) -> Money:
        """What the task has cost and may cost."""
        return Money(self)

    def task(self) -> Task:
        """Describe the task."""
        head, child = self.given.head, self.child_paused
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
            waits="; ".join(map(_WAITS, filter(_WAITING, self.s.opens))),
            paused=self.paused or (child and f"a person in task {child!r}"),
            paused_by_run=self.s.paused_by_run,
            error=self._error(),
        )

    def _error(self) -> str:
        """Describe the failure of each step that has failed."""
        if self.failure is None:
            return ""
        failures = [c.failure for c in self.failed if c.failure is not None]
        if len(failures) > 1 and self.s.closing is None:
            return "; ".join(f"step {f.step!r}: {f.type}: {f.text}" for f in failures)
        return f"{self.failure.type}: {self.failure.text}"

    @property
    def head(self) -> TaskHead:
        """The task's head, with the settings that its run was given since."""
        changed = self.s.changed
        return self.given.head if changed is None else changed.applied(self.given.head)

    @property
    def takes_settings(self) -> bool:
        """Whether its run may be given other settings: those of a nested one may be its own."""
        return self.given.parent is None or self.given.head.run.inherits

    @property
    def changed_head(self) -> str:
        """Digest of the head if it has changed since the task began; else empty.

        A process that knows the task must be told that it has another head by now.
        """
        return "" if self.s.changed is None else self.head_digest

    @property
    def head_digest(self) -> str:
        """Digest of the completed head."""
        return head_digest(known_head(self.head, self.s.described))

    def missing_calls(self, n: int) -> list[int]:
        """Positions of a step's open calls that have no outcome yet."""
        current = self.at(n)
        if not current.calls:
            return []
        return [i for i in range(len(current.calls)) if i not in current.outcomes]

    def is_missing(self, n: int, i: int) -> bool:
        """Whether an open call of a step has no outcome yet."""
        current = self.find(n)
        return current is not None and i < len(current.calls) and i not in current.outcomes

    def tool_input(self, n: int, i: int, edited: ToolCall | None = None) -> ToolInput:
        """Return the input of the tool activity for a call, as a person edited it if one did."""
        current = self.at(n)
        big = len(canonical(current.state)) > INLINE_BYTES
        answers, resume = self._answers(n, i)
        return ToolInput(
            answers=answers,
            resume=resume,
            n=current.n,
            i=i,
            sha=call_digest(edited or current.calls[i]),
            call=edited,
            branch=self.s.branch,
            batch=current.batch,
            child=self.child(n, i),
            patch=current.begun.get(i, Begun()).patch,
            agent=current.open.step.agent,
            step="" if current.open.step.step_id == f"s{current.n}" else current.open.step.step_id,
            state={} if big else current.state,
            big=big,
            head=self.changed_head,
        )

    def _answers(self, n: int, i: int) -> tuple[dict[str, Json], str]:
        """Return the answers to the questions of a call, and what its tool wants back with them.

        A call that begins again is given all answers of before, any other one the newest.
        """
        found = [a for a in self.asked.at(self.s.branch, n, i) if a.asks is not None and a.answers]
        newest = found[0].asks if found else None
        if newest is None:
            return {}, ""
        used = reversed(found) if newest.repeats else found[:1]
        return {key: each for a in used for key, each in a.answers.items()}, newest.state

    def clear(self, n: int, i: int) -> None:
        """Record that an open call turned out to need no approval."""
        current = self.at(n)
        self._put(current.model_copy(update={"cleared": (*current.cleared, i)}))

    def wait(self, n: int, i: int, over: Outcome) -> None:
        """Record that an open call waits, with its outcome then."""
        current = self.at(n)
        edited = current.called.get(i, Called(at=0.0)).edited
        over = over.model_copy(update={"edited": edited, **self._facts(current, i)})
        self._put(current.model_copy(update={"waiting": {**current.waiting, i: over}}))

    def stop(self, n: int, stops: dict[int, Failure]) -> None:
        """Record why a step will stop once its calls in progress have ended."""
        current = self.find(n)
        if current is not None and current.stops != stops:
            self._put(current.model_copy(update={"stops": stops}))

    def begin_child(self, n: int, i: int, begun: Begun) -> None:
        """Record what guardrails and hooks did before the child task of an open call begins."""
        current = self.at(n)
        self._put(current.model_copy(update={"begun": {**current.begun, i: begun}}))

    def try_children_again(self, n: int) -> None:
        """Let the child tasks of a step that is tried again go on from their failures as well.

        The step may have stopped for another reason. A verdict is not tried again: it is this
        task's to judge.
        """
        for name, child in self.s.children.items():
            waits = child.status == "needs_attention" and not is_verdict(child.failure)
            if waits and child.place[:2] == (self.s.branch, n):
                self.put_child(name, child.model_copy(update={"told": True}))

    def outcome(self, n: int, i: int, got: Outcome) -> None:
        """Record the outcome of an open call."""
        current = self.at(n)
        child = self.child(n, i)
        if child:
            got = got.model_copy(update={"child": child, "usage": self.s.children[child].usage})
            self.money.count_child(got.usage)
        got = got.model_copy(update=self._facts(current, i))
        begun = dict(current.begun)
        if i in begun:
            got = got.model_copy(update={"guards": (*begun.pop(i).guards, *got.guards)})
        waiting = {k: each for k, each in current.waiting.items() if k != i}
        changes = {"outcomes": {**current.outcomes, i: got}, "begun": begun, "waiting": waiting}
        # In one change: at any moment a call either may be running, or has its outcome.
        current.called.pop(i, None)
        changed = current.model_copy(update=changes)
        self._put(self._marked(changed, "done", i, batch=current.batch))

    def settled(self, n: int, i: int, got: Outcome, *, now: float) -> None:
        """Record the outcome of a call as a probe or a person tells it: it took until now."""
        called = self.at(n).called.get(i)
        # A call that never began took no time, and one that failed without an effect ended then.
        if called is not None and not called.error:
            took = round(max(now - called.at, 0.0), 3)
            ran = got.edited or called.edited
            got = got.model_copy(update={"ended": now, "took": took, "edited": ran})
        self.outcome(n, i, got)

    def call_begins(self, n: int, i: int, *, now: float, edited: str = "", child: str = "") -> None:
        """Record that an open call is begun: from now on it may have taken effect.

        Args:
            n: The step.
            i: Position of the call.
            now: Time, seconds since the epoch.
            edited: The arguments with which it runs, when a person changed them.
            child: For a call of an agent as a tool: id of its child task.
        """
        current = self.at(n)
        facts = self._facts(current, i)
        found = Called(at=now, edited=edited, child=child).model_copy(update=facts)
        current.called[i] = found  # in place, because there may be thousands

    def call_failed(self, n: int, i: int, text: str, *, now: float) -> None:
        """Record that a call that was begun is certain to have taken no effect."""
        called = self.at(n).called
        if i in called:
            called[i] = called[i].model_copy(update={"error": text, "ended": now})

    def call_lost(self, n: int, i: int, lost: int, *, now: float) -> None:
        """Note that the worker of a repeatable call was lost, and that the call is made again.

        Args:
            n: The step.
            i: Position of the call.
            lost: How many times it was lost up to now.
            now: Time, seconds since the epoch.
        """
        current = self.at(n)
        call = current.calls[i]
        body = {"tool": call.name, "call_id": call.id, "step": current.open.step.step_id}
        self.note("lost", now=now, body={**body, "attempt": lost + 1})

    def tried(self, n: int, i: int) -> int:
        """Count the attempts that the activity of the step made of a call which has not its own."""
        called = self.at(n).called.get(i)
        return 0 if called is None else called.tried

    def call_not_begun(self, n: int, i: int) -> None:
        """Record that a call was not begun after all."""
        self.at(n).called.pop(i, None)

    def unheard(self, n: int, began: float) -> None:
        """Record that a model call was cut off before its answer, so that its cost is not known."""
        current = self.find(n)
        if current is not None:
            self._put(current.model_copy(update={"unheard": (*current.unheard, began)}))

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

    def _facts(self, current: OpenState, i: int) -> dict[str, object]:
        """Return the facts of an open call for the audit: its decisions and its side effect."""
        described = self.s.described
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
            for a in reversed(list(self.asked.at(self.s.branch, current.n, i)))
            if a.status in ("approved", "rejected", "responded", "expired")
        )
        return {"decided": decided, "effect": policy.effect if policy is not None else ""}

    def answer_calls(self, n: int) -> None:
        """Hand the outcomes of calls made in the middle of a step to its journal."""
        # All calls have outcomes here (`Steps._advance`): the journal takes an answer whole.
        current = self.at(n)
        outcomes = tuple(current.outcomes[i] for i in range(len(current.calls)))
        entry = JournalEntry(request=current.asked, calls=current.calls, outcomes=outcomes)
        cleared: dict[str, object] = {
            "calls": (),
            "asked": "",
            "outcomes": {},
            "called": {},
            "state": {},
            "cleared": (),
        }
        self._put(with_entry(current, entry).model_copy(update=cleared))
        self._forget_approvals(n)  # used: later calls at these places ask again

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
            self.change(failure=failure)
        else:
            self._put(current.model_copy(update={"failure": failure}))
        body: dict[str, Json] = {"step": current.open.step.step_id} if current else {}
        self.note("failed", now=now, text=f"{failure.type}: {failure.text}", body=body)

    def show(self) -> None:
        """Note that a client follows the answers of the open steps while they are made."""
        shown = (c.model_copy(update={"stream": True}) for c in self.s.opens)
        self.change(opens=tuple(shown))

    def own(self, owner: str) -> None:
        """Note that the open steps that are run for no request are run for this one."""
        opens = (c if c.owner else c.model_copy(update={"owner": owner}) for c in self.s.opens)
        self.change(opens=tuple(opens))

    def disown(self) -> None:
        """Forget whose requests the open steps are run for: they have been answered."""
        self.change(opens=tuple(c.model_copy(update={"owner": ""}) for c in self.s.opens))

    def finish_early(self, n: int) -> None:
        """Make a step's next model call the last one, without tools."""
        self._put(self.at(n).model_copy(update={"limit": "finish"}))

    def allow_one_more(self, n: int) -> None:
        """Let a step's next model call pass the budget."""
        self._put(self.at(n).model_copy(update={"limit": "allow"}))

    def _marked_hosted(self, current: OpenState, answer: ModelAnswer, k: int) -> OpenState:
        """Add marks for what tools of the provider did inside a step's k-th model call."""
        ran = hosted_calls(answer.message.items)[:MOST_OUTLINES]
        marks = [Mark(self.log.next_number(), "hosted", k, i) for i in range(len(ran))]
        return current.model_copy(update={"marks": (*current.marks, *marks)})

    def _marked(
        self, current: OpenState, kind: MarkKind, i: int = 0, *, batch: int = 0
    ) -> OpenState:
        """Add a mark to an open step: what happened, in the order in which followers get it.

        Args:
            current: The open step.
            kind: What happened.
            i: Position of the call that it happened to; of "said", how many answers the step had
                before.
            batch: The batch of that call.
        """
        mark = Mark(self.log.next_number(), kind, batch, i)
        return current.model_copy(update={"marks": (*current.marks, mark)})

    def _put(self, current: OpenState) -> None:
        """Replace an open step."""
        # It stays where it is: steps in progress are in the order in which they were begun.
        opens = list(self.s.opens)
        opens[opens.index(self.at(current.n))] = current
        self.change(opens=tuple(opens))

    def _forget_approvals(self, n: int) -> None:
        """Forget what was decided for an open step."""
        if self.s.approvals:
            self.change(approvals=tuple(a for a in self.s.approvals if a.n != n))

    def _limit(self, current: OpenState, *, now: float) -> Literal["", "stop", "finish"]:
        if current.limit == "finish":
            return "finish"
        is_over = self.money.exceeded(now=now, n=current.n) and current.limit != "allow"
        return "stop" if is_over else ""


DONE_KEPT = 1000
"""Most completed steps, of those with a name of their own, that later steps can be linked to."""


class UpcomingSteps(OpenSteps):
    """The part of the ledger that queues steps."""

    _ready: tuple[object, object, tuple[TaskStep, ...]] = (None, None, ())
    """The open steps, the queue, and the ready steps of it."""

    def before(self, further: str = "") -> Before:
        """Return the state as if no step were open, for an undo to restore.

        Args:
            further: Id of the step to be begun if it is a follow-up that its request has queued.
        """
        s = self.s
        spent, turns = Usage(), 0
        for current in s.opens:
            spent += usage_of(current.journal, current.outcomes.values())
            turns += turns_of(current.journal)
        return Before(
            found=change_if_any(self.recorded, pending(s.opens, s.queue)),
            waiting=WaitingChange.between(self.found, waiting(s)),
            serial=s.serial,
            turns=s.costs.turns - turns,
            usage=s.costs.usage - spent if s.opens else s.costs.usage,
            answered=s.answered,
            concluded=s.concluded,
            transcript=s.transcript,
            beside=max(len(s.opens) - 1, 0),
            last_step=s.last_step,
            answer=self.answer if s.concluded else None,
            further=further,
        )

    def ready(self) -> tuple[TaskStep, ...]:
        """List the queued steps that wait for no other."""
        opens, queue = self.s.opens, self.s.queue
        if self._ready[0] is not opens or self._ready[1] is not queue:
            self._ready = (opens, queue, self._ready_now())
        return self._ready[2]

    def _ready_now(self) -> tuple[TaskStep, ...]:
        if not self.s.queue:
            return ()
        # A join runs alone: it makes one answer of what all the others have left.
        opens = self.s.opens
        if opens and any(current.open.step.is_join for current in opens):
            return ()
        ready = ready_steps(self.s.queue, [current.open.step.step_id for current in opens])
        joins = tuple(step for step in ready if step.is_join) if len(ready) > 1 else ()
        return joins or ready

    def _move_head(
        self,
        record: StepRecord,
        current: OpenState,
        *,
        state: dict[str, Json],
        transcript: ChainRef,
    ) -> None:
        """Let the task go on from a step that is recorded, with its state and transcript."""
        # Of several steps side by side no single one has the answer; a join makes it.
        answered = record.last and current.alone
        if not self.s.path or self.s.path[-1][0] != self.s.branch:
            self.change(path=(*self.s.path, (self.s.branch, record.n)))
        self.change(
            opens=self.others(current.n),
            steps=record.n,
            queue=queued_with(self.s.queue, record.next),
            extra_state=state,
            transcript=transcript,
            answered=answered,
            concluded=answered,
            last_step=record.step if answered and record.step.agent else None,
            lasts=lasts_after(self.s.lasts, record),
        )
        self._hand_on(record)
        if answered and (self.s.notes or self.s.followups):
            self.follow_up(is_over=bool(self.money.exceeded(now=record.ended)))

    def _hand_on(self, record: StepRecord) -> None:
        """Keep a step's output for the steps that wait for it; join last outputs.

        Steps with an id that a worker gave are kept as well: later steps may name them in
        `prev_steps`.
        """
        step_id = record.step.step_id
        waited: set[str] = set()
        for step in self.s.queue:
            waited.update(step.prev_steps)
        if self.s.lasts:
            waited |= {last.step_id for last in self.s.lasts}
        if step_id in waited or not serial_of(step_id):
            done = {**self.s.done, step_id: InputRef(record.n, output_digest(record))}
            extra = [id for id in done if id not in waited]
            for id in extra[: max(len(extra) - DONE_KEPT, 0)]:
                del done[id]
            self.change(done=done)
        if self.s.lasts and not self.s.opens:
            self.join_lasts()

    def join_lasts(self) -> None:
        """Queue a step that makes one answer of several last outputs."""
        [join] = self._number([join_of(self.s.lasts)])
        self.change(queue=(join, *self.s.queue), lasts=())

    def follow_up(self, *, is_over: bool = False) -> None:
        """Queue what people have said that the answer does not know yet, or what waited for it.

        Args:
            is_over: Whether the budget is used up. The answer then stays without what was said: a
                message must not turn it into a failure.
        """
        # In one activation with the step's end: words that came during its model call begin the
        # next step, and no client sees an answer in between that lacks them.
        said = [note.text for note in self.s.notes if note.role == "user"]
        if said and not is_over:
            self.change(notes=tuple(note for note in self.s.notes if note.role != "user"))
            self._enter("\n\n".join(said))
        elif self.s.followups:
            first, *rest = self.s.followups
            self.change(followups=tuple(rest))
            self._enter(first)

    @property
    def unread(self) -> list[str]:
        """What people have said to the model that no call of it has read."""
        said = (note.text for note in self.s.notes if note.role == "user")
        return [*said, *self.s.followups]

    def ask_further(self, asked: RunRequest) -> None:
        """Queue the follow-up that a request to run a step brings."""
        step_id = self._enter(asked.input or None, asked.images)
        self.change(further=FollowUp(step=step_id, stored=asked.stored))

    def _enter(self, text: str | None, images: tuple[ImagePart, ...] = ()) -> str:
        """Queue a new input of the user; the agent that gave the answer goes on with it.

        Returns:
            The id of the step.
        """
        serial = self.s.serial + 1
        step = TaskStep(
            step_id=f"s{serial}",
            input=text,
            images=images,
            enters=True,
            behind=len(self.s.notes),
        )
        if self.s.last_step is not None:
            step = step.after(self.s.last_step)
        # The caller that asks further has seen the answer.
        self.change(queue=(*self.s.queue, step), serial=serial, answered=False)
        self.change(delivery=self.s.delivery.model_copy(update={"given": ()}))
        return step.step_id

    def _number(self, steps: Sequence[TaskStep]) -> tuple[TaskStep, ...]:
        """Give ids to the steps that came without one."""
        serial = self.s.serial
        numbered: list[TaskStep] = []
        for step in steps:
            serial += 1
            numbered.append(
                step.model_copy(update={"step_id": step.step_id or f"s{serial}", "task_id": ""})
            )
        self.change(serial=serial)
        return tuple(numbered)
