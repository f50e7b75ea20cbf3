"""A small Temporal server of one namespace, in memory and in virtual time.

What can happen next is a list of moves, oldest first; nothing happens by itself. Later there are
timers, pauses of retries and timeouts of activities whose worker is lost: they become due once the
clock is put forward.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.enums.v1 import RetryState, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.child_workflow import StartChildWorkflowExecutionFailedCause as Cause
from temporalio.bridge.proto.workflow_commands import (
    ActivityCancellationType,
    ScheduleActivity,
    ScheduleLocalActivity,
    StartChildWorkflowExecution,
    WorkflowCommand,
)

from holdfast.task.data.calls import LONG_CALL
from tests.simulation.activity import Activity, application_failure, pause_of, resolution_of
from tests.simulation.clock import Clock
from tests.simulation.run import (
    TASK_EVENTS,
    Begin,
    Counts,
    Job,
    Part,
    Run,
    Task,
    ViolationError,
    order_of,
)

WAITS_FOR_CANCEL = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
ONE_EVENT = {
    "upsert_workflow_search_attributes",
    "modify_workflow_properties",
    "set_patch_marker",
    "start_timer",
    "schedule_activity",
    "schedule_local_activity",
    "start_child_workflow_execution",
    "signal_external_workflow_execution",
    "request_cancel_activity",
    "cancel_timer",
}
"""Commands that are an event of the history each."""

ENDS = {
    "complete_workflow_execution": "completed",
    "fail_workflow_execution": "failed",
    "cancel_workflow_execution": "cancelled",
    "continue_as_new_workflow_execution": "continued",
}


WATCHES = {"ended"}
"""Activities that are tried again and again until something has happened elsewhere."""


@dataclass(eq=False)
class Move:
    """Something that can happen next.

    Attributes:
        label: What it is, for a person.
        do: Lets it happen.
    """

    label: str
    do: Callable[[], None]


@dataclass
class Update:
    """An update that a client has sent.

    Attributes:
        run: The run that it was sent to.
        number: Tells it apart from others of its id.
        name: Its name.
        answers: Its answers, each a result or a failure; there must be one at last.
        accepted: Whether the workflow has accepted it.
    """

    run: Run
    number: str
    id: str
    name: str
    answers: list[Payload | Failure] = field(default_factory=list[Payload | Failure])
    accepted: bool = False


class Worker(Protocol):
    """Runs activities."""

    def perform(self, activity: Activity) -> Payload | Failure:
        """Run an attempt; return its result or its failure."""
        ...

    def announcement(self, activity: Activity, id: str) -> Payload:
        """Say to the task that a call runs for long, and by which id it goes on."""
        ...


class Server:
    """Workflows, activities, timers, and what is on its way between them.

    Attributes:
        clock: The clock.
        worker: Runs the activities.
        chains: Workflow id to its runs, oldest first.
        moves: What can happen next, oldest first.
        watches: Next attempts of activities that look for something elsewhere.
        held: Results and activities that a schedule holds back, with their activities.
        updates: All updates.
        fates: What is to happen to activities of a type, in their order.
        counts: Activations so far.
        activities: Those that have not ended.
        after: Called after each workflow task.
        losing: Workflows whose next workflow task is thrown away.
        throwing: At which call of the next workflow task of a workflow an error is raised.
        is_unseen: Whether a workflow has ended since the watches have looked.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.worker: Worker
        self.chains: dict[str, list[Run]] = {}
        self.moves: list[Move] = []
        self.watches: list[Move] = []
        self.held: list[Move] = []
        self.updates: list[Update] = []
        self.fates: list[tuple[str, str]] = []
        self.counts = Counts()
        self.activities: list[Activity] = []
        self.after: Callable[[Run], None] = lambda run: None
        self.losing: set[str] = set()
        self.throwing: dict[str, int] = {}
        self.is_unseen = False
        self._numbers = itertools.count(1)
        self._later: list[tuple[float, int, Move]] = []
        self._working: dict[Run, Move] = {}

    # ---- time

    @property
    def due(self) -> float | None:
        """When something becomes due, seconds since the epoch; None for never."""
        return self._later[0][0] if self._later else None

    def advance(self, upto: float) -> None:
        """Put the clock forward; what becomes due meanwhile can happen next."""
        while self._later and self._later[0][0] <= upto:
            due, _, move = heapq.heappop(self._later)
            self.clock.now = max(self.clock.now, due)
            self.moves.append(move)
        self.clock.now = max(self.clock.now, upto)

    def _in(self, seconds: float, label: str, do: Callable[[], None]) -> Move:
        move = Move(label, do)
        heapq.heappush(self._later, (self.clock.now + seconds, next(self._numbers), move))
        return move

    def _soon(self, label: str, do: Callable[[], None]) -> None:
        self.moves.append(Move(label, do))

    def go(self, i: int = 0) -> str:
        """Let one move happen, the i-th of those that can (modulo their number); return its label.

        Returns:
            The label; empty when there is none.
        """
        if not self.moves:
            return ""
        move = self.moves.pop(i % len(self.moves))
        self.clock.tick()
        move.do()
        return move.label

    # ---- workflows

    def newest(self, id: str) -> Run | None:
        """Return the newest run of a workflow."""
        return self.chains[id][-1] if id in self.chains else None

    def find(self, id: str, run_id: str = "") -> Run | None:
        """Return a run of a workflow, the newest one by default."""
        runs = self.chains.get(id, [])
        return next((r for r in reversed(runs) if run_id in ("", r.begin.run_id)), None)

    def start(
        self,
        kind: str,
        id: str,
        input: Sequence[Payload],
        *,
        memo: dict[str, Payload] | None = None,
        attributes: SearchAttributes | None = None,
        parent: Run | None = None,
    ) -> Run:
        """Begin a run of a workflow."""
        number = len(self.chains.get(id, ())) + 1
        begin = Begin(
            id=id,
            run_id=f"{id}/{number}",
            kind=kind,
            input=tuple(input),
            memo=memo or {},
            attributes=attributes or SearchAttributes(),
            parent=parent.key if parent is not None else None,
            at=self.clock.now,
        )
        run = Run(begin, self.counts)
        self.chains.setdefault(id, []).append(run)
        self._wake(run)
        return run

    def tell(self, run: Run, job: Job, events: int) -> None:
        """Add an event to the history of a run, for its next workflow task."""
        if run.is_open:
            run.news.append(job)
            run.events += events
            self._wake(run)

    def _wake(self, run: Run) -> None:
        if run not in self._working:
            self._working[run] = move = Move(f"workflow task of {run.id}", lambda: self.work(run))
            self.moves.append(move)

    def has_news(self, run: Run) -> bool:
        """Whether a workflow task waits to be begun."""
        return run in self._working

    def drain(self, run: Run) -> None:
        """Begin the workflow task that waits, if one does: a query comes after it."""
        move = self._working.get(run)
        if move in self.moves:
            self.moves.remove(move)
            move.do()

    def signal(self, id: str, name: str, args: Sequence[Payload], run_id: str = "") -> bool:
        """Signal a workflow; return whether there is one."""
        run = self.find(id, run_id)
        if run is None or not run.is_open:
            return False
        job = Job()
        job.signal_workflow.signal_name = name
        job.signal_workflow.input.extend(args)
        self.tell(run, job, 1)
        return True

    def cancel(self, id: str, reason: str) -> None:
        """Request the cancellation of a workflow."""
        run = self.newest(id)
        if run is not None:
            job = Job()
            job.cancel_workflow.reason = reason
            self.tell(run, job, 1)

    def terminate(self, id: str) -> None:
        """Terminate a workflow."""
        run = self.newest(id)
        if run is not None and run.is_open:
            self._end(run, "terminated")

    def update(self, id: str, update_id: str, name: str, args: Sequence[Payload]) -> Update | None:
        """Send an update; one that the run has already is the same one.

        Returns:
            None when there is no open workflow of this id.
        """
        run = self.newest(id)
        if run is None or not run.is_open:
            return None
        known = [each for each in self.updates if (each.run, each.id) == (run, update_id)]
        stands = [each for each in known if each.accepted or not each.answers]
        if stands:
            return stands[-1]
        made = Update(run, f"u{len(self.updates)}", update_id, name)
        self.updates.append(made)
        job = Job()
        job.do_update.id, job.do_update.name = update_id, name
        job.do_update.protocol_instance_id = made.number
        job.do_update.run_validator = True
        job.do_update.input.extend(args)
        self.tell(run, job, 0)
        return made

    # ---- a workflow task

    def work(self, run: Run) -> None:
        """Begin and complete a workflow task."""
        self._working.pop(run, None)
        if not run.is_open or not run.news:
            return
        is_lost = run.id in self.losing
        self.losing.discard(run.id)
        news, run.news = run.news, []
        task = Task(self.clock.now, run.events + 2)
        jobs = sorted(news, key=order_of)
        sent: list[WorkflowCommand] = []
        k = self.throwing.pop(run.id, None)
        if k is not None:
            run.throw(k, jobs, task.at, task.length)
            run.go_on_with(run.replayed())
            run.news = [*news, *run.news]
            self._wake(run)
            return
        while jobs:
            commands = run.activate(jobs, task.at, task.length)
            task.parts.append(_as_recorded(jobs, commands))
            sent += commands
            jobs = self._at_once(run, commands, sent)
        if is_lost:
            self._throw_away(run, news)
            return
        self._commit(run, task, sent)
        self.after(run)

    def _throw_away(self, run: Run, news: list[Job]) -> None:
        """Lose a workflow task: nothing of it is recorded, and another worker begins it again."""
        run.evict()
        run.events += TASK_EVENTS
        run.news = [*news, *run.news]
        self._wake(run)

    def _at_once(
        self, run: Run, commands: Sequence[WorkflowCommand], sent: list[WorkflowCommand]
    ) -> list[Job]:
        """Resolve what needs no server: local activities, and activities that are cancelled."""
        jobs: list[Job] = []
        for command in commands:
            if command.HasField("schedule_local_activity"):
                jobs.append(self._locally(run, command.schedule_local_activity))
            elif command.HasField("request_cancel_activity"):
                seq = command.request_cancel_activity.seq
                jobs += self._cancel_activity(run, seq, sent)
            elif command.HasField("cancel_timer"):
                _take_back(sent, "start_timer", command.cancel_timer.seq, command)
        return jobs

    def _locally(self, run: Run, command: ScheduleLocalActivity) -> Job:
        found = self.worker.perform(Activity(run, command, self.clock.now, since=self.clock.now))
        return resolution_of(command, found, is_local=True)

    def _cancel_activity(self, run: Run, seq: int, sent: list[WorkflowCommand]) -> list[Job]:
        """Cancel an activity; return its end where the workflow need not wait for it."""
        scheduled = _take_back(sent, "schedule_activity", seq, None)
        if scheduled is not None:
            return [resolution_of(scheduled.schedule_activity, None)]
        found = next((each for each in self._of(run) if each.command.seq == seq), None)
        if found is None or not found.is_heard:
            return []
        found.is_cancelled = True
        self._soon(f"cancel {found}", lambda: self._is_cancelled(found))
        if found.command.cancellation_type == WAITS_FOR_CANCEL:
            return []
        found.is_heard = False
        return [resolution_of(found.command, None)]

    def _of(self, run: Run) -> list[Activity]:
        return [each for each in self.activities if each.run is run]

    def _commit(self, run: Run, task: Task, sent: Sequence[WorkflowCommand]) -> None:
        """Record a workflow task, and do what it commands."""
        is_empty = not task.parts[0].jobs and not any(part.commands for part in task.parts)
        if not is_empty:  # of updates that are all refused nothing is recorded
            run.history.append(task)
            run.events += TASK_EVENTS
        ends = [command for command in sent if str(command.WhichOneof("variant")) in ENDS]
        for command in sent:
            if command not in ends:
                self._obey(run, command)
        if ends:
            self._over(run, ends[0])

    def _obey(self, run: Run, command: WorkflowCommand) -> None:
        kind = str(command.WhichOneof("variant"))
        run.events += kind in ONE_EVENT
        match kind:
            case "update_response":
                self._answered(run, command)
            case "upsert_workflow_search_attributes":
                changed = command.upsert_workflow_search_attributes.search_attributes
                for name, value in changed.indexed_fields.items():
                    run.attributes.indexed_fields[name].CopyFrom(value)
            case "modify_workflow_properties":
                run.memo.update(command.modify_workflow_properties.upserted_memo.fields)
            case "start_timer":
                self._timer(run, command)
            case "cancel_timer":
                run.timers.pop(command.cancel_timer.seq, None)
            case "schedule_activity":
                copy = ScheduleActivity()
                copy.CopyFrom(command.schedule_activity)
                run.scheduled.append((copy.activity_id, self.clock.now))
                self._schedule(Activity(run, copy, self.clock.now))
            case "start_child_workflow_execution":
                child = command.start_child_workflow_execution
                self._soon(f"start of {child.workflow_id}", lambda: self._child(run, child))
            case "signal_external_workflow_execution":
                self._send(run, command)
            case (
                "request_cancel_activity"
                | "schedule_local_activity"
                | "cancel_signal_workflow"
                | "set_patch_marker"
            ):
                pass
            case _:
                msg = f"{run.id} gave a command that the simulation does not know: {command}"
                raise ViolationError(msg)

    def _answered(self, run: Run, command: WorkflowCommand) -> None:
        said = command.update_response
        update = next(u for u in self.updates if u.number == said.protocol_instance_id)
        if said.HasField("accepted"):
            run.events += 1
            update.accepted = True
            return
        run.events += update.accepted
        update.answers.append(said.completed if said.HasField("completed") else said.rejected)
        if len(update.answers) > 1:
            msg = f"update {update.name!r} {update.id!r} of {run.id} was answered twice"
            raise ViolationError(msg)

    def _timer(self, run: Run, command: WorkflowCommand) -> None:
        seq = command.start_timer.seq
        seconds = command.start_timer.start_to_fire_timeout.ToTimedelta().total_seconds()

        def fire() -> None:
            if run.timers.pop(seq, None) is not None:
                job = Job()
                job.fire_timer.seq = seq
                self.tell(run, job, 1)

        run.timers[seq] = self._in(seconds, f"timer of {run.id}", fire)

    def _send(self, run: Run, command: WorkflowCommand) -> None:
        """Send a signal from one workflow to another."""
        given = command.signal_external_workflow_execution
        target = given.workflow_execution.workflow_id or given.child_workflow_id
        args, name, seq = list(given.args), given.signal_name, given.seq

        def deliver() -> None:
            job = Job()
            job.resolve_signal_external_workflow.seq = seq
            if not self.signal(target, name, args):
                failure = job.resolve_signal_external_workflow.failure
                failure.message = "Unable to signal external workflow because it was not found"
                failure.application_failure_info.type = "NotFound"
            self.tell(run, job, 1)

        self._soon(f"signal {name!r} of {run.id} to {target}", deliver)

    def _child(self, run: Run, given: StartChildWorkflowExecution) -> None:
        job, id = Job(), given.workflow_id
        start = job.resolve_child_workflow_execution_start
        start.seq = given.seq
        if id in self.chains:
            start.failed.workflow_id, start.failed.workflow_type = id, given.workflow_type
            start.failed.cause = (
                Cause.START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS
            )
            self.tell(run, job, 1)
            return
        made = self.start(
            given.workflow_type,
            id,
            given.input,
            memo=dict(given.memo),
            attributes=given.search_attributes,
            parent=run,
        )
        made.child_of = (run, given.seq)
        start.succeeded.run_id = made.begin.run_id
        self.tell(run, job, 1)

    def _over(self, run: Run, command: WorkflowCommand) -> None:
        """End a run as its workflow commands it."""
        kind = str(command.WhichOneof("variant"))
        unanswered = [u for u in self.updates if u.run is run and not u.answers]
        if unanswered:
            msg = f"{run.id} ends ({ENDS[kind]}) and leaves without an answer: {unanswered[0].name}"
            raise ViolationError(msg)
        if kind == "complete_workflow_execution":
            run.result = command.complete_workflow_execution.result
        elif kind == "fail_workflow_execution":
            run.result = command.fail_workflow_execution.failure
        self._end(run, ENDS[kind])
        if kind == "continue_as_new_workflow_execution":
            given = command.continue_as_new_workflow_execution
            following = self.start(
                run.begin.kind,
                run.id,
                given.arguments,
                memo=dict(run.memo),
                attributes=run.attributes,
            )
            following.child_of = run.child_of

    def _end(self, run: Run, status: str) -> None:
        run.status = status
        run.events += 1
        run.timers.clear()
        self.is_unseen = bool(self.watches)
        for each in self._of(run):
            each.is_open = each.is_heard = False
            self.activities.remove(each)
        if run.child_of is not None and status != "continued":
            parent, seq = run.child_of
            self._soon(f"end of {run.id}", lambda: self._child_ended(parent, seq, run))

    def _child_ended(self, parent: Run, seq: int, run: Run) -> None:
        job = Job()
        ended = job.resolve_child_workflow_execution
        ended.seq = seq
        if run.status == "completed":
            ended.result.completed.result.CopyFrom(run.result)
        else:
            failure = ended.result.failed.failure
            failure.message = "Child Workflow execution failed"
            failure.child_workflow_execution_failure_info.workflow_type.name = run.begin.kind
            failure.cause.message = run.status
            failure.cause.application_failure_info.type = run.status
        self.tell(parent, job, 1)

    # ---- activities

    def _schedule(self, activity: Activity) -> None:
        self.activities.append(activity)
        self._attempt(activity)

    def _attempt(self, activity: Activity) -> None:
        """Let the next attempt of an activity begin, as its fate wants it."""
        self._soon(str(activity), lambda: self._perform(activity))

    def _fate(self, activity: Activity) -> str:
        for fate in self.fates:
            if fate[0] in (activity.kind, "any"):
                self.fates.remove(fate)
                return fate[1]
        return ""

    def _perform(self, activity: Activity) -> None:
        """Run an attempt, or let its fate happen."""
        if not activity.is_open or activity.is_cancelled:
            return
        activity.since = self.clock.now
        if activity.kind == "rejoin":  # the process that runs the tool completes it
            return
        match self._fate(activity):
            case "held":
                self.held.append(Move(f"{activity} begins", lambda: self._finish(activity)))
            case "late":
                found = self.worker.perform(activity)
                move = Move(f"result of {activity}", lambda: self._finish(activity, found))
                self.held.append(move)
            case "long" if activity.kind == "tool":
                self._run_on(activity)
            case "twice":
                self._finish(activity)
                self._soon(f"{activity} again", lambda: self._finish(activity))
            case "lost":
                self.worker.perform(activity)
                self._lose(activity)
            case "dead":
                self._lose(activity)
            case "stalled":
                stale = Activity(
                    activity.run, activity.command, activity.at, activity.attempt, self.clock.now
                )
                self._lose(activity, then=lambda: self.worker.perform(stale))
            case "fails":
                self._failed(activity, application_failure("Flaky", "It failed, for once."))
            case "breaks":
                self._failed(
                    activity, application_failure("Broken", "It fails for good.", lasts=True)
                )
            case _:
                self._finish(activity)

    def _run_on(self, activity: Activity) -> None:
        """Let a call run for long: its end finds it also in a later run of its task."""
        id = f"long{next(self._numbers)}"
        self.signal(activity.run.id, LONG_CALL, [self.worker.announcement(activity, id)])
        found = self.worker.perform(activity)

        def end(again: int = 20) -> None:
            here = (each for each in self.activities if each.command.activity_id == id)
            target = activity if activity.is_open else next(here, None)
            if target is not None:
                self._finish(target, found)
            elif again:
                self._in(0.5, f"end of {activity}", lambda: end(again - 1))

        self.held.append(Move(f"result of {activity}", end))

    def _finish(self, activity: Activity, found: Payload | Failure | None = None) -> None:
        """Take the end of an attempt."""
        if not activity.is_open:
            return
        if found is None:
            found = self.worker.perform(activity)
        if isinstance(found, Failure):
            self._failed(activity, found)
        else:
            self._resolve(activity, found)

    def _is_cancelled(self, activity: Activity) -> None:
        """An attempt learns that it is cancelled; one whose result is held has ended before."""
        if not activity.is_open or any(str(activity) in move.label for move in self.held):
            return
        self._resolve(activity, None)

    def _lose(self, activity: Activity, then: Callable[[], Any] = lambda: None) -> None:
        """Lose the worker of an attempt: the server notices it after a while."""
        command, attempt = activity.command, activity.attempt
        seconds = 600.0
        if isinstance(command, ScheduleActivity) and command.HasField("heartbeat_timeout"):
            seconds = command.heartbeat_timeout.ToTimedelta().total_seconds()

        def notice() -> None:
            if activity.is_open and activity.attempt == attempt:
                failure = Failure(message="activity Heartbeat timeout")
                info = failure.timeout_failure_info
                info.timeout_type = TimeoutType.TIMEOUT_TYPE_HEARTBEAT
                info.last_heartbeat_details.payloads.extend(activity.beat)
                self._failed(activity, failure)
            then()

        self._in(seconds, f"timeout of {activity}", notice)

    def _failed(self, activity: Activity, failure: Failure) -> None:
        """Take the failure of an attempt: another one follows, if the policy has one."""
        activity.failure = failure
        pause = None if activity.is_cancelled else pause_of(activity, failure, self.clock.now)
        if pause is None:
            state = RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
            whole = Failure(message="activity error", cause=failure)
            info = whole.activity_failure_info
            info.activity_type.name, info.activity_id = activity.kind, activity.command.activity_id
            info.retry_state = state
            self._resolve(activity, whole)
            return
        activity.attempt += 1
        activity.since = 0.0
        if activity.kind in WATCHES:
            self.watches.append(Move(str(activity), lambda: self._perform(activity)))
        else:
            self._in(pause, str(activity), lambda: self._attempt(activity))

    def _resolve(self, activity: Activity, found: Payload | Failure | None) -> None:
        """Bring the end of an activity to its workflow."""
        activity.is_open = False
        self.activities.remove(activity)
        events = 1 + (activity.since > 0 or found is not None)
        if activity.is_heard:
            self.tell(activity.run, resolution_of(activity.command, found), events)
        else:
            activity.run.events += events

    @property
    def rests(self) -> bool:
        """Whether nothing can happen by itself, but for what becomes due later."""
        busy = any(each.kind not in WATCHES for each in self.activities)
        return not (self.moves or self.held or busy)

    def watch(self) -> None:
        """Let all that looks for something elsewhere look once more."""
        self.is_unseen = False
        self.moves += self.watches
        self.watches = []

    def release(self) -> None:
        """Let all that is held go on."""
        self.moves += self.held
        self.held.clear()


def _take_back(
    sent: list[WorkflowCommand], kind: str, seq: int, cancel: WorkflowCommand | None
) -> WorkflowCommand | None:
    """Drop a command of this workflow task that is cancelled in it, and what cancels it."""
    for command in sent:
        if command.HasField(kind) and getattr(command, kind).seq == seq:  # type: ignore[arg-type]
            sent.remove(command)
            if cancel is not None:
                sent.remove(cancel)
            return command
    return None


def _as_recorded(jobs: Sequence[Job], commands: Sequence[WorkflowCommand]) -> Part:
    """Return an activation as a history has it: without updates that were not accepted."""
    begun = {job.do_update.protocol_instance_id for job in jobs if job.HasField("do_update")}
    said = [c.update_response for c in commands if c.HasField("update_response")]
    accepted = {each.protocol_instance_id for each in said if each.HasField("accepted")}
    refused = begun - accepted

    return Part(
        [job for job in jobs if job.do_update.protocol_instance_id not in refused],
        [c for c in commands if c.update_response.protocol_instance_id not in refused],
    )
