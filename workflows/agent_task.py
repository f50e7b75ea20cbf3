"""The task workflow: a small interpreter that runs steps, keeps the ledger and obeys people.

Only our own code runs here. An AgentWorker's code runs in activities, so that editing it never
breaks a task in flight.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast.task import approvals
from holdfast.task.data.commands import Command
from holdfast.task.data.records import Approval, SegmentRef
from holdfast.task.data.seal import Seal
from holdfast.task.data.state import RunReply, TaskInput
from holdfast.task.data.wire import CloseInput, TaskResult
from holdfast.task.requests import refusals
from holdfast.values.steps import TaskStatus
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import now
from holdfast.workflows.children.finished import settle
from holdfast.workflows.children.reports import Reporter
from holdfast.workflows.steps.steps import StepLanes
from holdfast.workflows.tools.call_outcomes import record_cut
from holdfast.workflows.tools.tool_calls import ask_about_cut
from holdfast.workflows.undo.undo import answer_parent, run_undo, stop_undo
from holdfast.workflows.visibility import keep_seal, publish
from holdfast.workflows.workflow_input import Opening

CANCEL_GRACE_SECONDS = 10

MOST_CARRIED = 200
"""Most events that a run hands on to the next without having archived them."""

CANCELLED = Command(
    id="temporal", verb="abandon", by="temporal", body={"reason": "cancelled through Temporal"}
)

ORPHANED = Command(
    id="parent",
    verb="abandon",
    by="temporal",
    body={"reason": "the task that it works for has ended"},
)


@workflow.defn(name="AgentTask", sandboxed=False)
class AgentTask(StepLanes, Opening):
    """One task: one agent on one input."""

    takes = TaskInput

    @workflow.init
    def __init__(self, given: TaskInput) -> None:
        """Set up the state before any signal or update is handled."""
        super().__init__(given)

    @workflow.run
    async def run(self, given: TaskInput) -> TaskResult:
        """Run the task until it is finalized, abandoned or ended by a verdict."""
        telling = asyncio.create_task(self.spans.tell())
        reading = asyncio.create_task(self.read_commands())
        if given.carried is not None:
            publish(self.ledger, self.ledger.status)
        orphaned = partial(self._abandon, ORPHANED)
        reporter = Reporter(self.ledger, self._to_be_reported, orphaned)
        reporting = asyncio.create_task(reporter.run()) if given.parent is not None else None
        while not self.closed:
            try:
                await self._wait()
                if self.work is not None and not self._lets_go():
                    await self._work()
                elif self.ending.is_due:
                    await self._close()
                elif self._rolls() and (self.ending.is_stuck or not self._undoes()):
                    await self._roll()
                else:
                    await self._work()
                if not self.closed:
                    publish(self.ledger, self.ledger.status)
            except asyncio.CancelledError:
                self.draining = False
                self._abandon(CANCELLED)
        if reporting is not None:
            await reporter.finish()
        await workflow.wait_condition(self._is_done)
        telling.cancel()
        reading.cancel()
        verdict = self.ledger.s.verdict
        if self.closing == "failed" and verdict is not None:
            raise ApplicationError(verdict.message, type=verdict.type, non_retryable=True)
        return TaskResult(status=self.closing or "finished", seal=self.seal)

    def _to_be_reported(self) -> TaskStatus | None:
        """Return the status that the ledger does not know of, if there is one."""
        if self.closed:
            return self.closing
        return "running" if self._retries() else None

    def _is_done(self) -> bool:
        """Whether nobody is to be told anything any more."""
        done = workflow.all_handlers_finished() and self.children.are_told
        return done and not self.inbox

    async def _wait(self) -> None:
        """Wait for work; approvals that nobody decides in time expire meanwhile.

        What could not be closed is tried again when its time has come.
        """
        while not self._has_work():
            try:
                await workflow.wait_condition(self._has_work, timeout=self._left())
            except TimeoutError:
                approvals.expire(self.ledger, now=now())
                if self.ending.is_stuck and now() >= self.ending.due:
                    self.ending.try_again()
                publish(self.ledger, self.ledger.status)

    def _left(self) -> timedelta | None:
        """Return the time until an approval expires or closing is tried again; None for never."""
        deadline = self.ending.due or approvals.deadline(self.ledger)
        return calls.time_left(deadline, now=now()) if deadline else None

    def _has_work(self) -> bool:
        if self.work is not None:
            return True
        if self.closing is not None:
            return self.ending.is_due or self._rolls()
        return self._rolls() or self._runnable()

    async def _work(self) -> None:
        """Do one unit of work; an abandon or undo cancels it, a failure parks the task.

        One that waits only for calls which go on while the task continues as new is left as it is.
        """
        undoing = self.work is None and self.ledger.s.undo is not None
        work = self.work or asyncio.create_task(self._undo_unit() if undoing else self._unit())
        self.work = work
        try:
            await self._watch(work, undoing=undoing)
        except asyncio.CancelledError:
            self._abandon(CANCELLED)
        if not work.done() and self._lets_go():
            return
        if not work.done():
            work.cancel()
            await workflow.wait([work], timeout=CANCEL_GRACE_SECONDS)
        self.work = None  # what did not heed its cancellation has no say any more
        self.requests.tell()
        if self.closing is None and self.ledger.s.undo is None and not self._rolls():
            self.requests.settle(self.ledger)

    async def _watch(self, work: asyncio.Task[None], *, undoing: bool) -> None:
        """Wait for the end of a unit; show what it asks, and let it expire, while it runs."""

        def is_over() -> bool:
            return work.done() or self._interrupted(undoing) or self._lets_go()

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

    async def _undo_unit(self) -> None:
        """Take the undo in progress to its end, or to a person."""
        state = self.ledger.s.undo
        if state is None:
            return
        opens, branch = self.ledger.s.opens, self.ledger.s.branch
        cut = tuple(sorted({*state.cut, *self.running}))
        self.ledger.change(undo=state.model_copy(update={"cut": cut}), long_calls=())
        try:
            if self.ledger.s.described is None:
                self.ledger.described(await calls.describe(self.ledger))
            self.undo_failure = await run_undo(self.ledger, self.children)
        except Exception as error:  # noqa: BLE001  a bug must not retry for ever
            self.undo_failure = calls.failure_of(error)
            self.ledger.note("undo_failed", now=now(), text=self.undo_failure.message)
            stop_undo(self.ledger)
        if self.ledger.s.undo is not None:
            return
        self.children.release()
        self.running.clear()
        if self.undo_failure is None:
            self.spans.left(opens, branch, at=now())
        if state.number:
            answer_parent(self.ledger, state, self.undo_failure)
        if self.undo_failure is not None or state.mode == "release":
            await ask_about_cut(self.ledger, cut)
        elif state.number:
            self.ending.abandon(f"{state.asked.by or 'its parent'}: undone")
        else:
            self.ledger.remember(state.request, RunReply(n=self.ledger.s.steps))
            self._start_over()

    def _start_over(self) -> None:
        """After an undo: whoever waited for what it undid is told; later requests stand."""
        self.requests.fail_some(self.undone_requests, refusals.UNDONE)
        if self.requests.want_all and not self.requests.want_a_step:
            self.ledger.change(automatic=not self.ledger.s.answered)

    async def _unit(self) -> None:
        """Advance the task until its steps are done, parked, or the history must roll."""
        work = asyncio.current_task()
        try:
            if self.ledger.s.described is None:
                self.ledger.described(await calls.describe(self.ledger))
            if self.ledger.s.verdict is not None:  # an undo had come first, and was refused
                self._end("failed")
            if self._finalizes():
                self._end("finished")
            if self.closing is None and self._runnable():
                await self._run_lanes(work)
        except Exception as error:  # noqa: BLE001  a bug must park the task, not retry for ever
            if not self._interrupted(undoing=False) and not self._is_left(work):
                self._judge(calls.failure_of(error))

    async def _roll(self) -> None:
        """Continue as new with the ledger archived; nobody notices but the auditor."""
        self.draining = True
        self.requests.answer_all(RunReply(status="moved"))
        most = 0
        while len(self.ledger.entries) > most or not self._is_done():
            if len(self.ledger.entries) > most:
                try:
                    segment = await self._archive()
                except ActivityError as error:
                    self._roll_failed(error)
                    return
                if segment is None:
                    break
                self.ledger.archived(segment)
            most = MOST_CARRIED  # commands may come all the time: the next run archives them
            await workflow.wait_condition(lambda: self._is_done() or self._is_called_off())
            if self._is_called_off():
                break
        if self._is_called_off():
            self.draining = False
            return
        settle(self.ledger)
        workflow.continue_as_new(
            self.given.model_copy(update={"carried": self.ledger.carried(), "extra_state": {}})
        )

    async def _archive(self) -> SegmentRef | None:
        """Archive the ledger's entries; None when continuing as new is called off meanwhile."""
        archiving = asyncio.create_task(calls.archive(self.ledger))
        try:
            await workflow.wait_condition(lambda: archiving.done() or self._is_called_off())
        finally:
            if not archiving.done():
                archiving.add_done_callback(lambda done: done.cancelled() or done.exception())
                archiving.cancel()
        return archiving.result() if archiving.done() else None

    def _is_called_off(self) -> bool:
        """Whether something comes before continuing as new: an end, or work that cannot go on.

        A call that ended meanwhile without a known outcome is being asked about, or begun again:
        the next run would know nothing of that.
        """
        if self.ending.is_due:
            return True
        return self.work is not None and not self.work.done() and not self._lets_go()

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
        """Finalize or abandon: the archive first, then the session, then the end.

        The commit to the session comes last: until it is made, an abandon can take the place of an
        end that cannot be reached, and after it nothing can fail any more.
        """
        status = self.closing or "finished"
        await workflow.wait_condition(lambda: not self.inbox)  # they are refused, each with a note
        if self.ending.prepare():
            self._prepare_close(status)
        head = self.given.head
        commits = status == "finished" or (status == "failed" and head.dialect.keeps_failed)
        commit = commits and head.session is not None
        failure = self.ending.failure()
        sent = CloseInput(
            status=status,
            at=self.ledger.s.transcript,
            commit=commit,
            failure=failure,
            ledger=self.ledger.s.ledger,
        )
        work = asyncio.create_task(self._store(sent))
        while not work.done():
            try:
                await workflow.wait_condition(work.done)
            except asyncio.CancelledError:  # it is ending already
                continue
        error = work.exception()
        if error is not None:
            found = calls.failure_of(error)
            pause = self.given.heartbeat
            self._park(self.ending.failed(found, now=now(), pause=pause))
            self.requests.tell()
            unheard, self.unheard = self.unheard, []
            for said in unheard:
                self.parent_says(said)
            return
        self.closed = True
        self.seal = work.result()
        keep_seal(self.seal)
        self.children.end("finish")
        if sent.failure is not None:
            self.requests.fail_all(sent.failure)
        self.requests.answer_all(RunReply(n=self.ledger.s.steps), only_all=True)
        self.requests.fail_all(refusals.CLOSED)
        publish(self.ledger, status)

    async def _store(self, sent: CloseInput) -> Seal:
        """Write the task to the archive, then its turn to its session."""
        stored = await calls.close(self.ledger, sent)
        session = self.given.head.session
        if session is not None and stored.turn is not None:
            await calls.commit(session.id, stored.turn)
        return stored.seal

    def _prepare_close(self, status: TaskStatus) -> None:
        """Do what comes before the archive: the ledger that it gets tells of the end."""
        record_cut(self.ledger, self.running)
        self.ledger.change(long_calls=())
        approvals.close_open(self.ledger, now=now())
        self.children.close(status)
        if status == "abandoned":
            self.children.end("abandon", self.ending.why)
        self.ledger.note(
            "closed",
            now=now(),
            text=self.ending.why,
            body={"status": status, "number": self.ledger.next_number()},
        )
