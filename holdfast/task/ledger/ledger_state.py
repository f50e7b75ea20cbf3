"""The state of one task as it is read: status, queue, steps in progress, budget."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Literal

from holdfast.task.data.calls import Approval
from holdfast.task.data.children import ChildState, child_ids
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import OpenState, SegmentRef
from holdfast.task.data.state import Carried, TaskInput
from holdfast.task.data.undo import Before, Newest, WaitingChange
from holdfast.task.ledger.queue import (
    change_if_any,
    pending,
    recorded_queue,
    recorded_waiting,
    waiting,
)
from holdfast.task.ledger.recording import (
    CREATED,
    Asked,
    Recording,
    answer_of,
    lines_after,
    records_here,
)
from holdfast.task.ledger.references import batches_of, turns_of, usage_of
from holdfast.values.base import Json
from holdfast.values.messages import Message, Usage
from holdfast.values.money import NOTHING
from holdfast.values.runs.status import TaskStatus
from holdfast.values.settings import Budget
from holdfast.values.steps import Task, TaskStep

RECEIPTS_CARRIED = 200
_WAITS: Callable[[OpenState], str] = operator.attrgetter("waits")
_WAITING: Callable[[OpenState], object] = operator.attrgetter("waiting")


class LedgerState(Recording):
    """One task's state.

    Attributes:
        messages: Messages that the entries added to the transcript.
        recorded: The queue as the newest completed step left it: the changes that the next record
            and an undo need are counted from it. Empty before the first step.
        found: What waited next to the queue when that step was found; for the same purpose.
        asking: Steps in progress that may be making a model call right now.
        reserved: Money that is reserved for model calls whose answers are not recorded yet.
        needs: Step to what its model call can cost at most, when its share was too little.
    """

    def __init__(self, given: TaskInput, *, task_id: str, now: float) -> None:
        """Begin a task, or go on with one that continued as new.

        Args:
            given: The workflow's input.
            task_id: The task's id.
            now: Time in seconds since the epoch.
        """
        self.given = given
        self.task_id = task_id
        carried = given.carried
        has_images_only = given.images and not given.head.history
        first = given.input if given.input or given.stored or has_images_only else None
        super().__init__(
            carried
            or Carried(
                created=now,
                queue=(TaskStep(step_id="s1", input=first, images=given.images),),
                extra_state=given.extra_state,
                automatic=given.automatic,
                serial=1,
                held=given.held,
                paused=given.paused,
                paused_until=given.start_at,
            )
        )
        if given.described is not None:
            self.change(described=given.described)
        # After a rollover the changes since the last record are counted from what was carried.
        self.recorded = recorded_queue(self.s)
        self.found = recorded_waiting(self.s)
        self.change(since=None, waits_since=WaitingChange())
        self.messages: list[Message] = []
        # Not carried: a task continues as new only when no model call is in progress.
        self.asking: set[int] = set()
        self.reserved: dict[object, Decimal] = {}
        self.needs: dict[int, Decimal] = {}
        self._asked = Asked(self.s.approvals)
        self.base = self.s.transcript.length
        if carried is None:
            self.note(CREATED, now=now, body={"extra_state": given.extra_state})

    @property
    def status(self) -> TaskStatus:
        """The task's status while it is open."""
        # The first that holds: a person who can decide something is told so before anything else.
        for approval in self.s.approvals:
            if approval.status == "open":
                return "waiting"
        for child in self.s.children.values():
            if child.approvals:
                return "waiting"
        if self.failure is not None:
            return "needs_attention"
        if self.paused:
            return "paused"
        return "answered" if self.s.answered else "running"

    @property
    def failure(self) -> Failure | None:
        """The failure with which the task waits: of a step, or of closing."""
        if self.s.closing is not None and self.s.failure is not None:
            return self.s.failure
        for current in self.s.opens:
            if current.failure is not None:
                return current.failure
        return self.s.failure

    @property
    def failed(self) -> list[OpenState]:
        """The steps in progress that have failed."""
        return [current for current in self.s.opens if current.failure is not None]

    @property
    def last_opened(self) -> int:
        """Number of the step that was opened last: each is completed, or open still."""
        return self.s.steps + len(self.s.opens)

    @property
    def owners(self) -> set[str]:
        """Ids of the requests that steps in progress are run for."""
        owners = {current.owner for current in self.s.opens}
        return owners - {""}

    def branch_of(self, n: int) -> int:
        """Return the branch on which a completed step of the present one was run."""
        begun = [branch for branch, first in self.s.path if first <= n]
        return begun[-1] if begun else 0

    @property
    def newest(self) -> Newest:
        """The steps in progress, else the last completed one: what an undo of the newest undoes."""
        s = self.s
        last = next((e.step for e in reversed(self.entries) if e.step is not None), None)
        open_ = tuple(current.open.step.step_id for current in s.opens)
        done = (last.step.step_id,) if last is not None and last.n == s.steps else ()
        to = s.steps if open_ else max(s.steps - 1, 0)
        return Newest(branch=s.branch, opened=self.last_opened, to=to, steps=open_ or done)

    def others(self, n: int) -> tuple[OpenState, ...]:
        """Return the steps in progress next to one of this number."""
        opens = self.s.opens
        return tuple(each for each in opens if each.n != n) if len(opens) > 1 else ()

    def find(self, n: int) -> OpenState | None:
        """Return the step in progress of this number, or None."""
        for current in self.s.opens:
            if current.n == n:
                return current
        return None

    def at(self, n: int) -> OpenState:
        """Return the step in progress of this number.

        Raises:
            RuntimeError: It is not open.
        """
        current = self.find(n)
        if current is None:
            msg = f"step {n} is not open"
            raise RuntimeError(msg)
        return current

    def child(self, n: int, i: int) -> str:
        """Return the id of the task that an open call of an agent as a tool began, or empty."""
        if not self.s.children:
            return ""
        place = (self.s.branch, n, batches_of(self.at(n)), i)
        # A call that is begun again has another child. The ids are counted up, and the first child
        # that was not left is the call's own.
        found = itertools.takewhile(self.s.children.__contains__, child_ids(self.task_id, place))
        return next((id for id in found if not self.s.children[id].left), "")

    @property
    def spent(self) -> Usage:
        """Cost of the task in all, also of undone and failed work.

        That is every model call whose answer has arrived (of undone steps, of steps that were
        started again, of steps that failed, answers that a guardrail then blocked), and the cost of
        its child tasks, counted likewise. Unknown, and not counted, are calls that were cut off
        before their answer, and what tools and guardrails spend by clients of their own.
        """
        asked = (child.usage for child in self.s.children.values() if not child.counted)
        return sum(asked, self.s.spent)

    @property
    def unsettled(self) -> dict[str, Usage]:
        """The child tasks that may cost more than `spent` has of them, with what it has of each."""
        children = self.s.children.items()
        return {
            name: child.usage
            for name, child in children
            if child.unsettled or not (child.closed or child.is_over)
        }

    def forget_children(self, gone: Collection[str]) -> None:
        """Drop the child tasks of undone calls; their cost stays in `spent`."""
        children = self.s.children
        cost = (children[id].usage for id in gone if not children[id].counted)
        kept = {id: child for id, child in children.items() if id not in gone}
        raised = sum((children[id].raised for id in gone), self.s.raised)
        lost = sum((children[id].lost for id in gone), self.s.lost)
        self.change(spent=sum(cost, self.s.spent), children=kept, raised=raised, lost=lost)

    @property
    def budget(self) -> Budget | None:
        """The task's limits, with the money that people have added."""
        budget = self.given.budget
        if budget is None or self.max_dollars == budget.max_dollars:
            return budget
        return budget.model_copy(update={"max_dollars": self.max_dollars})

    @property
    def money_policy(self) -> Literal["ask", "finish", "fail"]:
        """What happens once the budget in money is used up."""
        budget = self.given.budget
        return self.given.on_dollars or (budget.on_exceeded if budget is not None else "ask")

    @property
    def own_dollars(self) -> Decimal | None:
        """The task's own budget in money, without what people have added in child tasks."""
        budget = self.given.budget
        given = budget.max_dollars if budget is not None else None
        return given if self.s.max_dollars is None else self.s.max_dollars

    @property
    def max_dollars(self) -> Decimal | None:
        """The budget in money as it is now; None for none."""
        own = self.own_dollars
        if own is None:
            return None
        return sum((child.raised for child in self.s.children.values()), own + self.s.raised)

    @property
    def raised_dollars(self) -> Decimal:
        """By how much people have raised the budget in money, in this task and its children."""
        budget = self.given.budget
        given = budget.max_dollars if budget is not None else None
        return NOTHING if given is None else (self.max_dollars or NOTHING) - given

    @property
    def lost_dollars(self) -> Decimal:
        """The most that lost calls can have cost, in this task and its children."""
        return sum((child.lost for child in self.s.children.values()), self.s.lost)

    @property
    def usage(self) -> Usage:
        """What counts for the budget: an undo restores it.

        It is the cost of the steps of the present branch, and the cost so far of the child tasks
        of open calls.
        """
        # The cost of a child whose call has its outcome is in `s.usage` already.
        open_calls = (
            child.usage
            for child in self.s.children.values()
            if not child.left and self._is_open(*child.place)
        )
        return sum(open_calls, self.s.usage)

    def _is_open(self, branch: int, n: int, batch: int, i: int) -> bool:
        """Whether a call is still in the ledger and has no outcome yet."""
        current = self.find(n)
        if current is None or branch != self.s.branch:
            return False
        return batch == batches_of(current) and i not in current.outcomes

    @property
    def asked(self) -> Asked:
        """Find approvals by id and by place."""
        if self._asked.all is not self.s.approvals:
            self._asked = Asked(self.s.approvals)
        return self._asked

    def put_approval(self, approval: Approval) -> None:
        """Add an approval, or replace the one of its id."""
        self.change(approvals=self.asked.put(approval))

    @property
    def paused(self) -> str:
        """Who has paused the task or its parent, and why; else empty."""
        return self.s.paused or self.s.held

    def has_long_call(self, n: int) -> bool:
        """Whether a call of a step goes on with which the task may continue as new."""
        long_calls = self.s.long_calls
        return bool(long_calls) and any(call.n == n for call in long_calls)

    def is_held(self, current: OpenState) -> bool:
        """Whether a pause keeps a step in progress from its tools: it began after the event named.

        One that has no tool to run, or outcomes of its calls, is finished all the same.
        """
        if current.unbegun and self.s.paused:
            return True
        # A step that has any outcome began its calls before the pause: it may end what it began.
        after = self.s.paused_after if self.s.paused else 0
        began = current.marks[0].number if current.marks else 0
        is_ending = current.result is not None and not current.calls
        return 0 < after < began and not is_ending and not current.outcomes

    @property
    def child_paused(self) -> str:
        """Id of a child task that is paused, or empty."""
        for id, child in self.s.children.items():
            if child.status == "paused" and not child.left:
                return id
        return ""

    def put_child(self, id: str, child: ChildState) -> None:
        """Store the state of a child task: in place, because there may be thousands."""
        self.s.children[id] = child

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
            usage=self.spent,
            unsettled=self.unsettled if self.s.closing is not None else {},
            branch_usage=self.usage,
            stored=self.given.stored,
            images=self.given.images,
            parent=self.given.parent.task if self.given.parent else "",
            budget=self.budget,
            waits="; ".join(map(_WAITS, filter(_WAITING, self.s.opens))),
            paused=self.paused or (child and f"a person in task {child!r}"),
            paused_by_run=self.s.paused_by_run,
            error=self._error(),
        )

    def _error(self) -> str:
        """Describe the failure of each step that has failed."""
        failures = [c.failure for c in self.failed if c.failure is not None]
        if len(failures) > 1 and self.s.closing is None:
            return "; ".join(f"step {f.step!r}: {f.type}: {f.text}" for f in failures)
        return f"{self.failure.type}: {self.failure.text}" if self.failure else ""

    def upcoming(self) -> tuple[TaskStep, ...]:
        """The steps in progress, then the queued ones."""
        steps = (*(current.open.step for current in self.s.opens), *self.s.queue)
        return tuple(step.model_copy(update={"task_id": self.task_id}) for step in steps)

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
            turns=s.turns - turns,
            usage=s.usage - spent if s.opens else s.usage,
            answered=s.answered,
            concluded=s.concluded,
            transcript=s.transcript,
            beside=max(len(s.opens) - 1, 0),
            last_step=s.last_step,
            answer=self.answer if s.concluded else None,
            further=further,
        )

    @property
    def answer(self) -> Json:
        """The output of the newest step; a large one is named. None for none that is known."""
        record = records_here(self.entries, self.s.steps).get(self.s.steps)
        return self.s.answer if record is None else answer_of(record)

    def exceeded(self, *, now: float, n: int = 0) -> str:
        """Say which part of the budget is used up, or empty.

        Args:
            now: Time, seconds since the epoch.
            n: The step that asks; calls that other steps may be making count as made.
        """
        budget = self.given.budget
        if budget is None:
            return ""
        turns = self.s.turns + len(self.asking - {n})
        if budget.max_turns is not None and turns >= budget.max_turns:
            return f"max_turns={budget.max_turns}"
        if budget.max_tokens is not None and self.usage.total_tokens >= budget.max_tokens:
            return f"max_tokens={budget.max_tokens}"
        if budget.max_seconds is not None and now - self.s.created >= budget.max_seconds:
            return f"max_seconds={budget.max_seconds:g}"
        return ""

    def carried(self) -> Carried:
        """Return the state with which the task continues as new."""
        return self.s.model_copy(
            update={
                "ledger": self.chain,
                "marks": self._marks,
                "commands": self.commands.packed(),
                "entries": tuple(self.entries),
                "receipts": self.s.receipts[-RECEIPTS_CARRIED:],
                "since": change_if_any(self.recorded, pending(self.s.opens, self.s.queue)),
                "waits_since": WaitingChange.between(self.found, waiting(self.s)),
            }
        )

    def archived(self, segment: SegmentRef) -> None:
        """Forget entries that are now in the archive; no step was completed meanwhile."""
        gone, steps = self.entries[: segment.entries], self.s.steps
        self._join()
        newest = records_here(gone, steps).get(steps)
        if newest is not None:
            self.change(answer=answer_of(newest) if newest.last else None)
        self.change(lines=lines_after(self.s.lines, gone, steps))
        del self.entries[: segment.entries]
        self.messages.clear()
        self.base = self.s.transcript.length
        self.change(segment=segment)
