"""The task workflow: a small interpreter that runs steps, keeps the ledger and obeys people.

Only our own code runs here. An AgentWorker's code runs in activities, so that editing it never
breaks a task in flight.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast import approvals
from holdfast.commands import Command
from holdfast.records import Approval, Failure, OpenState, StepRecord
from holdfast.state import RunReply, TaskInput
from holdfast.wire import Advanced, CloseInput, RunRequest, TaskResult
from holdfast.workflows import calls
from holdfast.workflows.calls import now
from holdfast.workflows.desk import TaskDesk
from holdfast.workflows.pending import Pending
from holdfast.workflows.tools import ask_about_cut, run_tools
from holdfast.workflows.undoing import run_undo, stop_undo
from holdfast.workflows.visible import publish

UPDATES_PER_RUN = 1500
CANCEL_GRACE_SECONDS = 10
FEWEST_EVENTS = 50
"""A run that rolled sooner would do nothing but roll."""

CANCELLED = Command(
    id="temporal", verb="abandon", by="temporal", body={"reason": "cancelled through Temporal"}
)


@workflow.defn(name="AgentTask", sandboxed=False)
class AgentTask(TaskDesk):
    """One task: one agent on one input."""

    @workflow.init
    def __init__(self, given: TaskInput) -> None:
        """Set up the state before any signal or update is handled."""
        super().__init__(given)

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

    async def _wait(self) -> None:
        """Wait for work; approvals that nobody decides in time expire meanwhile."""
        while not self._has_work():
            try:
                await workflow.wait_condition(self._has_work, timeout=self._left())
            except TimeoutError:
                approvals.expire(self.ledger, now=now())
                publish(self.ledger, self.ledger.status)

    def _left(self) -> timedelta | None:
        """Return the time until the next approval expires, None for never."""
        deadline = approvals.deadline(self.ledger)
        return timedelta(seconds=max(deadline - now(), 0)) if deadline else None

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
        self.requests.tell()
        if self.closing is None and self.ledger.s.undo is None:
            self.requests.settle(self.ledger)

    async def _watch(self, work: asyncio.Task[None], *, undoing: bool) -> None:
        """Wait for the end of a unit; show what it asks, and let it expire, while it runs."""

        def is_over() -> bool:
            return work.done() or self._interrupted(undoing)

        while not is_over():
            asked = self.ledger.s.approvals

            def has_news(asked: tuple[Approval, ...] = asked) -> bool:
                return is_over() or self.ledger.s.approvals != asked

            try:
                await workflow.wait_condition(has_news, timeout=self._left())
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
        if self.requests.want_all and not self.requests.want_a_step:
            self.ledger.change(automatic=not self.ledger.s.answered)

    async def _unit(self) -> None:
        """Advance the task until its steps are done, parked, or the history must roll."""
        try:
            if self.ledger.s.described is None:
                self.ledger.described(await calls.describe(self.ledger))
            if self.verdict is not None:  # closing had failed; try again
                self._end("failed")
            if self.given.finalize and self.ledger.s.answered:
                self._end("finished")
            if self.closing is None and self._runnable():
                await self._run_lanes()
        except Exception as error:  # noqa: BLE001  a bug must park the task, not retry for ever
            if not self._interrupted(undoing=False) and not self._is_left(self.work):
                self._judge(calls.failure_of(error))

    async def _run_lanes(self) -> None:
        """Run open steps side by side, each in a lane of its own, and begin others meanwhile."""
        work, lanes = self.work, dict[int, asyncio.Task[None]]()

        def idle() -> list[OpenState]:
            return [c for c in self.ledger.s.opens if c.n not in lanes and self._goes(c)]

        def has_news() -> bool:
            over = any(lane.done() for lane in lanes.values())
            return over or (not self._leaves() and (bool(idle()) or self._has_new_requests()))

        try:
            while not self._is_left(work):
                if not self._leaves():
                    self._take_steps()
                    for current in idle():
                        lanes[current.n] = asyncio.create_task(self._lane(current.n, work))
                if not lanes:
                    return
                await workflow.wait_condition(has_news)
                for n in [n for n, lane in lanes.items() if lane.done()]:
                    await lanes.pop(n)
        except asyncio.CancelledError:  # not `finally`: an evicted task may await nothing
            for lane in lanes.values():
                lane.cancel()
            await asyncio.gather(*lanes.values(), return_exceptions=True)
            raise

    async def _lane(self, n: int, work: asyncio.Task[None] | None) -> None:
        """Take one step to its end, or to where it needs somebody."""
        try:
            while not self._leaves() and not self._is_left(work):
                current = self.ledger.find(n)
                if current is None or not self._goes(current):
                    return
                await self._advance(n, work)
        except Exception as error:  # noqa: BLE001  as for the unit
            if not self._interrupted(undoing=False) and not self._is_left(work):
                self._judge(calls.failure_of(error), n)

    def _leaves(self) -> bool:
        """Whether no open step may be taken further now, whatever its state."""
        return self._interrupted(undoing=False) or self._rolls()

    def _is_left(self, work: asyncio.Task[None] | None) -> bool:
        """Whether a unit did not heed its cancellation, and another has taken over."""
        return work is None or work is not self.work

    def _has_new_requests(self) -> bool:
        """Whether somebody wants more than what the lanes are doing."""
        return self._retries() or self._new_round() is not None or self._begins()

    def _new_round(self) -> Pending | None:
        """Return the request for all ready steps that has not been looked at yet."""
        wanted = self.requests.round
        known = wanted is None or wanted.id in self.ledger.s.rounds
        return None if known or self.ledger.failure is not None else wanted

    def _take_steps(self) -> None:
        """Try again what has failed, if somebody wants that; open the next steps."""
        if self._retries():
            self._retry()
        ledger, new = self.ledger, self._new_round()
        if new is not None:
            free = [c for c in ledger.s.opens if not c.owner]
            steps = (*(current.open.step for current in free), *ledger.ready())
            ledger.own(new.id)
            plan = {step.step_id: 0 for step in steps}
            ledger.change(rounds={**ledger.s.rounds, new.id: plan} if plan else ledger.s.rounds)
        while self._begins():
            steps = self._next_steps()
            pending = self.requests.round or self.requests.next_for(steps, ledger.owners)
            if pending is not None and not pending.asked.round:
                ledger.begin(pending.asked, now=now(), owner=pending.id)
                return
            if pending is None and not ledger.s.automatic:
                return
            asked = RunRequest(
                step=steps[0].step_id, tool_choice=pending.asked.tool_choice if pending else ""
            )
            ledger.begin(asked, now=now(), owner=pending.id if pending else "")

    def _retry(self) -> None:
        """Try again what has failed: all of it, or the step that somebody asks for."""
        ledger, failed = self.ledger, self.ledger.failed
        ledger.change(failure=None)
        if not failed:
            return
        steps = tuple(current.open.step for current in failed)
        pending = self.requests.next_for(steps, ledger.owners)
        if pending is None:
            for current in failed:
                ledger.retry(current.n, RunRequest(), now=now())
            return
        wanted = self._failed(pending.asked.step) or failed[0]
        ledger.retry(wanted.n, pending.asked, now=now(), owner=pending.id)

    async def _advance(self, n: int, work: asyncio.Task[None] | None) -> None:
        """Take an open step one activity further."""
        ledger = self.ledger
        current = ledger.at(n)
        if ledger.missing_calls(n):
            failure = await run_tools(ledger, n, self.running)
            if not self._is_left(work):
                self._judge(failure, n)
        elif current.result is not None:
            self._finish_step(n)
        elif current.calls:
            ledger.answer_calls(n)
        else:
            got = await self._ask_worker(n)
            if self._is_left(work):
                return
            failure = ledger.advanced(n, got) or got.failure
            if failure is not None:
                self._judge(failure, n)
            elif got.limit:
                self._limit(n)
            elif got == Advanced():
                self._park(calls.NO_PROGRESS, n)

    async def _ask_worker(self, n: int) -> Advanced:
        """Run the AgentWorker's code; meanwhile the budget counts one call more."""
        sent = calls.advance(self.ledger, n, now=now())
        self.ledger.asking.add(n)
        try:
            return await sent
        finally:
            self.ledger.asking.discard(n)

    def _judge(self, failure: Failure | None, n: int = 0) -> None:
        """End the task when a tool call was a verdict, park it when a call failed."""
        if failure is None:
            return
        if failure.type in calls.VERDICTS:
            self.verdict = failure
            self._end("failed")
        else:
            self._park(failure, n)

    def _limit(self, n: int) -> None:
        """A step wants a model call beyond the budget."""
        budget = self.given.budget
        policy = budget.on_exceeded if budget is not None else "ask"
        what = self.ledger.exceeded(now=now(), n=n)
        self.ledger.note("limit", now=now(), text=what, body={"policy": policy})
        match policy:
            case "finish":
                self.ledger.finish_early(n)
            case "fail":
                turns = budget.max_turns if budget is not None else None
                text = f"Max turns ({turns}) exceeded" if "turns" in what else f"Budget: {what}"
                self._judge(Failure(type="MaxTurnsExceeded", message=text))
            case "ask":
                text = f"The budget is used up ({what}). approve: one more call; reject: finish now"
                approvals.ask(self.ledger, n, -1, "limit", now=now(), text=text)

    def _finish_step(self, n: int) -> None:
        """Close an open step and answer whoever waits for it."""
        ledger = self.ledger
        owner = ledger.at(n).owner
        record = ledger.finish(n, now=now())
        if owner in ledger.s.rounds:
            self._finish_in_round(owner, record)
        else:
            reply = RunReply(n=record.n)
            answered = self.requests.deliver(owner, reply)
            if answered:
                ledger.remember(answered, reply)
            elif not ledger.s.automatic and ledger.failure is None:
                ledger.change(undelivered=(*ledger.s.undelivered, record.n))
        if ledger.s.answered:
            ledger.change(automatic=False)
            if self.given.finalize:
                self._end("finished")
        elif ledger.s.automatic and not ledger.s.opens and not ledger.ready():
            queue = ledger.s.queue
            stalled = calls.none_ready(queue) if queue else calls.stalled(record.step.step_id)
            self._park(stalled)

    def _finish_in_round(self, owner: str, record: StepRecord) -> None:
        """Note that one of several steps is done; answer when all of them are."""
        rounds = self.ledger.s.rounds
        done = {**rounds[owner], record.step.step_id: record.n}
        if all(done.values()):
            reply = RunReply(n=record.n, round=tuple(done.values()))
            self.requests.deliver(owner, reply)
            self.ledger.remember(owner, reply)
            self.ledger.change(rounds={id: r for id, r in rounds.items() if id != owner})
        else:
            self.ledger.change(rounds={**rounds, owner: done})

    def _park(self, failure: Failure, n: int = 0) -> None:
        """Leave a step first in the queue with its error; whoever waits is told.

        Steps beside it are taken to their end first.
        """
        self.ledger.fail(failure, now=now(), n=n)
        self.ledger.change(automatic=False, rounds={})
        self.ledger.disown()
        self.requests.fail_later(failure)

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
        self.requests.tell()

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
            self.requests.tell()
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
