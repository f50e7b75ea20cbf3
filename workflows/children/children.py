"""The children of a task: calls of agents as tools, each a task of its own.

An undo stops the children of the steps to be undone, then undoes or releases them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, FailureError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from holdfast.engine.search_attributes import AGENT_TASK
from holdfast.reading.visibility import attributes, memo
from holdfast.task.data.calls import Outcome
from holdfast.task.data.children import (
    ENDED,
    SAYS,
    ChildReport,
    ChildState,
    EndNested,
    ParentRef,
    ParentSays,
    child_id,
    is_secret,
    secret_of_child,
)
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import RunRules
from holdfast.task.data.records import LeftStep, OpenState, StepRecord
from holdfast.task.data.state import TaskInput
from holdfast.task.data.undo import Obstacle, Undoable, UndoRequest
from holdfast.task.data.wire import Nesting
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.task.queries.pages import details_of, title_of
from holdfast.task.step_body import body_of
from holdfast.tracing.export import send_later
from holdfast.tracing.finished import Finished, call_span, step_span
from holdfast.tracing.spans import TraceRules, below_call
from holdfast.tracing.switch import may_trace
from holdfast.values.code.user_calls import heard
from holdfast.values.messages import NOTHING
from holdfast.values.runs.status import TaskStatus
from holdfast.values.settings import Budget
from holdfast.workflows.activity_calls import Background, failure_of, now
from holdfast.workflows.children.reports import end_settled

# Spans of steps and of child tasks' calls, exported by the workflow when they are over.
#
# Exporting adds no command to the history, nothing depends on it, and a replay exports nothing.
# Times and ids are the task's own, so that a span that is exported twice is the same.

LOSS_SECONDS = 60.0
"""How much of its newest spans a worker process may lose when it is killed: exporters wait a few
seconds for more. The worker that takes over replays the task, and exports that much again."""


class StepSpans:
    """Makes and exports the spans of one task, in a process that `may_trace`."""

    def __init__(self, ledger: Ledger, background: Background) -> None:
        """Export spans of this task, in the background."""
        self._head = ledger.given.head
        self._background = background
        self._is_exporting = False
        self._due: list[tuple[float, Callable[[TraceRules], Finished]]] = []

    @functools.cached_property
    def _rules(self) -> TraceRules | None:
        info = workflow.info()
        return TraceRules.of(info.namespace, info.workflow_id, self._head)

    def over(self, record: StepRecord) -> None:
        """Add the span of a completed step."""
        self.add(record.ended, functools.partial(_step_span, record))

    def left(self, opens: Iterable[OpenState], branch: int, at: float) -> None:
        """Add the spans of open steps that an undo has left."""
        for current in opens:
            left = LeftStep(was=current, branch=branch, at=at, why="undone")
            self.add(at, functools.partial(_step_span, left))

    def child(self, run: RunRules, name: str) -> RunRules:
        """Return a child's rules, with the span of its tool call as the parent span."""
        span = self._rules.trace.call(name) if self._rules is not None else ""
        return below_call(run, self._rules, span)

    def add(self, at: float, made: Callable[[TraceRules], Finished]) -> None:
        """Keep a span until it is exported; in a replay, as long as it may have been lost."""
        if self._rules is not None:
            self._due = [due for due in self._due if due[0] >= at - LOSS_SECONDS]
            self._due.append((at, made))
            if not self._is_exporting:
                self._is_exporting = True
                self._background.keep(self._export())

    async def _export(self) -> None:
        """Export spans as they come, except while the task is replayed."""
        while True:
            await workflow.wait_condition(self._has_news)
            due, self._due = self._due, []
            for _, made in due:
                if self._rules is not None:
                    send_later(self._rules, made)

    def _has_news(self) -> bool:
        return bool(self._due) and not workflow.unsafe.is_replaying()


def _step_span(of: StepRecord | LeftStep, rules: TraceRules) -> Finished:
    return step_span(rules, body_of(of))


FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(hours=1)
"""The pauses between two looks: each is twice as long as the one before. An end is noticed after as
long again as was waited, at the latest after an hour."""

ONE_LOOK = timedelta(minutes=1)


class Watch:
    """Notices that tasks have ended which could not say so: by Temporal's own tools.

    One activity looks; an attempt that finds no end fails, and the server makes the next one after
    a pause. So however long it waits, it adds three events to the history, and takes up no worker.
    """

    def __init__(
        self, wanted: Callable[[], frozenset[str]], tell: Callable[[str, str], None]
    ) -> None:
        """Watch other tasks for a task.

        Args:
            wanted: Returns the ids of those whose end must be noticed now.
            tell: Called with the id of one that has ended, and how. It is not wanted afterwards.
        """
        self._wanted = wanted
        self._tell = tell

    async def run(self) -> None:
        """Watch until it is cancelled."""
        while True:
            await workflow.wait_condition(lambda: bool(self._wanted()))
            await self._look(self._wanted())

    async def _look(self, watched: frozenset[str]) -> None:
        """Wait until one of some tasks has ended, none is wanted any more, or another one is."""
        looking = workflow.start_activity(
            ENDED,
            sorted(watched),
            result_type=dict[str, str],
            start_to_close_timeout=ONE_LOOK,
            retry_policy=RetryPolicy(initial_interval=FIRST_PAUSE, maximum_interval=LONGEST_PAUSE),
            summary=f"{len(watched)} tasks",
        )
        looking.add_done_callback(heard)
        # A task that joins those watched needs a new activity: the input of this one is fixed.
        await workflow.wait_condition(lambda: looking.done() or not self._is_for(watched))
        if not looking.done():
            looking.cancel()
            return
        for task, how in sorted(looking.result().items()):
            self._tell(task, how)

    def _is_for(self, watched: frozenset[str]) -> bool:
        wanted = self._wanted()
        return bool(wanted) and wanted <= watched


HEAR_SECONDS = 10.0
"""How long a request waits for fresh reports of children; then the known ones have to do."""

MOST_AT_ONCE = 500
"""Most signals to children on the way at the same time: the server refuses a workflow that has more
than 2,000. Replays depend on the number."""

STRANGER = "Not run: there is a workflow {!r} already, which is not a task of this call."

UNCLEAR = (
    "It is not known whether it ran: there is a workflow {!r} already, and whether that is the task"
    " of this call could not be found out: {}"
)

LOOK_UP = timedelta(seconds=30)


