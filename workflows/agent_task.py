"""The task workflow: its handlers, and the main loop that does what the table of phases decides.

Only our own code runs here. An AgentWorker's code runs in activities, so that editing it never
breaks a task in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import HandleQueryInput, WorkflowInboundInterceptor

from holdfast.engine.converter import Opening
from holdfast.engine.search_attributes import AGENT_TASK, SEAL_MEMO
from holdfast.reading.streams.hub import local_hub
from holdfast.task.data.calls import AWAITED, LONG_CALL, SECRET, Approval, StandingRule
from holdfast.task.data.children import secret_of_child
from holdfast.task.data.commands import Receipt, RunReply, RunRequest
from holdfast.task.data.state import TaskInput
from holdfast.task.data.undo import Newest, UndoRequest
from holdfast.task.data.wire import EntriesPage, EntriesRequest, TaskResult, View, ViewRequest
from holdfast.task.people import approvals, standing
from holdfast.task.queries import readable
from holdfast.task.queries.pages import StepView, closed_task, entries_page, step_view, view
from holdfast.task.requests.phase import Next, decide
from holdfast.values.base import Json
from holdfast.values.runs.status import TaskStatus
from holdfast.values.runs.verbs import VERBS
from holdfast.values.steps import Task, TaskStep
from holdfast.workflows import activity_calls as calls
from holdfast.workflows.activity_calls import now
from holdfast.workflows.children.children import Watch
from holdfast.workflows.children.reports import Reporter
from holdfast.workflows.core import Core, introduce
from holdfast.workflows.ends import Closing, Rollover
from holdfast.workflows.requests.updates import (
    CANCELLED,
    ORPHANED,
    Commands,
    ParentWords,
    Updates,
    command_signal,
)
from holdfast.workflows.steps.steps import Steps
from holdfast.workflows.tools.tool_calls import hand_over
from holdfast.workflows.undo.undo import undo_unit

CANCEL_GRACE_SECONDS = 10
ONE_STEP, THE_NEWEST = RunRequest(), UndoRequest()
"""What the updates are asked for that are sent without an argument."""


@workflow.defn(name=AGENT_TASK, sandboxed=False)
class AgentTask(Opening):
    """One task: one agent on one input."""

    takes = TaskInput

    @workflow.init
    def __init__(self, given: TaskInput) -> None:
        """Set up the state before any signal or update is handled."""
        # Signals and updates of the first workflow task are handled before `run` begins: all that
        # they use is made here.
        self.core = Core(given)
        self.parent = ParentWords(self.core)
        self.commands = Commands(self.core, self.parent)
        self.updates = Updates(self.core, self.commands)
        self.steps = Steps(self.core)
        self.closing = Closing(self.core, self.commands, self.parent.take_postponed)
        self.rollover = Rollover(self.core, self.is_done, partial(self.core.abandon, CANCELLED))

    @workflow.run
    async def run(self, given: TaskInput) -> TaskResult:
        """Run the task until it is finalized, abandoned or ended by a verdict."""
        # Background work runs in asyncio tasks that nothing awaits. Its errors are raised from
        # here: only an error of `run` fails the workflow task.
        loop, background = asyncio.create_task(self._run(given)), self.core.background
        while not loop.done():
            try:
                await workflow.wait_condition(lambda: background.error is not None or loop.done())
                background.check()
            except asyncio.CancelledError:
                loop.cancel()
        return loop.result()

    async def _run(self, given: TaskInput) -> TaskResult:
        """Run the main loop until the task is closed."""
        core = self.core
        introduce(given)
        # Each of these waits for its own condition on the ledger, and none ends before the task.
        # They start in this order at each replay: commands are numbered by it.
        core.background.keep(core.notices.send())
        if given.head.session is not None:
            core.background.keep(hand_over(core.ledger, given.head.session))
            if given.head.session.queues:
                # The last one watches the one before it, and so on.
                ahead = Watch(lambda: frozenset(core.ledger.s.ahead[-1:]), core.turn_comes)
                core.background.keep(ahead.run())
        core.background.keep(self.commands.read(), self._watch_children())
        if given.carried is not None or given.held or given.start_at:
            core.publish()
            if core.ledger.s.paused_until or any(c.waiting for c in core.ledger.s.opens):
                core.watch_clock()
        reporter: Reporter | None = None
        if given.parent is not None:
            reporter = Reporter(core.ledger, self._unrecorded_status, self._orphaned)
            watch = Watch(reporter.awaits_parent, self._orphaned)
            core.background.keep(reporter.run(), watch.run())
        # Only `closing.close` sets `closed`. So a task that ends has its record in the archive.
        while not core.closed:
            try:
                await self._turn()
            except asyncio.CancelledError:  # a task ends by closing only: its record is written
                core.moving = False
                core.abandon(CANCELLED)
        await self._rest(reporter)
        core.background.cancel()
        return self._result()

    async def _rest(self, reporter: Reporter | None) -> None:
        """Wait until everyone has their answer, once the task is closed.

        A signal or update that comes now is answered from the closed ledger. The server drops what
        it could not deliver before the workflow ends: so all handlers finish first.
        """
        core = self.core
        while True:
            try:
                if reporter is not None:
                    await reporter.finish()
                await workflow.wait_condition(
                    lambda: self.is_done() and not core.ledger.s.to_session
                )
            except asyncio.CancelledError:  # it has its end; without a seal, that would not count
                if not workflow.patched("sealed-when-cancelled"):
                    raise
                continue
            return

    def _orphaned(self, *_: str) -> None:
        """Abandon this task: its parent has ended."""
        self.core.abandon(ORPHANED)

    def _result(self) -> TaskResult:
        """Return the result, or end the workflow with another status than a finished task has.

        Each end leaves the seal of its record with the run. A memo is an action more, but the
        server keeps no details of a cancellation.

        Raises:
            ApplicationError: A verdict ended the task, or it was abandoned.
            CancelledError: It was cancelled through Temporal.
        """
        core = self.core
        status = core.ending.status or "finished"
        failure = core.ending.failure() if status != "finished" else None
        if failure is None:
            answer = readable.answer(core.ledger)
            return TaskResult(status=status, answer=answer, seal=core.seal)
        if status == "abandoned" and workflow.cancellation_reason() is not None:
            workflow.upsert_memo({SEAL_MEMO: core.seal.wire()})
            raise asyncio.CancelledError
        seal = {SEAL_MEMO: core.seal.wire()}
        raise ApplicationError(failure.text, seal, type=failure.type, non_retryable=True)

    async def _watch_children(self) -> None:
        """Notice the ends of child tasks, from the first one on."""
        children = self.core.children
        await workflow.wait_condition(lambda: bool(self.core.ledger.s.children))
        await Watch(children.unfollowed, children.lose).run()

    async def _turn(self) -> None:
        """Wait until there is something to do, and do it."""
        core = self.core
        await self._wait()
        # A unit that waits for long calls outlives the turn that began it. It is the only unit: the
        # next one begins when `_work` has set `core.work` to None.
        if core.work is not None and not core.lets_go:
            await self._work(core.work)
        else:
            # Nothing is awaited between this decision and the begin of what it decides.
            match self._next():
                case "close":
                    await self.closing.close()
                case "roll":
                    await self.rollover.roll()
                case "undo":
                    await self._work(core.background.begin(undo_unit(core)), undoing=True)
                case "steps":
                    await self._work(core.work or core.background.begin(self.steps.unit()))
                case "end" | "wait":
                    pass
        if not core.closed and self._next() != "close":  # its own status follows at once
            core.publish()

    def _next(self) -> Next:
        """Decide what comes next."""
        core = self.core
        phase, rolls = core.phase, core.rolls
        return decide(
            phase,
            undo_goes=phase == "undoing" and core.agenda.undo_goes,
            steps_go=phase == "open" and not rolls and core.agenda.steps_go,
            rolls=rolls,
        )

    def _unrecorded_status(self) -> TaskStatus | None:
        """Return the status that a report to the parent has in place of the ledger's, if any."""
        if self.core.closed:
            return self.core.ending.status
        return "running" if self.core.agenda.retries else None

    def is_done(self) -> bool:
        """Whether all handlers, commands and signals to child tasks have finished."""
        done = workflow.all_handlers_finished() and self.core.children.all_sent
        return done and not self.commands.are_waiting

    async def _wait(self) -> None:
        """Wait for work; meanwhile approvals expire, and a failed end is tried again in time."""
        core = self.core
        known = 0.0

        def has_news() -> bool:
            if core.work is not None or self._next() != "wait":
                return True
            # A command may have brought an earlier deadline than the timer of this wait.
            return self._deadline != known

        while True:
            known = self._deadline
            if has_news():
                return
            if not await self._comes(has_news):
                if core.phase == "stuck" and now() >= core.ending.due:
                    core.ending.try_again()
                core.publish()

    @property
    def _deadline(self) -> float:
        """When closing is tried again, or an approval is due; 0 for never."""
        closing = self.core.ledger.s.closing
        return closing.due if closing is not None and closing.due else self.core.due

    async def _comes(self, has_news: Callable[[], bool]) -> bool:
        """Wait for news until then; if none come, settle the approvals that are due."""
        deadline = self._deadline
        left = calls.time_left(deadline, now=now()) if deadline else None
        closing = self.core.ledger.s.closing
        label = "closing again" if closing is not None and closing.due else "an approval is due"
        try:
            await workflow.wait_condition(has_news, timeout=left, timeout_summary=label)
        except TimeoutError:
            self.core.expire()
            return False
        return True

    async def _work(self, work: asyncio.Task[None], *, undoing: bool = False) -> None:
        """Do a unit of work; an abandon or undo cancels it, a failure parks the task.

        A unit that waits only for long calls is kept while the task continues as new: those calls
        go on, and cancelling the unit would cancel their activities.
        """
        core = self.core
        core.work = work
        try:
            await self._watch(work, undoing=undoing)
        except asyncio.CancelledError:
            core.abandon(CANCELLED)
        if not work.done() and core.lets_go:
            return
        if not work.done():
            work.cancel()
            await workflow.wait([work], timeout=CANCEL_GRACE_SECONDS)
        # A unit that ignores its cancellation is not waited for. From here on it finds itself
        # replaced (`Core.is_left`) and changes nothing, so the next unit has the ledger alone.
        core.work = None
        if core.requests.told:
            core.requests.tell_failures()
        asks = core.phase == "undoing" and approvals.undo_waits(core.ledger)
        if (core.phase == "open" or asks) and not core.rolls:
            core.requests.settle()

    async def _watch(self, work: asyncio.Task[None], *, undoing: bool) -> None:
        """Wait for the end of a unit; meanwhile publish its approvals and let them expire."""
        core = self.core

        def is_over() -> bool:
            return work.done() or core.is_interrupted(undoing=undoing) or core.lets_go

        while not is_over():
            asked = core.ledger.s.approvals

            def has_news(asked: tuple[Approval, ...] = asked) -> bool:
                return is_over() or core.ledger.s.approvals != asked

            await self._comes(has_news)
            # Approvals have changed; whoever asked may have ended the unit in the same activation.
            if not is_over():
                core.publish()

    # Updates and signals

    @workflow.update(
        name="run",
        description='Run a step, or with {"all": true} all of them. Answers when the task has its'
        " answer or waits for a person.",
    )
    async def run_update(self, asked: RunRequest = ONE_STEP) -> RunReply:
        """Run one step, or all of them. Sent twice with one id, it runs once."""
        return await self.updates.run(asked)

    @run_update.validator
    def check_run(self, asked: RunRequest = ONE_STEP) -> None:
        """Refuse what cannot be run."""
        self.updates.check_run(asked)

    @workflow.update(
        name="finalize", description="Close an answered task: its answer is the result."
    )
    async def finalize_update(self) -> bool:
        """Commit to the session, once, and close the task."""
        return await self.updates.finalize()

    @finalize_update.validator
    def check_finalize(self) -> None:
        """Refuse to finalize a task without an answer."""
        self.updates.check_finalize()

    @workflow.update(
        name="undo",
        description='Take the newest step back, with its effects. {"by": "ann", "reason": "..."};'
        ' "to": 1 keeps the first step only.',
    )
    async def undo_update(self, asked: UndoRequest = THE_NEWEST) -> dict[str, Json]:
        """Move the head back, effects and all; answers when done, or when a person must decide."""
        return (await self.updates.undo(asked)).model_dump(mode="json")

    @undo_update.validator
    def check_undo(self, asked: UndoRequest = THE_NEWEST) -> None:
        """Refuse what cannot be undone."""
        self.updates.check_undo(asked)

    vars().update({f"{verb}_signal": command_signal(verb) for verb in VERBS})

    @workflow.signal(dynamic=True, description="Reports and requests of other tasks.")
    def signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take a child's report or a request of the parent; refuse any other name, and record it.

        Signals are decoded by their handlers and not by Temporal, which drops what it cannot
        decode, and fails the workflow task when the number of values is wrong.
        """
        self.commands.hear(name, [arg.payload.data for arg in args])

    # Queries for people: no input, plain JSON

    @workflow.query(name="task", description="Status, agent, input, cost, what it waits for.")
    def task_query(self) -> dict[str, Json]:
        """Describe the task; true for closed ones as well."""
        core = self.core
        return readable.task(core.ledger, core.shown_status, core.ending.why)

    @workflow.query(
        name="completed_steps",
        description="The steps that stand: input, calls, output, times, cost. Old ones in short.",
    )
    def completed_steps_query(self) -> list[dict[str, Json]]:
        """List the completed steps."""
        return readable.completed_steps(self.core.ledger)

    @workflow.query(
        name="upcoming_steps",
        description="The steps in progress and what they wait for, then the queued ones.",
    )
    def upcoming_steps_query(self) -> list[dict[str, Json]]:
        """List the steps to come."""
        return [] if self.core.closed else readable.upcoming_steps(self.core.ledger)

    @workflow.query(
        name="approvals",
        description="What waits for a person, and what was decided for the steps in progress.",
    )
    def approvals_query(self) -> list[dict[str, Json]]:
        """List approvals."""
        return readable.approvals_of(self.core.ledger)

    @workflow.query(
        name="effects",
        description="The calls that may have changed the world; which were undone or remain.",
    )
    def effects_query(self) -> list[dict[str, Json]]:
        """List effects."""
        return readable.effects(self.core.ledger)

    # Queries for programs: our own values

    @workflow.query(name="view", description="For programs: what an activity lacks.")
    def view_query(self, asked: ViewRequest) -> View:
        """Show an activity what it lacks."""
        shown = view(self.core.ledger, asked)
        if not (self.core.closed and asked.failure):
            return shown
        return shown.model_copy(update={"failure": self.core.ending.failure()})

    @workflow.query(name="task_value", description="For programs: the task as the API gives it.")
    def task_value_query(self) -> Task:
        """Describe the task, which may be closed before its workflow ends.

        A parent that learns of the end asks at once, while the workflow still sends signals.
        """
        core, task = self.core, self.core.ledger.task()
        if not core.closed:
            return task
        return closed_task(task, core.shown_status, core.ending.failure())

    @workflow.query(name="upcoming", description="For programs: the queued steps as data.")
    def upcoming_query(self) -> list[TaskStep]:
        """Show the step in progress, then the queued ones."""
        return list(self.core.ledger.queue.upcoming())

    @workflow.query(name="entries", description="For programs: a page of the ledger.")
    def entries_query(self, asked: EntriesRequest) -> EntriesPage:
        """Show a page of the ledger; note that someone may want more than that."""
        local_hub.asked(workflow.info().workflow_id, asked.hub)
        return entries_page(self.core.ledger, asked)

    @workflow.query(name="step", description="For programs: one step as data.")
    def step_query(self, n: int) -> StepView:
        """Show one step."""
        return step_view(self.core.ledger, n)

    @workflow.query(
        name="approval_values", description="For programs: what waits for people, as data."
    )
    def approval_values_query(self) -> list[Approval]:
        """Show what waits for a person, and what was decided for the step in progress."""
        return approvals.shown(self.core.ledger)

    @workflow.query(name="standing_rules", description="Decisions that hold for later calls.")
    def standing_rules_query(self) -> list[StandingRule]:
        """Show the decisions that hold for later calls, also those in transit to the session."""
        return standing.listed(self.core.ledger)

    @workflow.query(
        name=SECRET,
        description="For activities: shows that their signals are of this task. It guards against"
        " clients that may only send signals; a client that may query can also read the history.",
    )
    def secret_query(self) -> str:
        """Return the secret by which an activity of this task proves that a signal is its own."""
        return secret_of_child(self.core.given.secret, LONG_CALL)

    @workflow.query(name=AWAITED, description="For activities: the long calls that are awaited.")
    def awaited_query(self) -> list[str]:
        """List the long calls whose outcomes the task awaits; others must be cancelled."""
        is_cut = self.core.phase != "open"
        return [] if is_cut else [call.id for call in self.core.ledger.s.long_calls]

    @workflow.query(
        name="newest", description="For programs: what an undo of the newest step takes back."
    )
    def newest_query(self) -> Newest:
        """Show what an undo of the newest step would take back."""
        return self.core.ledger.newest

    @workflow.query(name="receipt", description="For programs: how a command was received.")
    def receipt_query(self, command_id: str) -> Receipt | None:
        """Show how a command was received."""
        return self.core.ledger.log.receipt_of(command_id)


class Details(WorkflowInboundInterceptor):
    """Describes a task for Temporal's UI when the UI asks, not at each step."""

    async def handle_query(self, input: HandleQueryInput) -> Any:
        """Answer a query."""
        shown, task = await super().handle_query(input), workflow.instance()
        if input.query == "__temporal_workflow_metadata" and isinstance(task, AgentTask):
            shown.current_details = task.core.details
        return shown
