"""What people and activities can ask of a task: its updates, its one signal, its queries."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Literal

from temporalio import workflow
from temporalio.common import RawValue

from holdfast.task import approvals
from holdfast.task.data.children import (
    REPORTS,
    SAYS,
    ChildReport,
    ParentSays,
    UndoAnswer,
    hear,
    is_secret,
    secret_of_child,
)
from holdfast.task.data.commands import LONGEST_REASON, Command, Refusal, decode
from holdfast.task.data.long_calls import AWAITED, LONG_CALL, SECRET, LongCall
from holdfast.task.data.records import Approval, Failure, OpenState
from holdfast.task.data.seal import Seal
from holdfast.task.data.state import Newest, Receipt, RunReply, TaskInput, UndoRequest, UndoState
from holdfast.task.data.wire import RunRequest, View, ViewRequest
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.ledger.queue import unmet
from holdfast.task.pages import (
    EntriesPage,
    EntriesRequest,
    StepView,
    entries_page,
    step_view,
    view,
)
from holdfast.task.requests import refusals
from holdfast.task.requests.command_effects import obey
from holdfast.task.requests.end import Ending
from holdfast.task.requests.run_requests import Pending, RunRequests
from holdfast.task.tool_calls import Room, Running, awaits_children, ready_calls, verdict_of_calls
from holdfast.task.undo import outdated
from holdfast.values.base import Json
from holdfast.values.steps import Task, TaskStatus, TaskStep
from holdfast.workflows.activity_calls import now
from holdfast.workflows.children.children import Children
from holdfast.workflows.children.reports import undo_for_parent
from holdfast.workflows.requests import refusal, result_of
from holdfast.workflows.spans import StepSpans
from holdfast.workflows.tools.long_calls import add_long
from holdfast.workflows.visibility import publish

COMMANDS_AT_ONCE = 400
"""Most commands that are obeyed in one workflow task; the others wait for the next.

A workflow task may take two seconds of wall time, and tens of thousands of commands may have come
while no worker process was up. Tasks in flight depend on the number.
"""

MOST_WAITING = 6
"""Most requests to run that wait at the same time; others ask again every two seconds.

The server holds ten updates of a workflow: the others are for those who undo and finalize.
"""

MOST_UPDATES = 1900
"""Most updates that one run of a task accepts; those that follow are accepted by its next run.

