"""The state of one task that its drivers share, and what lists show of it.

The drivers own no state. Next to the ledger, `Core` holds what only the present run knows.

Messages about open approvals go to people by activities next to the task's own work. One that
cannot be delivered never holds up the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.engine.search_attributes import (
    APPROVALS_MEMO,
    CREATED_MEMO,
    HF_AGENT,
    HF_APPROVALS,
    HF_RULES,
    HF_STATUS,
    SNAPSHOT_MEMO,
)
from holdfast.reading.visibility import memo
from holdfast.task import refusals, waits
from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import Command
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import Seal
from holdfast.task.data.state import TaskInput
from holdfast.task.data.wire import NoticeInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals, standing
from holdfast.task.queries.pages import details
from holdfast.task.requests.command_effects import resume
from holdfast.task.requests.delivery import RunRequests
from holdfast.task.requests.phase import Agenda, Ending, Phase, phase_of
from holdfast.task.tool_calls import Room, Running
from holdfast.values.base import Json
from holdfast.values.runs.status import TaskStatus
from holdfast.workflows.activity_calls import Background, begin, now, time_left
from holdfast.workflows.children.children import Children, ChildUndos, StepSpans
from holdfast.workflows.tools.tool_calls import ToolCalls

# The clock of a task: it ends what waits for a time. A task without such a wait has none.


class Clock:
    """Ends pauses, and waits of calls, when their time has come. It owns no state."""

    def __init__(self, ledger: Ledger, after: Callable[[str], None]) -> None:
        """Watch this task.

        Args:
            ledger: The task.
            after: Called when something has ended, with the pause that was in force before.
        """
        self._ledger = ledger
        self._after = after

    async def run(self) -> None:
        """Wait for the next time, and for an earlier one meanwhile. Runs until it is cancelled."""
        while True:
            # No timer while nothing waits: each is two events of history.
            await workflow.wait_condition(lambda: self._due > 0)
            due = self._due

            def is_other(due: float = due) -> bool:
                return self._due != due

            try:
                left = time_left(due, now=now())
                await workflow.wait_condition(is_other, timeout=left, timeout_summary="a wait ends")
            except TimeoutError:
                # A person may have changed it in the same activation: `_end` looks again.
                was = self._ledger.paused
                self._end()
                self._after(was)

    @property
    def _due(self) -> float:
        """When the next wait is over; 0 for never, and while the task ends or is undone."""
        s = self._ledger.s
        if s.closing is not None or s.undo is not None:
            return 0.0
        return min(filter(None, (s.paused_until, waits.next_end(self._ledger))), default=0.0)

    def _end(self) -> None:
        """End what is over."""
        ledger = self._ledger
        waits.end_due(ledger, now=now())
        if 0 < ledger.s.paused_until <= now():
            body: dict[str, Json] = {"verb": "resume", "arguments": {}}
            ledger.note("command", now=now(), text="Its time has come.", body=body)
            resume(ledger)


ONE_ATTEMPT = timedelta(seconds=60)
LONGEST = timedelta(days=1)
PATIENT = RetryPolicy(maximum_interval=timedelta(minutes=10))


class Notices:
    """Sends the messages of one task.

    Attributes:
        sending: Messages in transit, by id.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Send messages about the approvals of this task."""
        self.sending: dict[str, asyncio.Task[None]] = {}
        self._ledger = ledger
        self._began: dict[str, float] = {}

    @property
    def are_on_their_way(self) -> bool:
        """Whether the first attempt to send a message may be in progress."""
        latest = now() - ONE_ATTEMPT.total_seconds()
        return any(
            not task.done() and self._began[key] > latest for key, task in self.sending.items()
        )

    async def send(self) -> None:
        """Send a message for each approval, and another one when it is escalated.

        What was decided meanwhile is not sent any more. Runs until it is cancelled.
        """
        try:
            while True:
                await workflow.wait_condition(self._has_changed)
                due = self._due()
                # Decided meanwhile: whoever is asked after that would decide nothing.
                for key in [key for key in self.sending if key not in due]:
                    self.sending.pop(key).cancel()
                for key, notice in due.items():
                    if self._is_new(key):
                        self._began[key] = now()
                        self.sending[key] = begin(self._deliver(key, notice))
        finally:
            for task in self.sending.values():
                task.cancel()

    def _due(self) -> dict[str, NoticeInput]:
        """Return the newest message about each open approval, by an id of its own."""
        described = self._ledger.s.described
        if described is None or not described.notifies:
            return {}
        found = approvals.messages(self._ledger)
        return {id: NoticeInput(id=id, approval=approval) for id, approval in found.items()}

    def _is_new(self, key: str) -> bool:
        return key not in self.sending and key not in self._ledger.s.noticed

    def _has_changed(self) -> bool:
        described = self._ledger.s.described
        notifies = self._ledger.s.approvals and described is not None and described.notifies
        if not notifies and not self.sending:
            return False
        due = self._due()
        return any(map(self._is_new, due)) or any(key not in due for key in self.sending)

    async def _deliver(self, key: str, notice: NoticeInput) -> None:
        try:
            await workflow.execute_activity(
                "notify",
                notice,
                start_to_close_timeout=ONE_ATTEMPT,
                schedule_to_close_timeout=LONGEST,
                heartbeat_timeout=timedelta(seconds=self._ledger.given.heartbeat),
                retry_policy=PATIENT,
                summary=f"{notice.approval.stage}: {notice.approval.tool or notice.approval.kind}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            workflow.logger.warning("No one was notified of %s: %s", key, error.cause)
        due = self._due()
        kept = [each for each in self._ledger.s.noticed if each in due]
        self._ledger.s.noticed = (*kept, key)


MOST_CARDS = 20
"""Most approvals of a task that lists show; a query returns all. Each change of these adds all of
them to the history."""


def introduce(given: TaskInput) -> None:
    """Give a task what lists show of it, if its client did not: one of another program."""
    info = workflow.info()
    if info.typed_search_attributes.get(HF_AGENT) is None:
        named: list[SearchAttributeUpdate[Any]] = [
            HF_STATUS.value_set("running"),
            HF_AGENT.value_set(given.head.agent),
        ]
        workflow.upsert_search_attributes(named)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
    if CREATED_MEMO not in info.raw_memo:  # other entries may be of any encoding
        began = round(info.workflow_start_time.timestamp(), 3)
        workflow.upsert_memo(memo(given.input, now=began))


FEWEST_EVENTS = 50
"""A run that continued as new sooner would do nothing else."""

EVENTS_PER_STEP = 6
"""Events of a step that has an activity of its own. A step with fewer counts as much: its records
are kept in the workflow until it continues as new."""

UPDATES_PER_RUN = 1500
"""Updates after which a run continues as new: the server accepts 2,000 of one run."""

Work = asyncio.Task[Any] | None
"""A unit of work of the main loop: steps, or an undo, taken as far as they go."""


class Core:
    """The state that the drivers of a task share; they own no state.

    Attributes:
        given: The workflow's input.
        ledger: The task; carried over when it continues as new, as all that it holds.
        requests: Requests to run that wait. They are not carried over: at a rollover each is
            answered with "moved", and its client sends it again to the next run.
        ending: The end that was accepted, if one was; part of the ledger.
        agenda: What can be done now.
        background: Work next to the main loop.
        notices: Messages to people about open approvals.
        children: The tasks that calls of agents as tools are.
        child_undos: Undoes what they did.
        spans: Reports steps to the trace.
        closed: Whether the task is closed: the workflow ends.
        moving: Whether the task is about to continue as new: updates are refused until then.
        unrollable: Whether archiving failed, so that only the next request tries to roll again.
        updates: How many updates this run has accepted.
        running: Calls whose tools may be running; an end or undo counts them as unknown.
        lanes: Numbers of the steps that are being taken further.
        room: Room for calls that are taken further at the same time.
        tool_calls: Takes tool calls further.
        work: The unit of work in progress.
        seal: Digests of the closed task.
        clock: Ends what waits for a time; None as long as nothing did.
        undo_failure: Why the newest undo was refused or failed.
        undone_requests: Ids of the requests that waited when the undo in progress was accepted.
        is_called: Whether the task's turn in its session may have come since it last asked.
    """

    def __init__(self, given: TaskInput) -> None:
        """Begin a run of a task, its first one or a later one."""
        self.given = given
        self.ledger = Ledger(given, task_id=workflow.info().workflow_id, now=now())
        self.requests = RunRequests(self.ledger)
        self.ending = Ending(self.ledger)
        self.agenda = Agenda(self.ledger, self.requests)
        self.background = Background()
        self.spans = StepSpans(self.ledger, self.background)
        self.notices = Notices(self.ledger)
        self.children = Children(self.ledger, self.spans, self.background, self.after_news)
        self.child_undos = ChildUndos(self.ledger, self.children)
        self.closed = False
        self.moving = False
        self.unrollable = False
        self.updates = 0
        # What follows is new in each run of the workflow. What must outlive a rollover belongs to
        # `Carried`, or the next run does not know it.
        self._first = self.ledger.s.steps
        self.running: Running = {(call.n, call.i) for call in self.ledger.s.long_calls}
        self.lanes: set[int] = set()
        self.room = Room()
        self.tool_calls = ToolCalls(self.ledger, self.children, self.running, self.room)
        self.work: asyncio.Task[None] | None = None
        self.seal = Seal()
        self.clock: Clock | None = None
        self.undo_failure: Failure | None = None
        self.undone_requests: frozenset[str] = frozenset()
        self.is_called = False
        self._dated: tuple[tuple[Approval, ...], frozenset[str], float] = ((), frozenset(), 0.0)

    @property
    def phase(self) -> Phase:
        """The phase that the task is in."""
        return phase_of(self.ledger.s, closed=self.closed)

    @property
    def goes(self) -> bool:
        """Whether there is work that needs no decision or request first."""
        return self.agenda.undo_goes if self.phase == "undoing" else self.agenda.steps_go

    @property
    def due(self) -> float:
        """When the next open approval expires, escalates or comes back; 0 for never."""
        # Conditions look at this many times, and an answer may bring thousands of approvals.
        asked, questioned = self.ledger.s.approvals, self.ledger.questioned
        if asked is not self._dated[0] or questioned is not self._dated[1]:
            self._dated = asked, questioned, approvals.deadline(self.ledger)
        return self._dated[2]

    @property
    def rolls(self) -> bool:
        """Whether the task is to continue as new, as soon as nothing is in the way.

        The next run would send a message to a person that is in transit a second time.
        """
        if self.unrollable or (self.notices.sending and self.notices.are_on_their_way):
            return False
        info, most = workflow.info(), max(self.given.roll_events, FEWEST_EVENTS)
        return (
            info.get_current_history_length() >= most
            or EVENTS_PER_STEP * (self.ledger.s.steps - self._first) >= most
            or info.is_continue_as_new_suggested()
            or self.updates >= UPDATES_PER_RUN
        )

    @property
    def lets_go(self) -> bool:
        """Whether the task may continue as new although steps are being taken further.

        It may when they wait for nothing but calls that go on meanwhile.
        """
        # Every lane must wait in a long call and nothing else: the unit's own tasks are lost when
        # the task continues as new, and only long calls are found again by the next run.
        long_calls = self.ledger.s.long_calls
        if not long_calls or not self.rolls or self.is_interrupted():
            return False
        return self.lanes == self.agenda.calling and self.room.taken == len(long_calls)

    def is_interrupted(self, *, undoing: bool = False) -> bool:
        """Whether to break off a unit of work: for an end, or for an undo.

        Args:
            undoing: Whether the unit is the undo itself.
        """
        s = self.ledger.s
        return s.closing is not None or (s.undo is not None and not undoing)

    def leaves_steps(self) -> bool:
        """Whether no open step may be taken further now, whatever its state."""
        return self.is_interrupted() or self.rolls

    def is_left(self, work: Work) -> bool:
        """Whether a unit has ignored its cancellation and another one has replaced it."""
        return work is None or work is not self.work

    def publish(self, status: TaskStatus | None = None) -> None:
        """Show the task's status and open approvals in lists, if they have changed.

        Args:
            status: The status; that of the ledger by default.
        """
        ledger, s, status = self.ledger, self.ledger.s, status or self.ledger.status
        open_now = approvals.pending(ledger) if s.approvals else []
        shown = open_now[:MOST_CARDS]
        ids, count = tuple(map(approvals.card_state, shown)), len(open_now)
        rules = len(standing.listed(ledger)) if s.standing or s.to_session else 0
        known = (s.published, s.published_approvals, s.published_count, s.published_rules)
        if (status, ids, count, rules) == known:
            return
        # Each upsert is an event, and billed: what has not changed is left out.
        updates: list[SearchAttributeUpdate[Any]] = [HF_STATUS.value_set(status)]
        if count != s.published_count:
            updates += [HF_APPROVALS.value_set(count)]
        if rules != s.published_rules:
            updates += [HF_RULES.value_set(rules)]
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        if ids != s.published_approvals:
            snapshot = s.described.snapshot if s.described else ""
            cards = [approvals.card(each) for each in shown]
            workflow.upsert_memo({APPROVALS_MEMO: cards, SNAPSHOT_MEMO: snapshot})
        s.published, s.published_approvals = status, ids
        s.published_count, s.published_rules = count, rules

    @property
    def details(self) -> str:
        """What Temporal's UI shows of the task, in Markdown."""
        return details(self.ledger, self.shown_status, self.ending.why)

    @property
    def shown_status(self) -> TaskStatus:
        """The task's status, also once it is closed."""
        return (self.ending.status if self.closed else None) or self.ledger.status

    def expire(self) -> None:
        """Settle the approvals whose deadline has passed, and escalate due ones."""
        approvals.expire(self.ledger, now=now())
        approvals.escalate(self.ledger, now=now())

    def end(self, status: TaskStatus) -> None:
        """Accept an end, unless an undo is in progress or another end was accepted before."""
        if self.ledger.s.undo is None:
            self.ending.begin(status)

    def abandon(self, command: Command) -> None:
        """Accept an abandon, which also takes the place of an end that cannot be reached."""
        who = command.by or "somebody"
        self.ending.abandon(f"{who}: {command.reason}" if command.reason else who)

    def judge(self, failure: Failure, n: int = 0) -> None:
        """End the task with a verdict; park it with any other failure of a step.

        A child task parks with its verdict as well: its parent decides what follows.

        Args:
            failure: The failure.
            n: Number of the step; 0 for none.
        """
        if refusals.is_verdict(failure) and self.given.parent is None:
            self.ledger.s.verdict = failure
            self.end("failed")
        else:
            self.park(failure, n)

    def park(self, failure: Failure, n: int = 0) -> None:
        """Leave a step first in the queue with its failure, with which waiting requests fail.

        They fail once the steps next to it have ended.
        """
        current = self.ledger.find(n)
        if current is not None:
            failure = failure.model_copy(update={"step": current.open.step.step_id})
        self.ledger.fail(failure, now=now(), n=n)
        # From here on nothing begins by itself: the next request, or the parent, says what to do.
        self.ledger.s.automatic = False
        self.ledger.s.tries_again = False
        self.requests.rest("failed", failure=failure)

    def after_news(self) -> None:
        """Answer requests that nothing will be done for now, and publish what has changed."""
        if self.ledger.s.closing is not None:
            return
        if not self.goes:
            self.requests.settle()
        if not self.moving:
            self.publish()

    def turn_comes(self, *_: str) -> None:
        """Let the task ask its session again whether its turn has come."""
        self.is_called = True
        self.ledger.s.ahead = ()

    def hold_children(self) -> None:
        """Pause or resume child tasks, as this task's own pause has changed."""
        self.children.pause(self.ledger.paused)
        self.watch_clock()

    def watch_clock(self) -> None:
        """Let the clock end what waits for a time, from now on."""
        if self.clock is None:
            self.clock = Clock(self.ledger, self._after_time)
            self.background.keep(self.clock.run())

    def _after_time(self, was: str) -> None:
        if self.ledger.paused != was:
            self.hold_children()
        self.after_news()
