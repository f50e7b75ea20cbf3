"""The task workflow: a small interpreter that runs steps, keeps the ledger and obeys people.

Only our own code runs here. An AgentWorker's code runs in activities, so that editing it never
breaks a task in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast import approvals
from holdfast.commands import Command, decode
from holdfast.ledger import Ledger
from holdfast.obey import obey
from holdfast.records import Approval, Failure
from holdfast.state import Receipt, RunReply, TaskInput, UndoRequest, UndoState
from holdfast.steps import Task, TaskStatus, TaskStep
from holdfast.values import Json
from holdfast.views import EntriesPage, EntriesRequest, StepView, entries_page, step_view, view
from holdfast.wire import Advanced, CloseInput, RunRequest, TaskResult, View, ViewRequest
from holdfast.workflows import calls
from holdfast.workflows.pending import Pending, refusal
from holdfast.workflows.requests import Requests
from holdfast.workflows.tools import ask_about_cut, ready_calls, run_tools
from holdfast.workflows.undoing import now, run_undo, stop_undo
from holdfast.workflows.visible import publish

UPDATES_PER_RUN = 1500
CANCEL_GRACE_SECONDS = 10
FEWEST_EVENTS = 50
"""A run that rolled sooner would do nothing but roll."""

CANCELLED = Command(
    id="temporal", verb="abandon", by="temporal", body={"reason": "cancelled through Temporal"}
)


@workflow.defn(name="AgentTask", sandboxed=False)
class AgentTask:
    """One task: one agent on one input."""

    @workflow.init
    def __init__(self, given: TaskInput) -> None:
        """Set up the state before any signal or update is handled."""
        self.given = given
        self.ledger = Ledger(given, task_id=workflow.info().workflow_id, now=now())
        self.requests = Requests()
        self.closing: TaskStatus | None = None
        self.closed = False
        self.verdict: Failure | None = None
        self.undo_failure: Failure | None = None
        self.undone_requests: frozenset[str] = frozenset()
        self.draining = False
        self.unrollable = False
        self.updates = 0
        self.running: set[int] = set()
        self.work: asyncio.Task[None] | None = None
        self.why = ""

    @workflow.run
    async def run(self, given: TaskInput) -> TaskResult:
        """Run the task until it is finalized, abandoned or ended by a verdict."""
        if given.carried is not None:
            publish(self.ledger, self.ledger.status)
        while not self.closed:
            try:
                await self._wait()
                if self.closing is not None:
                    await self._close()
                elif self._rolls() and not self._undoes():
                    await self._roll()
                else:
                    await self._work()
                if not self.closed:
                    publish(self.ledger, self.ledger.status)
            except asyncio.CancelledError:
                self._abandon(CANCELLED)
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self.verdict is not None:
            raise ApplicationError(self.verdict.message, type=self.verdict.type, non_retryable=True)
        return TaskResult(status=self.closing or "finished")

    # ---- what to do next

    async def _wait(self) -> None:
        """Wait for work; approvals that nobody decides in time expire meanwhile."""
        while not self._has_work():
            deadline = approvals.deadline(self.ledger)
            left = timedelta(seconds=max(deadline - now(), 0)) if deadline else None
            try:
                await workflow.wait_condition(self._has_work, timeout=left)
            except TimeoutError:
                approvals.expire(self.ledger, now=now())
                publish(self.ledger, self.ledger.status)

    def _undoes(self) -> bool:
        """Whether an undo is in progress and waits for nobody."""
        return self.ledger.s.undo is not None and not approvals.undo_waits(self.ledger)

    def _has_work(self) -> bool:
        return self.closing is not None or self._rolls() or self._runnable()

    def _rolls(self) -> bool:
        if self.unrollable:
            return False
        info = workflow.info()
        return (
            info.get_current_history_length() >= max(self.given.roll_events, FEWEST_EVENTS)
            or info.is_continue_as_new_suggested()
            or self.updates >= UPDATES_PER_RUN
        )

    def _runnable(self) -> bool:
        s = self.ledger.s
        if s.undo is not None:
            return self._undoes()
        if self.ledger.failure is not None:
            return bool(self.requests) and not s.paused
        if s.described is None:
            return True
        if self.ledger.status == "waiting":
            return bool(ready_calls(self.ledger))
        if s.current is not None:
            return True
        if s.paused or not s.queue:
            return False
        return self.requests.want_a_step or (s.automatic and not s.answered)

    async def _work(self) -> None:
        """Do one unit of work; an abandon or undo cancels it, a failure parks the task."""
        undoing = self.ledger.s.undo is not None
        work = asyncio.create_task(self._undo_unit() if undoing else self._unit())
        self.work = work
        try:
            await self._watch(work, undoing=undoing)
        except asyncio.CancelledError:
            self._abandon(CANCELLED)
        if not work.done():
            work.cancel()
            await workflow.wait([work], timeout=CANCEL_GRACE_SECONDS)
        self.work = None  # what did not heed its cancellation has no say any more
        if self.closing is None and self.ledger.s.undo is None:
            self.requests.settle(self.ledger)

    async def _watch(self, work: asyncio.Task[None], *, undoing: bool) -> None:
        """Wait for the end of a unit; show what it asks, and let it expire, while it runs."""

        def is_over() -> bool:
            return work.done() or self._interrupted(undoing)

        while not is_over():
            deadline = approvals.deadline(self.ledger)
            left = timedelta(seconds=max(deadline - now(), 0)) if deadline else None
            asked = self.ledger.s.approvals

            def has_news(asked: tuple[Approval, ...] = asked) -> bool:
                return is_over() or self.ledger.s.approvals != asked

            try:
                await workflow.wait_condition(has_news, timeout=left)
            except TimeoutError:
                approvals.expire(self.ledger, now=now())
            if not is_over():
                publish(self.ledger, self.ledger.status)

    def _interrupted(self, undoing: bool) -> bool:  # noqa: FBT001
        return self.closing is not None or (self.ledger.s.undo is not None and not undoing)

    async def _undo_unit(self) -> None:
        """Take the undo in progress to its end, or to a person."""
        state = self.ledger.s.undo
        if state is None:
            return
        cut = tuple(sorted({*state.cut, *self.running}))
        self.ledger.change(undo=state.model_copy(update={"cut": cut}))
        try:
            if self.ledger.s.described is None:
                self.ledger.described(await calls.describe(self.ledger))
            self.undo_failure = await run_undo(self.ledger)
        except Exception as error:  # noqa: BLE001  a bug must not retry for ever
            self.undo_failure = calls.failure_of(error)
            self.ledger.note("undo_failed", now=now(), text=self.undo_failure.message)
            stop_undo(self.ledger)
        if self.ledger.s.undo is not None:
            return
        self.running.clear()
        if self.undo_failure is None:
            self.ledger.remember(state.request, RunReply(n=self.ledger.s.steps))
            self._start_over()
        else:
            await ask_about_cut(self.ledger, cut)

    def _start_over(self) -> None:
        """After an undo: whoever waited for what it undid is told; later requests stand."""
        self.requests.fail_some(self.undone_requests, calls.UNDONE)
        if self.requests and not self.requests.want_a_step:
            self.ledger.change(automatic=not self.ledger.s.answered)

    async def _unit(self) -> None:
        """Advance the task until its step is done, parked, or the history must roll."""
        try:
            if self.ledger.s.described is None:
                self.ledger.described(await calls.describe(self.ledger))
            if self.verdict is not None:  # closing had failed; try again
                self._end("failed")
            if self.given.finalize and self.ledger.s.answered:
                self._end("finished")
            if self.closing is not None or not self._runnable():
                return
            self._take_step()
            while self.ledger.s.current is not None and not self._stops():
                await self._advance()
        except Exception as error:  # noqa: BLE001  a bug must park the task, not retry for ever
            if not self._interrupted(undoing=False) and not self._is_left():
                self._judge(calls.failure_of(error))

    def _stops(self) -> bool:
        """Whether the open step may not be taken further now."""
        if self._is_left() or self._interrupted(undoing=False) or self._rolls():
            return True
        return self.ledger.failure is not None or (
            self.ledger.status == "waiting" and not ready_calls(self.ledger)
        )

    def _is_left(self) -> bool:
        """Whether the unit that asks did not heed its cancellation, and another has taken over."""
        return asyncio.current_task() is not self.work

    def _end(self, status: TaskStatus) -> None:
        """Begin to close the task; what came first stays."""
        if self.closing is None:
            self.closing = status

    def _take_step(self) -> None:
        """Open the next step, or take up the one that is open."""
        ledger, current = self.ledger, self.ledger.s.current
        ledger.change(failure=None)
        if current is not None and current.failure is None:  # it goes on where it was
            return
        steps = ledger.s.queue if current is None else (current.open.step,)
        pending = self.requests.next_for(steps)
        asked = RunRequest() if pending is None else pending.asked
        owner = "" if pending is None else pending.id
        if current is not None:
            ledger.retry(asked, now=now(), owner=owner)
        elif pending is not None or ledger.s.automatic:
            ledger.begin(asked, now=now(), owner=owner)

    async def _advance(self) -> None:
        """Take the open step one activity further."""
        ledger = self.ledger
        current = ledger.s.current
        if current is None:
            return
        if ledger.missing_calls():
            failure = await run_tools(ledger, self.running)
            if not self._is_left():
                self._judge(failure)
        elif current.result is not None:
            self._finish_step()
        elif current.calls:
            ledger.answer_calls()
        else:
            got = await calls.advance(ledger, now=now())
            if self._is_left():
                return
            ledger.advanced(got)
            if got.failure is not None:
                self._judge(got.failure)
            elif got.limit:
                self._limit()
            elif got == Advanced():
                self._park(calls.NO_PROGRESS)

    def _judge(self, failure: Failure | None) -> None:
        """End the task when a tool call was a verdict, park it when a call failed."""
        if failure is None:
            return
        if failure.type in calls.VERDICTS:
            self.verdict = failure
            self._end("failed")
        else:
            self._park(failure)

    def _limit(self) -> None:
        """The step wants a model call beyond the budget."""
        budget = self.given.budget
        policy = budget.on_exceeded if budget is not None else "ask"
        what = self.ledger.exceeded(now=now())
        self.ledger.note("limit", now=now(), text=what, body={"policy": policy})
        match policy:
            case "finish":
                self.ledger.finish_early()
            case "fail":
                turns = budget.max_turns if budget is not None else None
                text = f"Max turns ({turns}) exceeded" if "turns" in what else f"Budget: {what}"
                self._judge(Failure(type="MaxTurnsExceeded", message=text))
            case "ask":
                text = f"The budget is used up ({what}). approve: one more call; reject: finish now"
                approvals.ask(self.ledger, -1, "limit", now=now(), text=text)

    def _finish_step(self) -> None:
        """Close the open step and answer whoever waits for it."""
        ledger = self.ledger
        owner = ledger.s.current.owner if ledger.s.current else ""
        record = ledger.finish(now=now())
        reply = RunReply(n=record.n)
        answered = self.requests.deliver(owner, reply)
        if answered:
            ledger.remember(answered, reply)
        elif not ledger.s.automatic:
            ledger.change(undelivered=record.n)
        if ledger.s.answered:
            ledger.change(automatic=False)
            if self.given.finalize:
                self._end("finished")
        elif ledger.s.automatic and not ledger.s.queue:
            self._park(calls.stalled(record.step.step_id))

    def _park(self, failure: Failure) -> None:
        """Leave the step first in the queue with its error; whoever waits is told."""
        self.ledger.change(automatic=False)
        self.ledger.fail(failure, now=now())
        self.requests.fail_all(failure, parked=True)

    # ---- the end of a run, the end of the task

    async def _roll(self) -> None:
        """Continue as new with the ledger archived; nobody notices but the auditor."""
        self.draining = True
        self.requests.answer_all(RunReply(status="moved"))
        while self.ledger.entries or not workflow.all_handlers_finished():
            if self.ledger.entries:  # a signal may add one while the others are archived
                try:
                    self.ledger.archived(await calls.archive(self.ledger))
                except ActivityError as error:
                    self._roll_failed(error)
                    return
            await workflow.wait_condition(workflow.all_handlers_finished)
        if self.closing is not None:
            return
        workflow.continue_as_new(
            self.given.model_copy(update={"carried": self.ledger.s, "extra_state": {}})
        )

    def _roll_failed(self, error: ActivityError) -> None:
        """Park the task; the next request tries to roll again."""
        self.draining = False
        if is_cancelled_exception(error):
            self._abandon(CANCELLED)
            return
        self.unrollable = True
        self._park(calls.failure_of(error))

    async def _close(self) -> None:
        """Finalize or abandon: the archive first, then the session, then the end."""
        status = self.closing or "finished"
        approvals.close_open(self.ledger, now=now())
        self.ledger.note("closed", now=now(), text=self.why, body={"status": status})
        commit = status == "finished" and self.given.head.session is not None
        sent = CloseInput(
            status=status, at=self.ledger.s.transcript, commit=commit, failure=self._ending()
        )
        work = asyncio.create_task(calls.close(self.ledger, sent))
        while not work.done():
            try:
                await workflow.wait_condition(work.done)
            except asyncio.CancelledError:  # it is ending already
                continue
        error = work.exception()
        if error is not None:
            self.closing = None
            self._park(calls.failure_of(error))
            return
        self.closed = True
        if sent.failure is not None:
            self.requests.fail_all(sent.failure)
        self.requests.answer_all(RunReply(n=self.ledger.s.steps), only_all=True)
        self.requests.fail_all(calls.CLOSED)
        publish(self.ledger, status)

    def _ending(self) -> Failure | None:
        if self.closing == "abandoned":
            return calls.abandoned(self.why)
        return self.verdict

    # ---- updates

    @workflow.update(name="run")
    async def run_update(self, asked: RunRequest) -> RunReply:
        """Run one step, or all of them. Sent twice with one id, it runs once."""
        self.updates += 1
        info = workflow.current_update_info()
        pending = Pending(info.id if info else "", asked)
        s = self.ledger.s
        if pending.id in s.seen:
            return s.seen[pending.id]
        if asked.attaches and s.undelivered:
            reply = RunReply(n=s.undelivered)
            self.ledger.change(undelivered=0)
            self.ledger.remember(pending.id, reply)
            return reply
        if asked.all and not s.answered:
            self.ledger.change(automatic=True, undelivered=0)
        self.unrollable = False
        self.requests.add(pending)
        if not self._runnable():
            self.requests.settle(self.ledger)
        await workflow.wait_condition(lambda: pending.done)
        return pending.result()

    @run_update.validator
    def _check_run(self, asked: RunRequest) -> None:
        info = workflow.current_update_info()
        s = self.ledger.s
        if info is not None and info.id in s.seen:
            return
        self._refuse_when_leaving()
        failed = s.current if s.current is not None and s.current.failure is not None else None
        if asked.restart and (failed is None or approvals.pending(self.ledger)):
            raise refusal(calls.NOT_FAILED)
        begun = failed is not None and (failed.journal or failed.result is not None)
        if begun and not asked.restart and asked.changes:
            raise refusal(calls.BEGUN)
        if asked.step:
            self._check_step(asked.step)
        if s.current is None and not s.queue and not s.undelivered:
            if not asked.all:
                raise refusal(calls.NO_STEPS)
            if not s.answered:
                raise refusal(calls.stalled(""))

    def _check_step(self, step_id: str) -> None:
        """Refuse a step that is not there, or that would run in the place of a failed one."""
        current = self.ledger.s.current
        if current is not None and current.failure is not None:
            failed = current.open.step.step_id
            if step_id != failed:
                raise refusal(calls.other_failed(failed))
        elif step_id not in {step.step_id for step in self.ledger.s.queue}:
            raise refusal(calls.no_such_step(step_id))

    @workflow.update(name="finalize")
    async def finalize_update(self) -> bool:
        """Commit to the session, once, and close the task."""
        if self.closing is None:
            self.ledger.change(failure=None)
        self._end("finished")
        await workflow.wait_condition(lambda: self.closed or self.closing is None)
        failure = self.ledger.failure
        if not self.closed and failure is not None:
            raise refusal(failure, parked=True)
        return True

    @finalize_update.validator
    def _check_finalize(self) -> None:
        if self.closing == "finished":  # somebody else's finalize is on its way
            return
        self._refuse_when_leaving()
        if not self.ledger.s.answered:
            raise refusal(calls.NOT_LAST)

    @workflow.update(name="undo")
    async def undo_update(self, asked: UndoRequest) -> RunReply:
        """Move the head back, effects and all; answers when done, or when a person must decide."""
        self.updates += 1
        info = workflow.current_update_info()
        s = self.ledger.s
        if info is not None and info.id in s.seen:
            return s.seen[info.id]
        if s.undo is None:  # else this is the same request, sent again while it is waited for
            to = asked.to if asked.to >= 0 else s.steps - (0 if s.current is not None else 1)
            explicit = asked.model_copy(update={"to": to})
            request = info.id if info is not None else ""
            self.ledger.change(
                undo=UndoState(asked=explicit, done=s.undone_effects, request=request)
            )
            self.undone_requests = self.requests.ids
        await workflow.wait_condition(
            lambda: self.closed or self.ledger.s.undo is None or approvals.undo_waits(self.ledger)
        )
        if self.closed:
            raise refusal(calls.CLOSED)
        if self.ledger.s.undo is not None:
            return RunReply(n=self.ledger.s.steps, status="waiting")
        if self.undo_failure is not None:
            raise refusal(self.undo_failure)
        return RunReply(n=self.ledger.s.steps)

    @undo_update.validator
    def _check_undo(self, asked: UndoRequest) -> None:
        self._refuse_when_leaving()
        s = self.ledger.s
        info = workflow.current_update_info()
        if info is not None and info.id in s.seen:
            return
        if s.undo is not None:
            if info is not None and info.id == s.undo.request:
                return
            raise refusal(calls.UNDO_RUNS)
        if s.current is None and not s.steps:
            raise refusal(calls.NOTHING_DONE)
        if asked.to > s.steps or (asked.to == s.steps and s.current is None):
            raise refusal(calls.NOTHING_AFTER)
        to = asked.to if asked.to >= 0 else s.steps - 1
        if s.fork is not None and s.current is None and to < s.fork.n:
            raise refusal(calls.of_another(s.fork))

    def _refuse_when_leaving(self) -> None:
        if self.draining:
            raise refusal(calls.DRAINING)
        if self.closing is not None:
            raise refusal(calls.CLOSED)

    # ---- the command signal

    @workflow.signal(dynamic=True)
    def command(self, name: str, args: Sequence[RawValue]) -> None:
        """Obey or refuse a command; never raises, whatever was sent."""
        got = decode(name, [arg.payload.data for arg in args])
        known = {receipt.id for receipt in self.ledger.s.receipts}
        if got.id and got.id in known:
            return
        if isinstance(got, Command):
            reason = self._obey(got)
            kind, by, text = "command", got.by, got.reason
        else:
            reason, kind, by, text = got.reason, "refused", "", got.reason
        body: dict[str, Json] = {"id": got.id, "verb": got.verb}
        if isinstance(got, Command):
            body |= {"arguments": got.body}
        if reason:
            kind, text = "refused", reason
        self.ledger.note(kind, now=now(), by=by, text=text, body=body)
        self.ledger.receipt(
            Receipt(
                id=got.id, verb=got.verb, status="refused" if reason else "applied", reason=reason
            )
        )
        if self.closing is None and not self._runnable():
            self.requests.settle(self.ledger)
        if self.closing is None and not self.draining:
            publish(self.ledger, self.ledger.status)

    def _obey(self, command: Command) -> str:
        """Do what a command says; return why not, or empty."""
        if self.closing is not None:
            return f"The task is {self.closing} already."
        if command.verb == "abandon":
            self._abandon(command)
            return ""
        return obey(self.ledger, command, now=now())

    def _abandon(self, command: Command) -> None:
        if self.closing is not None:
            return
        self._end("abandoned")
        who = command.by or "somebody"
        self.why = f"{who}: {command.reason}" if command.reason else who

    # ---- queries

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
        return list(self.ledger.s.approvals)

    @workflow.query(name="receipt")
    def receipt_query(self, command_id: str) -> Receipt | None:
        """Show what became of a command."""
        return next((r for r in reversed(self.ledger.s.receipts) if r.id == command_id), None)