The server accepts 2,000, and lets the others wait without an answer.
"""

TURN_SECONDS = 0.001
"""Length of the timer that ends one workflow task and begins the next."""

MOST_LANES = 64
"""Most steps of one task that are open at the same time; the rest of a round follows."""

LEFT_BEHIND = frozenset({"feedback", "edit_step", "drop_step"})
"""Commands whose effect an undo in progress would take back with the steps, unseen by anybody."""


class TaskDesk:
    """The handlers of a task, and the state that they share with its main loop."""

    def __init__(self, given: TaskInput) -> None:
        """Set up the state before any signal or update is handled."""
        self.given = given
        self.ledger = Ledger(given, task_id=workflow.info().workflow_id, now=now())
        self.spans = StepSpans(self.ledger)
        self.requests = RunRequests()
        self.children = Children(self.ledger, self.spans)
        self.ending = Ending(self.ledger)
        self.closed = False
        self.unheard: list[ParentSays] = []
        self.undo_failure: Failure | None = None
        self.undone_requests: frozenset[str] = frozenset()
        self.draining = False
        self.unrollable = False
        self.updates = 0
        self.running: Running = {(call.n, call.i) for call in self.ledger.s.long_calls}
        self.lanes: set[int] = set()  # steps that are being taken further
        self.calling: set[int] = set()  # of those, the ones whose calls are
        self.room = Room()
        self.work: asyncio.Task[None] | None = None
        self.seal = Seal()
        self.inbox: deque[tuple[str, list[bytes]]] = deque()
        self.has_news = False
        self._obeyed = (0, 0)
        self._waiting = 0

    @property
    def closing(self) -> TaskStatus | None:
        """The status with which the task is to be closed; None while it is open."""
        return self.ending.status

    def _undoes(self) -> bool:
        """Whether an undo is in progress and waits for nobody."""
        undo = self.ledger.s.undo
        if undo is None or undo.mode == "held":
            return False
        return not approvals.undo_waits(self.ledger)

    def _runnable(self) -> bool:
        """Whether there is something to do that waits for nobody."""
        s = self.ledger.s
        if s.undo is not None:
            return self._undoes()
        if s.verdict is not None or self._finalizes():
            return True
        if s.described is None and self.ledger.failure is None:
            return True
        return self._retries() or self._begins() or any(map(self._goes, s.opens))

    def _finalizes(self) -> bool:
        """Whether the task has its answer and was to be finalized by itself."""
        return self.given.finalize and self.ledger.s.answered and self.ledger.failure is None

    def _goes(self, current: OpenState) -> bool:
        """Whether an open step can be taken further."""
        n = current.n
        if any(call.n == n for call in self.ledger.s.long_calls):
            return True
        if current.failure is not None or self.ledger.s.failure is not None:
            return False
        if verdict_of_calls(current) is not None:
            return True
        if self.ledger.is_held(current):
            return n in self.calling
        waits = approvals.waits(self.ledger, n) or awaits_children(self.ledger, n)
        return not waits or bool(ready_calls(self.ledger, n, most=1))

    def _retries(self) -> bool:
        """Whether somebody wants what has failed to be tried again."""
        if self.ledger.failure is None or self.ledger.paused:
            return False
        return self.ledger.s.tries_again or self.requests.ask_anew(self.ledger.owners)

    def _begins(self) -> bool:
        """Whether a queued step is to be begun now."""
        s, ledger = self.ledger.s, self.ledger
        if (
            self.inbox
            or ledger.paused
            or not s.queue
            or ledger.failure is not None
            or (s.lasts and s.opens)
        ):
            return False
        if len(s.opens) >= self._room():
            return False
        return bool(self._next_steps())

    def _room(self) -> int:
        """Return how many steps may be open at the same time."""
        s = self.ledger.s
        if self.requests.round is not None:
            return MOST_LANES
        if self.requests.want_a_step:
            return 1
        if s.described is None or not s.automatic:
            return 1
        return min(s.described.parallel, MOST_LANES)

    def _next_steps(self) -> tuple[TaskStep, ...]:
        """List the steps that may be begun, for whoever wants them."""
        s, all_ready = self.ledger.s, self.requests.round
        ready = self.ledger.ready()
        if all_ready is not None:
            known = s.rounds.get(all_ready.id)
            return ready if known is None else tuple(r for r in ready if r.step_id in known)
        wanted = self.requests.want_a_step or (s.automatic and not s.answered)
        return ready if wanted else ()

    def _end(self, status: TaskStatus) -> None:
        """Begin to close the task; what came first stays, an undo as well as another end."""
        if self.ledger.s.undo is None:
            self.ending.begin(status)

    @workflow.update(name="run")
    async def run_update(self, asked: RunRequest) -> RunReply:
        """Run one step, or all of them. Sent twice with one id, it runs once."""
        self._waiting += 1
        try:
            return await self._run_for(asked)
        finally:
            self._waiting -= 1

    async def _run_for(self, asked: RunRequest) -> RunReply:
        """Take a request, and wait until it is answered."""
        self.updates += 1
        info = workflow.current_update_info()
        pending = Pending(info.id if info else "", asked)
        s = self.ledger.s
        if pending.id in s.seen:
            return s.seen[pending.id]
        if self.ending.is_stuck:
            return await self._end_for(asked)
        if s.children:
            await self.children.ask()
            while self.inbox:  # not refused: an id that was accepted has one answer in a run
                await workflow.wait_condition(lambda: not self.inbox)
            self._refuse_when_leaving()
            s = self.ledger.s
        if (asked.attaches or (asked.round and not s.opens)) and s.undelivered:
            return self._deliver(pending)
        if asked.all and not s.answered:
            self.ledger.change(automatic=True, undelivered=())
        if asked.stream:
            self.ledger.show()
        self.unrollable = False
        self.requests.add(pending)
        if not self._runnable():
            self.requests.settle(self.ledger)
        await workflow.wait_condition(lambda: pending.done)
        return result_of(pending)

    async def _end_for(self, asked: RunRequest) -> RunReply:
        """Try to close the task, which somebody has ended; nothing is run."""
        await self._until_closed()
        failure = self.ending.failure()
        if self.closing == "finished" and asked.all:
            return RunReply(n=self.ledger.s.steps)
        raise refusal(failure if failure is not None else refusals.CLOSED)

    async def _until_closed(self) -> None:
        """Have the task closed, or fail with what stands in the way of that."""
        self.ending.try_again()
        failures = self.ending.failures
        await workflow.wait_condition(lambda: self.closed or self.ending.failures > failures)
        if not self.closed:
            raise refusal(self.ledger.s.failure or refusals.CLOSED, parked=True)

    def _deliver(self, pending: Pending) -> RunReply:
        """Hand over outputs of steps that were completed while nobody waited for them."""
        first, *rest = self.ledger.s.undelivered
        if pending.asked.round:
            reply = RunReply(n=first, round=(first, *rest))
            rest = []
        else:
            reply = RunReply(n=first)
        self.ledger.change(undelivered=tuple(rest))
        self.ledger.remember(pending.id, reply)
        return reply

    @run_update.validator
    def _check_run(self, asked: RunRequest) -> None:
        self._refuse_when_full()
        info = workflow.current_update_info()
        s = self.ledger.s
        if info is not None and info.id in s.seen:
            return
        if self.ending.is_stuck and not self.draining:
            return
        self._refuse_when_leaving()
        if self._waiting >= MOST_WAITING:
            raise refusal(refusals.CROWDED)
        self._refuse_after_verdict()
        failed = self._failed(asked.step)
        if asked.restart and (failed is None or approvals.waits(self.ledger, failed.n)):
            raise refusal(refusals.NOT_FAILED)
        mine = info is not None and info.id in {current.owner for current in s.opens}
        if self.ledger.status == "waiting" and asked.changes and not mine:
            raise refusal(refusals.WAITS)
        begun = failed is not None and (failed.journal or failed.result is not None)
        if begun and not asked.restart and asked.changes:
            raise refusal(refusals.BEGUN)
        if asked.step:
            self._check_step(asked.step)
        if not s.opens and not s.undelivered and not (s.answered and asked.all):
            self._check_ready(asked)

    def _failed(self, step_id: str) -> OpenState | None:
        """Return the failed step that a request would try again."""
        failed = self.ledger.failed
        return next((c for c in failed if step_id in ("", c.open.step.step_id)), None)

    def _check_step(self, step_id: str) -> None:
        """Refuse a step that is not there or not ready, or that would run before a failed one."""
        failed = [current.open.step.step_id for current in self.ledger.failed]
        queued = next((step for step in self.ledger.s.queue if step.step_id == step_id), None)
        if failed:
            if step_id not in failed:
                raise refusal(refusals.other_failed(failed[0]))
        elif queued is None:
            raise refusal(refusals.no_such_step(step_id))
        elif queued not in self.ledger.ready():
            pending = {step.step_id for step in self.ledger.upcoming()}
            raise refusal(refusals.not_ready(step_id, unmet(queued, pending)))

    def _check_ready(self, asked: RunRequest) -> None:
        """Refuse a request that could only wait: nothing is in progress, and nothing is ready."""
        queue = self.ledger.s.queue
        if not queue:
            ended = refusals.NO_STEPS if self.ledger.s.answered else refusals.NONE_FOLLOWED
            raise refusal(refusals.stalled("") if asked.all else ended)
        if not self.ledger.ready() and self.ledger.s.described is not None:
            raise refusal(refusals.none_ready(queue))

    @workflow.update(name="finalize")
    async def finalize_update(self) -> bool:
        """Commit to the session, once, and close the task."""
        self.updates += 1
        if self.closing is None:
            self.ledger.change(failure=None)
        self._end("finished")
        await self._until_closed()
        if self.closing != "finished":
            raise refusal(self.ending.failure() or refusals.CLOSED)
        return True

    @finalize_update.validator
    def _check_finalize(self) -> None:
        self._refuse_when_full()
        if self.closing == "finished" and not (self.ending.is_stuck or self.draining):
            return  # somebody else's finalize is on its way
        if self.ending.is_stuck and not self.draining:
            return
        self._refuse_when_leaving()
        if self.ledger.s.undo is not None:
            raise refusal(refusals.UNDOING)
        if not self.ledger.s.answered:
            raise refusal(refusals.NOT_LAST)

    @workflow.update(name="undo")
    async def undo_update(self, asked: UndoRequest) -> RunReply:
        """Move the head back, effects and all; answers when done, or when a person must decide."""
        self.updates += 1
        info = workflow.current_update_info()
        s = self.ledger.s
        if info is not None and info.id in s.seen:
            return s.seen[info.id]
        if s.undo is None:  # else this is the same request, sent again while it is waited for
            to = asked.to if asked.to >= 0 else s.steps - (0 if s.opens else 1)
            explicit = asked.model_copy(update={"to": to})
            request = info.id if info is not None else ""
            self.ledger.change(
                undo=UndoState(asked=explicit, done=s.undone_effects, request=request)
            )
            self.undone_requests = self.requests.ids
        await workflow.wait_condition(self._undo_rests)
        if self.closing is not None:
            raise refusal(self.ending.refusal())
        if self.ledger.s.undo is not None:
            return RunReply(n=self.ledger.s.steps, status="waiting")
        if self.undo_failure is not None:
            raise refusal(self.undo_failure)
        return RunReply(n=self.ledger.s.steps)

    def _undo_rests(self) -> bool:
        """Whether the undo is over, waits for a person, or was cut short by an end of the task."""
        if self.closing is not None:
            return self.closed or self.ending.is_stuck
        return self.ledger.s.undo is None or approvals.undo_waits(self.ledger)

    @undo_update.validator
    def _check_undo(self, asked: UndoRequest) -> None:
        self._refuse_when_full()
        self._refuse_when_leaving()
        s = self.ledger.s
        info = workflow.current_update_info()
        if info is not None and info.id in s.seen:
            return
        if s.undo is not None:
            if info is not None and info.id == s.undo.request:
                return
            raise refusal(refusals.UNDO_RUNS)
        if not s.opens and not s.steps:
            raise refusal(refusals.NOTHING_DONE)
        found = outdated(self.ledger, asked)
        if found is not None:
            raise refusal(found)
        if asked.to > s.steps or (asked.to == s.steps and not s.opens):
            raise refusal(refusals.NOTHING_AFTER)
        to = asked.to if asked.to >= 0 else s.steps - (0 if s.opens else 1)
        if s.fork is not None and to < s.fork.n:
            raise refusal(refusals.of_another(s.fork))

    def _refuse_when_full(self) -> None:
        if self.updates >= MOST_UPDATES:
            raise refusal(refusals.CROWDED)

    def _refuse_when_leaving(self) -> None:
        if self.draining:
            raise refusal(refusals.DRAINING)
        if self.closing is not None:
            raise refusal(self.ending.refusal())
        if self.inbox:
            raise refusal(refusals.BUSY)

    def _refuse_after_verdict(self) -> None:
        """Refuse to go on from a verdict that the parent has heard: it is what the call came to."""
        failure = self.ledger.failure
        if self.given.parent is None or self.ledger.s.verdict is not None:
            return
        if failure is not None and refusals.is_verdict(failure):
            raise refusal(failure)

    @workflow.signal(dynamic=True)
    def signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take a command, a child's report or a parent's word; never raises, whatever was sent.

        Signals are read here and not by Temporal, which fails the workflow task, again and again,
        when a handler is called with another number of arguments than it has.
        """
        data = [arg.payload.data for arg in args]
        match hear(name, data):
            case ChildReport() as report:
                self._child_reports(report)
            case ParentSays() as said:
                self.parent_says(said)
            case LongCall() as call:
                self._is_long(call)
            case _:
                self._command(name, data)

    def _command(self, name: str, data: list[bytes]) -> None:
        """Obey or refuse a command, now or in its turn."""
        if self.inbox or not self._has_time():
            self.inbox.append((name, data))
        else:
            self._take(name, data)
        self.has_news = True

    def _has_time(self) -> bool:
        """Whether another command may be obeyed in this workflow task."""
        at, count = self._obeyed
        length = workflow.info().get_current_history_length()
        count = count + 1 if at == length else 1
        self._obeyed = (length, count)
        return count <= COMMANDS_AT_ONCE

    async def read_commands(self) -> None:
        """Obey the commands that wait, batch after batch, and tell of all that has changed."""
        while True:
            await workflow.wait_condition(lambda: self.has_news or bool(self.inbox))
            self.has_news = False
            self._after_news()
            if self.inbox:
                await workflow.sleep(TURN_SECONDS)
                for _ in range(min(COMMANDS_AT_ONCE, len(self.inbox))):
                    self._take(*self.inbox.popleft())
                self.has_news = True

    def _take(self, name: str, data: list[bytes]) -> None:
        """Obey or refuse a command."""
        unheard = hear(name, data)
        got = unheard if isinstance(unheard, Refusal) else decode(name, data)
        if got.id and got.id in self.ledger.commands:
            return
        if isinstance(got, Command):
            reason = self._obey(got)[:LONGEST_REASON]
            kind, by, text = "command", got.by, got.reason
        else:
            reason, kind, by, text = got.reason, "refused", "", got.reason
        body: dict[str, Json] = {"id": got.id, "verb": got.verb}
        if isinstance(got, Command):
            body |= {"arguments": got.body}
        if reason:
            kind, text = "refused", reason
        self.ledger.note(kind, now=now(), by=by, text=text, body=body)
        status: Literal["applied", "refused"] = "refused" if reason else "applied"
        self.ledger.receipt(Receipt(id=got.id, verb=got.verb, status=status, reason=reason))
        if got.id:
            self.ledger.commands.add(got.id)

    def _after_news(self) -> None:
        """Tell whoever waits, and the lists, what has changed."""
        if self.closing is None and not self._runnable():
            self.requests.settle(self.ledger)
        if self.closing is None and not self.draining:
            publish(self.ledger, self.ledger.status)

    def _child_reports(self, report: ChildReport) -> None:
        """Take over how a child is."""
        refused = self.children.heard(report)
        if refused:
            self._refuse_signal(REPORTS, refused)
        else:
            self._after_news()

    def _is_long(self, call: LongCall) -> None:
        """Note that the task may continue as new while a call runs, unless that has just ended."""
        if not is_secret(call.secret, secret_of_child(self.given.secret, LONG_CALL)):
            self._refuse_signal(LONG_CALL, "It did not come from an activity of this task.")
        elif self.closing is None and self.ledger.s.undo is None and self._runs(call):
            add_long(self.ledger, call)

    def _runs(self, call: LongCall) -> bool:
        return (call.n, call.i) in self.running and call.branch == self.ledger.s.branch

    def _refuse_signal(self, name: str, why: str) -> None:
        """Record a signal that somebody sent in the name of a parent or a child."""
        self.ledger.note("refused", now=now(), text=why, body={"verb": name})

    def parent_says(self, said: ParentSays) -> None:
        """Do what the task wants that this one works for; it is told how this one is then."""
        if self.given.parent is None or not is_secret(said.secret, self.given.secret):
            self._refuse_signal(SAYS, "It did not come from a task that this one works for.")
            return
        self.ledger.change(heard=max(said.number, self.ledger.s.heard))
        if self.closing is not None:
            self._hear_while_closing(said)
        elif said.end:
            self._end_for_parent(said)
        elif said.paused is not None:
            was = self.ledger.paused
            self.ledger.change(held=said.paused)
            self._hold_children(was)
            self._after_news()
        elif said.undo:
            self.undone_requests = self.requests.ids
            undo_for_parent(self.ledger, said)
        elif said.run and self.ledger.failure is not None:
            self.unrollable = False
            self.ledger.change(automatic=True, tries_again=True)

    def _hear_while_closing(self, said: ParentSays) -> None:
        """Try again to close, if that has failed; an end that was accepted cannot be undone."""
        if self.ending.is_due:
            self.unheard.append(said)  # for the case that closing fails
            return
        if said.undo and said.undo != "release":
            why = self.ending.refusal().message
            answer = UndoAnswer(number=said.number, stands=(why,), failure=why)
            self.ledger.change(undo_answer=answer)
        if said.end or said.run or said.undo:
            self.ending.try_again()

    def _end_for_parent(self, said: ParentSays) -> None:
        """Close as the task is: answered, failed, or neither, as in the middle of an undo."""
        failure = self.ledger.failure
        rests = said.end == "finish" and self.ledger.s.undo is None
        if rests and self.ledger.s.answered and failure is None:
            self._end("finished")
        elif rests and refusals.is_verdict(failure):
            self.ledger.change(verdict=failure)
            self._end("failed")
        else:
            body: dict[str, Json] = {"reason": said.reason}
            self._abandon(Command(id="parent", verb="abandon", by=said.by, body=body))

    def _obey(self, command: Command) -> str:
        """Do what a command says; return why not, or empty."""
        if self.ending.is_due:
            return f"The task is {self.closing} already."
        if command.verb == "abandon":
            self._abandon(command)
            return ""
        if self.ending.is_stuck:
            if command.verb != "resume":
                return self.ending.refusal().message
            self.ending.try_again()
            return ""
        if self.ledger.s.undo is not None and command.verb in LEFT_BEHIND:
            return refusals.UNDOING.message
        was = self.ledger.paused
        reason = obey(self.ledger, command, now=now())
        self._hold_children(was)
        return reason

    def _hold_children(self, was: str) -> None:
        """Pause those that work for this task, or let them go on, if it has come to that."""
        if self.ledger.paused != was:
            self.children.pause(self.ledger.paused)

    def _abandon(self, command: Command) -> None:
        who = command.by or "somebody"
        self.ending.abandon(f"{who}: {command.reason}" if command.reason else who)

    @workflow.query(name="view")
    def view_query(self, asked: ViewRequest) -> View:
        """Show an activity what it lacks."""
        return view(self.ledger, asked)

    @workflow.query(name="task")
    def task_query(self) -> Task:
        """Describe the task."""
        return self.ledger.task()

    @workflow.query(name="upcoming")
    def upcoming_query(self) -> list[TaskStep]:
        """Show the step in progress, then the queued ones."""
        return list(self.ledger.upcoming())

    @workflow.query(name="entries")
    def entries_query(self, asked: EntriesRequest) -> EntriesPage:
        """Show a page of the ledger."""
        return entries_page(self.ledger, asked)

    @workflow.query(name="step")
    def step_query(self, n: int) -> StepView:
        """Show one step."""
        return step_view(self.ledger, n)

    @workflow.query(name="approvals")
    def approvals_query(self) -> list[Approval]:
        """Show what waits for a person, and what was decided for the step in progress."""
        children = self.ledger.s.children.values()
        asked = [approval for child in children for approval in child.approvals]
        return [*self.ledger.s.approvals, *asked]

    @workflow.query(name=SECRET)
    def secret_query(self) -> str:
        """Tell an activity what shows that it is one; all who may ask can read the history, too."""
        return secret_of_child(self.given.secret, LONG_CALL)

    @workflow.query(name=AWAITED)
    def awaited_query(self) -> list[str]:
        """Show which long calls are not to be cut off."""
        is_cut = self.closing is not None or self.ledger.s.undo is not None
        return [] if is_cut else [call.id for call in self.ledger.s.long_calls]

    @workflow.query(name="newest")
    def newest_query(self) -> Newest:
        """Show what an undo of the newest step would take back."""
        return self.ledger.newest

    @workflow.query(name="receipt")
    def receipt_query(self, command_id: str) -> Receipt | None:
        """Show what became of a command."""
        return next((r for r in reversed(self.ledger.s.receipts) if r.id == command_id), None)