class Children:
    """Starts the children of a task, sends them requests, and keeps what they report."""

    def __init__(
        self, ledger: Ledger, spans: StepSpans, background: Background, lost: Callable[[], None]
    ) -> None:
        """Drive the children of a task.

        Args:
            ledger: What is known of them.
            spans: Emits the spans of their calls.
            background: Runs starts and signals.
            lost: Called when one has ended that could not report it.
        """
        self._ledger = ledger
        self._spans = spans
        self._background = background
        self._lost = lost
        self._followed: set[str] = set()
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._newest: dict[str, asyncio.Task[None]] = {}  # the order sent last, by child
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    @property
    def all_sent(self) -> bool:
        """Whether all starts of children and signals to them have finished."""
        return not self._sending and not self._starting

    def _known(self) -> dict[str, ChildState]:
        return self._ledger.s.children

    def change(self, child: str, **fields: object) -> None:
        """Change what the ledger knows of a child."""
        self._ledger.put_child(child, self._known()[child].model_copy(update=fields))

    # ---- one call

    def take(self, n: int, i: int) -> Failure | None:
        """Handle a child that has failed: stop the step once, then let the child try again.

        Returns:
            Why the step stops.
        """
        name = self._ledger.child(n, i)
        child = self._known()[name]
        if child.status != "needs_attention":
            return None
        if child.told:
            self.change(name, status="running", failure=None, told=False)
            self.send(name, run=True)
            return None
        self.change(name, told=True)
        found = child.failure or Failure(type="StepFailedError", message="It needs attention.")
        text = (
            f"Task {name!r}, which a tool call of this step runs, needs attention:"
            f" {found.type}: {found.message} It goes on when this task is run again."
        )
        return found.model_copy(update={"message": text, "step": ""})

    def start(self, n: int, i: int, plan: Nesting) -> str:
        """Start the child of a call, and return its id.

        It runs on its own and stays open until this task ends.
        """
        ledger = self._ledger
        current, given = ledger.at(n), ledger.given
        place = (ledger.s.branch, n, current.batch, i)
        name = child_id(ledger.task_id, place, self._known())
        above = given.parent
        parent = ParentRef(
            task=ledger.task_id,
            step=current.open.step.step_id,
            call=current.calls[i].id,
            root="" if above is None else above.first,
            depth=1 if above is None else above.depth + 1,
        )
        head, changed = plan.task.head, ledger.s.changed
        if not ledger.takes_settings:  # what it has of this run is not changed either
            head = head.model_copy(update={"run": head.run.model_copy(update={"inherits": False})})
        if changed is not None and head.run.inherits:  # since it was prepared
            head = changed.inherited.applied(head)
        changes: dict[str, object] = {
            "head": head.model_copy(update={"run": self._spans.child(head.run, name)}),
            "heartbeat": given.heartbeat,
            "roll_events": given.roll_events,
            "parent": parent,
            "held": ledger.paused,
            "secret": secret_of_child(given.secret, name),
        }
        dollars = NOTHING
        if ledger.money.limit is not None:
            dollars = ledger.money.child_share(n)
            changes |= {
                "budget": (plan.task.budget or Budget()).model_copy(
                    update={"max_dollars": dollars}
                ),
                "on_dollars": ledger.money.policy,
            }
        # Known to the ledger before the server is asked: a report may come before the start
        # returns.
        begun = plan.task.model_copy(update=changes)
        # It reports what changes from there on: one that begins paused says nothing of it.
        status: TaskStatus = "paused" if ledger.paused else "running"
        known = ChildState(place=place, status=status, started=now(), dollars=dollars)
        ledger.put_child(name, known)
        ledger.calls.begin_child(n, i, plan.begun)
        self._starting[name] = self._background.begin(self._start(name, begun))
        return name

    async def _start(self, name: str, begun: TaskInput) -> None:
        """Start a child; after a reset of this workflow, take over the one that is there.

        A workflow with that id that is not this task's child is left alone: a client chose its id.
        """
        try:
            handle: ChildWorkflowHandle[Any, Any] = await workflow.start_child_workflow(
                AGENT_TASK,
                begun,
                id=name,
                parent_close_policy=ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=attributes(begun),
                memo=memo(begun.input, now=now()),
                static_summary=title_of(begun.head.agent, begun.input),
                static_details=details_of(begun.head.agent, begun.input),
            )
        # After a reset of this workflow the child of the lost run is there already.
        except WorkflowAlreadyStartedError:
            await self._meet(name)
        else:
            self._followed.add(name)
            self._background.begin(self._follow(name, handle))
        finally:
            self._starting.pop(name, None)

    async def _meet(self, name: str) -> None:
        """Take over a workflow that has the child's id, if it is a child of this task."""
        try:
            if await self._is_own(name):
                self.send(name)
            else:
                self._refuse(name, STRANGER.format(name))
        except ActivityError as error:  # the call would wait for ever
            self._refuse(name, UNCLEAR.format(name, failure_of(error).text), status="unknown")

    async def _is_own(self, name: str) -> bool:
        """Whether a workflow that is there already is a child of this task."""
        own: bool = await workflow.execute_activity(
            "is_own", name, result_type=bool, start_to_close_timeout=LOOK_UP, summary=name
        )
        return own

    def _refuse(
        self, name: str, text: str, status: Literal["failed", "unknown"] = "failed"
    ) -> None:
        """End a call whose task cannot be begun, because something else has its id."""
        child = self._known()[name]
        branch, n, _, i = child.place
        open_here = self._ledger.find(n) is not None and self._ledger.child(n, i) == name
        failure = Failure(type="TaskExistsError", message=text)
        self.change(name, closed=True, left=True, status="failed", failure=failure)
        if open_here and branch == self._ledger.s.branch:
            told = Outcome(content=text, is_error=True, status=status, attempts=0)
            self._ledger.calls.outcome(n, i, told)

    async def _follow(self, name: str, ended: asyncio.Task[Any]) -> None:
        """Record that a child's workflow has ended, for one that could not report it."""
        await workflow.wait([ended])
        heard(ended)
        self.lose(name)

    def unfollowed(self) -> frozenset[str]:
        """Name the children that are waited for and whose end the server does not report.

        It reports that to the run that has started them, and this is a later one.
        """
        known, seen = self._ledger.s.children, self._followed
        if not known:
            return frozenset()
        names = (name for name in known if name not in seen and name not in self._starting)
        return frozenset(name for name in names if known[name].is_watched)

    def lose(self, name: str, how: str = "ended") -> None:
        """Record that a child has ended without a report: its call and its questions end as well.

        Args:
            name: The child.
            how: How it has ended.
        """
        child = self._known().get(name)
        if child is not None and not child.closed:
            status = child.status if child.is_over else "abandoned"
            text = f"It was {how} with Temporal's own tools."
            gone = Failure(type="TaskClosedError", message=text)
            known = {"closed": True, "unsettled": not child.is_over, "status": status}
            self.change(name, **known, approvals=(), failure=gone)
            self._lost()

    def heard(self, report: ChildReport) -> str:
        """Record a child's report; return why it is refused, or empty."""
        child = self._known().get(report.id)
        if not is_secret(report.secret, secret_of_child(self._ledger.given.secret, report.id)):
            return f"A report on task {report.id[:200]!r} did not come from that task."
        if child is not None:
            self._ledger.put_child(report.id, child.after(report))
        return ""

    def done(self, n: int, i: int, outcome: Outcome) -> None:
        """Emit the span of a call that has its outcome."""
        name = self._ledger.child(n, i)
        if name:
            self.emit_span(name, outcome)

    def emit_span(self, name: str, outcome: Outcome | None = None, status: str = "") -> None:
        """Emit the span of a call that is over or left, once."""
        child = self._known()[name]
        _, n, _, i = child.place
        if not child.started or self._ledger.find(n) is None or self._ledger.child(n, i) != name:
            return
        current = self._ledger.at(n)
        approval = approvals.latest(self._ledger, n, i)
        call = current.calls[i]
        if may_trace():
            span = functools.partial(
                call_span,
                call=approvals.effective_call(approval, call) if approval else call,
                outcome=outcome,
                child=name,
                agent=current.open.step.agent,
                step=child.place[:2],
                start=child.started,
                end=now(),
                status=status,
            )
            self._spans.add(now(), span)
        self.change(name, started=0.0)

    # ---- signals

    def send(self, name: str, **wanted: Any) -> int:
        """Send a request to a child without waiting for it; return the request's number."""
        # Numbered, so that an answer to an earlier request is not taken for this one's.
        number = self._known()[name].said + 1
        self.change(name, said=number)
        secret = secret_of_child(self._ledger.given.secret, name)
        said = ParentSays(secret=secret, number=number, **wanted)
        saying = self._background.begin(self._signal(name, said, self._newest.get(name)))
        self._newest[name] = saying
        self._sending.add(saying)
        saying.add_done_callback(self._sending.discard)
        return number

    async def _signal(self, name: str, said: ParentSays, before: asyncio.Task[None] | None) -> None:
        # The server may deliver the later one of two signals first: a "release" that comes after
        # the "check" of the next undo would end that, and it would wait for its answer for ever.
        if before is not None and not before.done() and workflow.patched("orders-in-turn"):
            await workflow.wait([before])
        # A signal that overtakes the start would fail, and the child would count as lost. Shielded:
        # whoever stops waiting here must not cancel the start.
        starting = self._starting.get(name)
        if starting is not None:
            await asyncio.shield(starting)
        async with self._room:
            try:
                await workflow.get_external_workflow_handle(name).signal(SAYS, said)
            except FailureError:  # its workflow has ended or was deleted
                self.lose(name, "ended or deleted")

    def pause(self, paused: str) -> None:
        """Pause or resume the children whose calls are not over.

        Args:
            paused: Who paused this task and why; empty to let them go on.
        """
        for name in self._going():
            self.send(name, paused=paused)

    def configure(self, by: str) -> None:
        """Hand the settings that the run was given on to the children whose calls are not over.

        Args:
            by: Who has given them.
        """
        change = self._ledger.s.changed
        if change is None:
            return
        for name in self._going():
            self.send(name, change=change.inherited, by=by)

    def _going(self) -> list[str]:
        """Name the children whose calls are not over."""
        known = self._known().items()
        return [name for name, it in known if not (it.closed or it.left or it.is_over)]

    async def ask(self) -> None:
        """Request fresh reports of the children that are awaited: one may just be decided."""
        asked = {
            name: self.send(name)
            for name, child in self._known().items()
            if child.is_awaited and not child.left
        }
        if asked:
            try:
                await workflow.wait_condition(
                    lambda: self._answered(asked),
                    timeout=HEAR_SECONDS,
                    timeout_summary="child tasks report",
                )
            except TimeoutError:
                return

    def _answered(self, asked: dict[str, int]) -> bool:
        known = self._known()
        return all(
            known[name].closed or known[name].heard >= number
            for name, number in asked.items()
            if name in known
        )

    # ---- the end

    def leave(self, n: int) -> None:
        """Abandon the children of an open step that starts over: its calls are made again."""
        for name, child in self._known().items():
            if child.place[:2] == (self._ledger.s.branch, n) and not child.left:
                self.leave_call(name, "made anew")
                self.send(name, end="abandon", reason="The call was made again.")

    def leave_call(self, name: str, status: str) -> None:
        """End the call of a child without an outcome: the child's questions are not asked here."""
        self.emit_span(name, status=status)
        self.change(name, left=True, approvals=(), held=False)

    async def ended(self) -> None:
        """Wait until the children have ended, so that their cost is known; but not for long."""
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: all(child.closed for child in self._known().values()),
                timeout=HEAR_SECONDS,
                timeout_summary="child tasks end",
            )

    def close(self, status: str) -> None:
        """Emit the spans of the calls that this task leaves open when it closes."""
        for name in self._known():
            self.emit_span(name, status=status)

    def end(self, end: Literal["finish", "abandon"], reason: str = "") -> None:
        """End all children with this task; settled ones are found by an activity."""
        s = self._ledger.s
        segment = self._ledger.log.segment
        if s.settled and segment is not None:
            secret = self._ledger.given.secret
            given = EndNested(segment=segment, secret=secret, end=end, reason=reason)
            self._ledger.s.settled = 0
            saying = self._background.begin(end_settled(self._ledger, given))
            self._sending.add(saying)
            saying.add_done_callback(self._sending.discard)
        for name, child in self._known().items():
            if not child.closed:
                self.leave_call(name, end)
                self.send(name, end=end, reason=reason)


