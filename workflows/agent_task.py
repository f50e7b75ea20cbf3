"""The task workflow: a small interpreter that runs steps, keeps the ledger and obeys people.

Only our own code runs here. An AgentWorker's code runs in activities, so that editing it never
breaks a task in flight.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast.commands import Command, decode
from holdfast.ledger import Ledger
from holdfast.steps import Task, TaskStatus, TaskStep
from holdfast.views import EntriesPage, EntriesRequest, StepView, entries_page, step_view, view
from holdfast.wire import (
    Advanced,
    CloseInput,
    Failure,
    Receipt,
    RunReply,
    RunRequest,
    TaskInput,
    TaskResult,
    View,
    ViewRequest,
)
from holdfast.workflows import calls
from holdfast.workflows.pending import Pending, refusal

HF_STATUS = SearchAttributeKey.for_keyword("HfStatus")
UPDATES_PER_RUN = 1500
CANCEL_GRACE_SECONDS = 10


@workflow.defn(name="AgentTask", sandboxed=False)
class AgentTask:
    """One task: one agent on one input."""

    @workflow.init
    def __init__(self, given: TaskInput) -> None:
        """Set up the state before any signal or update is handled."""
        self.given = given
        self.ledger = Ledger(given, task_id=workflow.info().workflow_id, now=now())
        self.requests: deque[Pending] = deque()
        self.closing: TaskStatus | None = None
        self.closed = False
        self.verdict: Failure | None = None
        self.draining = False
        self.updates = 0
        self.work: asyncio.Task[None] | None = None
        self.why = ""

    @workflow.run
    async def run(self, given: TaskInput) -> TaskResult:
        """Run the task until it is finalized, abandoned or ended by a verdict."""
        del given
        while not self.closed:
            try:
                await workflow.wait_condition(self._has_work)
                if self.closing is not None:
                    await self._close()
                elif self._rolls():
                    await self._roll()
                else:
                    await self._work()
                self._publish()
            except asyncio.CancelledError:
                self._abandon(Command(id="temporal", verb="abandon", by="temporal", body={}))
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self.verdict is not None:
            raise ApplicationError(self.verdict.message, type=self.verdict.type, non_retryable=True)
        return TaskResult(status=self.closing or "finished")

    # ---- what to do next

    def _has_work(self) -> bool:
        return self.closing is not None or self._rolls() or self._runnable()

    def _rolls(self) -> bool:
        info = workflow.info()
        return (
            info.get_current_history_length() >= self.given.roll_events
            or info.is_continue_as_new_suggested()
            or self.updates >= UPDATES_PER_RUN
        )

    def _runnable(self) -> bool:
        s = self.ledger.s
        if self.ledger.status == "waiting":
            return False
        if self.ledger.failure is not None:
            return bool(self.requests)
        if s.described is None:
            return True
        if s.current is not None:
            return True
        if s.paused or not s.queue:
            return False
        return bool(self.requests) or (s.automatic and not s.answered)

    async def _work(self) -> None:
        """Do one unit of work; an abandon cancels it, a failure parks the task."""
        work = self.work = asyncio.create_task(self._unit())
        await workflow.wait_condition(lambda: work.done() or self.closing is not None)
        if not work.done():
            work.cancel()
            await workflow.wait([work], timeout=CANCEL_GRACE_SECONDS)
        self.work = None
        self._settle()

    async def _unit(self) -> None:
        """Advance the task until its step is done, parked, or the history must roll."""
        try:
            if self.ledger.s.described is None:
                self.ledger.described(await calls.describe(self.ledger))
            if self.given.finalize and self.ledger.s.answered:  # closing had failed; try again
                self.closing = "finished"
            if self.closing is not None or not self._runnable():
                return
            self._take_step()
            while self.ledger.s.current is not None and not self._rolls():
                await self._advance()
                if self.ledger.parked or self.verdict is not None:
                    return
        except Exception as error:  # noqa: BLE001  a bug must park the task, not retry for ever
            if is_cancelled_exception(error) and self.closing is not None:
                return
            self._park(calls.failure_of(error))

    def _take_step(self) -> None:
        """Open the next step, or take up the one that is open."""
        ledger, current = self.ledger, self.ledger.s.current
        ledger.change(failure=None)
        if current is not None and current.failure is None:  # it goes on after a rollover
            return
        pending = self._next_request()
        asked = RunRequest() if pending is None else pending.asked
        owner = "" if pending is None else pending.id
        if current is not None:
            ledger.retry(asked, now=now(), owner=owner)
        elif pending is not None or ledger.s.automatic:
            ledger.begin(asked, now=now(), owner=owner)

    def _next_request(self) -> Pending | None:
        """Return the next request for one step; refuse those whose step has been run meanwhile."""
        current = self.ledger.s.current
        steps = self.ledger.s.queue if current is None else (current.open.step,)
        for pending in [p for p in self.requests if not p.asked.all]:
            if pending.asked.step in {"", *(step.step_id for step in steps)}:
                return pending
            self.requests.remove(pending)
            pending.fail(calls.no_such_step(pending.asked.step))
        return None

    async def _advance(self) -> None:
        """Take the open step one activity further."""
        ledger = self.ledger
        current = ledger.s.current
        if current is None:
            return
        if ledger.missing_calls():
            self._judge(await calls.run_tools(ledger))
        elif current.result is not None:
            self._finish_step()
        elif current.calls:
            ledger.answer_calls()
        else:
            got = await calls.advance(ledger)
            ledger.advanced(got)
            if got.failure is not None:
                self._park(got.failure)
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
            self.closing = "failed"
        else:
            self._park(failure)

    def _limit(self) -> None:
        """The step wants a model call beyond the budget."""
        budget = self.given.budget
        policy = budget.on_exceeded if budget is not None else "ask"
        turns = budget.max_turns if budget is not None else None
        self.ledger.note("limit", now=now(), text=f"max_turns={turns}", body={"policy": policy})
        match policy:
            case "finish":
                self.ledger.finish_early()
            case "fail":
                text = f"Max turns ({turns}) exceeded"
                self._judge(Failure(type="MaxTurnsExceeded", message=text))
            case "ask":
                text = (
                    f"The budget of {turns} model calls is used up. Nothing is lost:"
                    " run the step again to allow one more call, or abandon the task."
                )
                self._park(Failure(type="BudgetExceeded", message=text))

    def _finish_step(self) -> None:
        """Close the open step and answer whoever waits for it."""
        ledger = self.ledger
        owner = ledger.s.current.owner if ledger.s.current else ""
        record = ledger.finish(now=now())
        reply = RunReply(n=record.n)
        pending = self._waiting_for(owner)
        if pending is not None:
            self.requests.remove(pending)
            pending.answer(reply)
        if pending is not None or owner:  # an owner that is away asks again after a rollover
            ledger.remember(owner or (pending.id if pending else ""), reply)
        elif not ledger.s.automatic:
            ledger.change(undelivered=record.n)
        if record.last:
            ledger.change(automatic=False)
            if self.given.finalize:
                self.closing = "finished"
        elif ledger.s.automatic and not ledger.s.queue:
            self._park(calls.stalled(record.step.step_id))

    def _waiting_for(self, owner: str) -> Pending | None:
        """Return the request that an open step's output belongs to."""
        if owner:
            return next((p for p in self.requests if p.id == owner), None)
        return next((p for p in self.requests if p.asked.attaches), None)

    def _park(self, failure: Failure) -> None:
        """Leave the step first in the queue with its error; whoever waits is told."""
        self.ledger.change(automatic=False)
        self.ledger.fail(failure, now=now())
        while self.requests:
            self.requests.popleft().fail(failure, parked=True)

    def _settle(self) -> None:
        """Answer requests that would otherwise wait for a person, or have nothing to wait for."""
        ledger = self.ledger
        n = ledger.s.current.n if ledger.s.current is not None else ledger.s.steps
        if self.closing is not None:
            return
        if ledger.status == "waiting":
            ledger.disown()
            self._answer_all(RunReply(n=n, status="waiting"))
        elif ledger.s.paused and ledger.s.current is None:
            self._answer_all(RunReply(n=n, status="paused"))
        elif ledger.s.answered:
            self._answer_all(RunReply(n=n), only_all=True)
            if not ledger.s.queue:
                while self.requests:
                    self.requests.popleft().fail(calls.NO_STEPS)

    def _answer_all(self, reply: RunReply, *, only_all: bool = False) -> None:
        for pending in [p for p in self.requests if p.asked.all or not only_all]:
            self.requests.remove(pending)
            pending.answer(reply)

    # ---- the end of a run, the end of the task

    async def _roll(self) -> None:
        """Continue as new with the ledger archived; nobody notices but the auditor."""
        self.draining = True
        self._answer_all(RunReply(status="moved"))
        while self.ledger.entries or not workflow.all_handlers_finished():
            if self.ledger.entries:  # a signal may add one while the others are archived
                self.ledger.archived(await calls.archive(self.ledger))
            await workflow.wait_condition(workflow.all_handlers_finished)
        if self.closing is not None:
            return
        workflow.continue_as_new(
            self.given.model_copy(update={"carried": self.ledger.s, "extra_state": {}})
        )

    async def _close(self) -> None:
        """Finalize or abandon: the archive first, then the session, then the end."""
        status = self.closing or "finished"
        self.ledger.note("closed", now=now(), text=self.why, body={"status": status})
        commit = status == "finished" and self.given.head.session is not None
        sent = CloseInput(
            status=status, at=self.ledger.s.transcript, commit=commit, failure=self._ending()
        )
        try:
            await calls.close(self.ledger, sent)
        except ActivityError as error:
            self.closing = None
            self._park(calls.failure_of(error))
            return
        self.closed = True
        while sent.failure is not None and self.requests:
            self.requests.popleft().fail(sent.failure)
        self._answer_all(RunReply(n=self.ledger.s.steps))
        self.ledger.change(published=status)
        _show(status)

    def _ending(self) -> Failure | None:
        if self.closing == "abandoned":
            return calls.abandoned(self.why)
        return self.verdict

    def _publish(self) -> None:
        """Tell visibility of a change of status: one event, so on changes only."""
        status = self.ledger.status
        if self.closing is None and status != self.ledger.s.published:
            self.ledger.change(published=status)
            _show(status)

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
        if not asked.all and s.undelivered:
            reply = RunReply(n=s.undelivered)
            self.ledger.change(undelivered=0)
            self.ledger.remember(pending.id, reply)
            return reply
        if asked.all and not s.answered:
            self.ledger.change(automatic=True, undelivered=0)
        self.requests.append(pending)
        self._settle()
        await workflow.wait_condition(lambda: pending.done)
        return pending.result()

    @run_update.validator
    def _check_run(self, asked: RunRequest) -> None:
        self._refuse_when_leaving()
        info = workflow.current_update_info()
        s = self.ledger.s
        if info is not None and info.id in s.seen:
            return
        if asked.restart and (s.current is None or s.current.failure is None):
            raise refusal(calls.NOT_FAILED)
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
            self.closing = "finished"
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
        body = {"id": got.id, "verb": got.verb}
        if reason:
            kind, text = "refused", reason
        self.ledger.note(kind, now=now(), by=by, text=text, body=body)
        self.ledger.receipt(
            Receipt(
                id=got.id, verb=got.verb, status="refused" if reason else "applied", reason=reason
            )
        )
        self._settle()

    def _obey(self, command: Command) -> str:
        """Do what a command says; return why not, or empty."""
        if self.closing is not None:
            return f"The task is {self.closing} already."
        match command.verb:
            case "pause":
                who = command.by or "somebody"
                self.ledger.change(paused=f"{who}: {command.reason}" if command.reason else who)
            case "resume":
                if not self.ledger.s.paused:
                    return "The task is not paused."
                self.ledger.change(paused="")
            case "abandon":
                self._abandon(command)
        return ""

    def _abandon(self, command: Command) -> None:
        self.closing = "abandoned"
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

    @workflow.query(name="receipt")
    def receipt_query(self, command_id: str) -> Receipt | None:
        """Show what became of a command."""
        return next((r for r in reversed(self.ledger.s.receipts) if r.id == command_id), None)


def _show(status: str) -> None:
    """Set the status by which lists find the task."""
    workflow.upsert_search_attributes([HF_STATUS.value_set(status)])  # pyright: ignore[reportUnknownMemberType]  temporalio's types


def now() -> float:
    """Time of the current workflow task, in seconds since the epoch."""
    return round(workflow.time(), 3)