class ChildUndos:
    """Stops the children of steps that must be undone, and has them undo what they did."""

    def __init__(self, ledger: Ledger, children: Children) -> None:
        """Undo children of this task."""
        self._ledger = ledger
        self._children = children

    def _known(self) -> dict[str, ChildState]:
        return self._ledger.s.children

    def recall(self, targets: Iterable[Undoable]) -> None:
        """Take settled children of steps that must be undone into the state again.

        Requests to them get numbers above all earlier ones, so that an old answer is not taken for
        one to a new request.
        """
        ledger = self._ledger
        for target in targets:
            for effect in target.effects:
                if effect.child and effect.child not in ledger.s.children:
                    place = (target.branch, target.key, effect.batch, effect.i)
                    said = ledger.s.said
                    known = ChildState(place=place, status="answered", said=said, counted=True)
                    ledger.put_child(effect.child, known)

    def of(self, targets: Iterable[Undoable]) -> list[tuple[Undoable, str]]:
        """List the children of steps whose calls are not undone, with their steps, oldest first."""
        found: list[tuple[Undoable, str]] = []
        for target in targets:
            mine = [name for name in self.all_of([target]) if not self._known()[name].left]
            found += [(target, name) for name in mine]
        return found

    def all_of(self, targets: Iterable[Undoable]) -> list[str]:
        """List all children of steps, oldest first."""
        steps = {(target.branch, target.key) for target in targets}
        mine = [(c.place, name) for name, c in self._known().items() if c.place[:2] in steps]
        return [name for _, name in sorted(mine)]

    async def stop(self, names: Iterable[str]) -> list[Obstacle]:
        """Stop children, wait for their answers, and list what is in the way."""
        wanted = list(names)
        asked = {
            name: self._children.send(name, undo="check")
            for name in wanted
            if not self.is_gone(name)
        }
        # Noted before the answers come: if this undo is cut, `release` lets these go on.
        for name in asked:
            self._children.change(name, held=True)
        # A child that is closed or lost counts as having answered: it cannot answer any more.
        await workflow.wait_condition(lambda: self._said_of_undo(asked))
        return [each for name in wanted for each in self._stands(name)]

    def is_gone(self, name: str) -> bool:
        """Whether a child is closed, so that nothing of it can be undone."""
        return self._known()[name].closed

    def _said_of_undo(self, asked: dict[str, int]) -> bool:
        known = self._known()
        return all(self._has_answered(known[name], number) for name, number in asked.items())

    def _has_answered(self, child: ChildState, number: int) -> bool:
        return child.closed or (child.undo is not None and child.undo.number >= number)

    def _stands(self, name: str) -> list[Obstacle]:
        child = self._known()[name]
        if child.closed:
            text = f"task {name!r} is closed, and what it did cannot be undone from here"
            return [Obstacle(text=text)]
        found = child.undo.stands if child.undo else ()
        return [each.model_copy(update={"text": f"task {name!r}, {each.text}"}) for each in found]

    async def undo(self, name: str, asked: UndoRequest) -> str:
        """Undo all that a child did, and end it; return why not all was undone, or empty."""
        if self.is_gone(name):
            return ""
        keep = asked.residue == "keep"
        number = self._children.send(name, undo="do", keep=keep, by=asked.by, reason=asked.reason)
        await workflow.wait_condition(lambda: self._said_of_undo({name: number}))
        answer = self._known()[name].undo
        if answer is None or answer.number < number:
            return "it has ended"
        failure = answer.failure or "; ".join(each.text for each in answer.stands)
        if not failure:
            self._children.leave_call(name, "undone")
        return failure

    def words(self, name: str) -> str:
        """Name a child for people, with what was undone in it."""
        child = self._known().get(name)
        undone = child.undo.undone if child is not None and child.undo is not None else ()
        return f"task {name!r}: {'; '.join(undone) or 'nothing to undo'}"

    def forget(self, targets: Iterable[Undoable]) -> None:
        """Forget the children of steps that were undone; a branch has its own names for them."""
        gone = self.all_of(targets)
        for name in gone:
            self._children.emit_span(name, status="undone")
        self._ledger.money.forget_children(gone)

    def release(self) -> None:
        """Let children go on that were stopped for an undo and were not undone."""
        for name, child in self._known().items():
            if child.held:
                self._children.change(name, held=False)
                self._children.send(name, undo="release")
