"""A task from a client's side: starting it, sending it commands, deleting it."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.archive import record_name
from holdfast.archive.holds import read_holds, refuse_held
from holdfast.archive.kept_answers import drop_rest
from holdfast.archive.segments import has_record
from holdfast.engine.rests import rest_of
from holdfast.engine.search_attributes import AGENT_TASK, HF_STATUS
from holdfast.errors import (
    CommandRefusedError,
    ConnectError,
    HoldfastError,
    InvalidArgumentError,
    NoWorkerError,
    StepNotFoundError,
    StuckTaskError,
    TaskClosedError,
    TaskExistsError,
    TaskNotFoundError,
)
from holdfast.reading.erasable import codes_of
from holdfast.reading.queries import (
    PATIENCE_SECONDS,
    failure_in,
    is_parked,
    server_errors,
    to_error,
    while_busy,
)
from holdfast.reading.reader import Reader
from holdfast.reading.visibility import attributes, children_of, delete_runs, memo
from holdfast.task.data.children import GIVEN, OutputsGiven
from holdfast.task.data.commands import Command, Receipt, RunReply, RunRequest, compose
from holdfast.task.data.failures import Failure
from holdfast.task.data.state import TaskInput, TaskRecord
from holdfast.task.data.undo import UndoRequest
from holdfast.task.data.wire import TaskResult
from holdfast.task.queries.pages import details_of, title_of
from holdfast.tracing.spans import in_trace
from holdfast.values.base import Json, Value, pauses
from holdfast.values.checks import gate
from holdfast.values.checks.ids import LONGEST_NAME, check_by, check_name, timed_id
from holdfast.values.code.user_calls import heard
from holdfast.values.runs.verbs import VERBS, Verb
from holdfast.values.steps import Task, UndoReceipt
from holdfast.values.text.logs import log

# Requests to a task from a client's side: who sends them, their replies, and the task's end.
#
# A task gives each completed step to the first caller that asks, and to another one as long as no
# one has acknowledged it: a program that was killed before it saw an output gets it when it starts
# again. A caller acknowledges by its next request, or by a signal: a second after an output that no
# request followed, and when it is closed. The signal costs one event of history.
#
# An update is sent again over rollovers until it has its reply, or the task has ended: closed with
# its record, closed by other means, or never created.

REST_SECONDS = 1.0
CLOSING_SECONDS = 2.0


def unique_id() -> str:
    """Make up the id of a request."""
    return uuid.uuid4().hex[:16]


def request_id_of(given: str | None) -> str:
    """Return the id of a request, made up when none was given.

    Raises:
        InvalidArgumentError: The id cannot be used.
    """
    return unique_id() if given is None else check_name("request_id", given)


class Caller:
    """What one AgentRunner has asked of tasks, and has been given.

    Attributes:
        name: Its name, in the ids of its requests.
    """

    def __init__(self) -> None:
        """Make up a name."""
        self.name = uuid.uuid4().hex[:7]
        self._unanswered: defaultdict[str, list[str]] = defaultdict(list)
        self._resting: dict[str, asyncio.TimerHandle] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def request(self) -> str:
        """Name a new request to a task."""
        return f"{self.name}~{uuid.uuid4().hex[:8]}"

    def kept(self, task_id: str) -> str:
        """Take the name of the oldest request that got no answer; empty for none.

        The task answers a request once: under the same name it gives the same step, also when that
        step was undone since.
        """
        unanswered = self._unanswered.get(task_id)
        return unanswered.pop(0) if unanswered else ""

    def unanswered(self, task_id: str, request_id: str) -> None:
        """Keep the name of a request that got no answer."""
        self._unanswered[task_id].append(request_id)

    def given(self, task_id: str, client: Client) -> None:
        """Acknowledge an output after a while, unless a request follows."""
        self.follow(task_id)

        def send() -> None:
            self._resting.pop(task_id, None)
            sending = asyncio.create_task(self._acknowledge(task_id, client))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

        self._resting[task_id] = asyncio.get_running_loop().call_later(REST_SECONDS, send)

    def follow(self, task_id: str, *, forget: bool = False) -> None:
        """Take back what was to be acknowledged: a request follows, which does it.

        Args:
            task_id: The task.
            forget: Whether requests without an answer do not count any more: the task is closed,
                or its steps were undone.
        """
        resting = self._resting.pop(task_id, None)
        if resting is not None:
            resting.cancel()
        if forget:
            self._unanswered.pop(task_id, None)

    async def close(self, client: Client) -> None:
        """Acknowledge all that was given."""
        rest = list(self._resting)
        for task_id in rest:
            self.follow(task_id)
        async with asyncio.timeout(CLOSING_SECONDS):
            await asyncio.gather(
                *self._sending, *(self._acknowledge(task_id, client) for task_id in rest)
            )

    async def _acknowledge(self, task_id: str, client: Client) -> None:
        """Send the signal. Without it, the next caller is given the newest output once more."""
        handle = client.get_workflow_handle(task_id)
        try:
            await handle.signal(GIVEN, OutputsGiven(caller=self.name))
        except RPCError as error:
            log.debug("Task %r did not get the acknowledgement of its output: %s", task_id, error)


FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
GROWTH = 1.5
"""How many times as long as the one before each pause is."""
LONGEST_CLOSE_SECONDS = 120.0

FIRST_LOOK_SECONDS = 1.0
LONGEST_LOOK_SECONDS = 5.0
"""Pauses between looks whether a task that is awaited rests, growing from one to the other. A look
is in no history and on no bill, but costs the server time."""

LOOKS_A_SECOND = 10
SPREAD_SECONDS = 15.0
"""Looks that a client spreads over the tasks it awaits, and the longest pause for that. The server
reports the end of each task, and a task in this process reports that it rests."""


class TaskEnds:
    """Reads how tasks have ended."""

    def __init__(self, reader: Reader) -> None:
        """Read with this reader."""
        self.reader = reader
        self._awaited = 0

    async def closed(self, task_id: str) -> TaskRecord:
        """Wait until a task that has accepted its end is closed, and return its record.

        Raises:
            TaskClosedError: It is not closed after two minutes, or as for `ended`.
            TaskNotFoundError: As for `ended`, like those after it.
            TaskAbandonedError: It was abandoned.
            AgentsException: It has ended with another verdict.
        """
        waits = pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, GROWTH, LONGEST_CLOSE_SECONDS)
        for pause in waits:
            record = await self.ended(task_id)
            if record is not None:
                return record
            await asyncio.sleep(pause)
        raise TaskClosedError(f"Task {task_id!r} said that it is closed, but is not. Ask again.")

    async def ended(self, task_id: str) -> TaskRecord | None:
        """Return a finished task's record, or None while the task is open.

        Raises:
            TaskNotFoundError: There is no such task.
            TaskAbandonedError: It was abandoned.
            AgentsException: It has ended with another verdict.
            TaskClosedError: It was ended with Temporal's own tools.
        """
        found = await self.reader.describe(task_id)
        if found.close_time is None or found.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return None
        record = await self.reader.records.read(task_id, found)
        if record is None:
            how = found.status.name.lower() if found.status is not None else "ended"
            msg = f"Task {task_id!r} was {how} with Temporal's own tools: it can only be read."
            raise TaskClosedError(msg)
        if record.failure is not None:
            raise to_error(record.failure, task_id=task_id)
        return record

    async def has_finished(self, task_id: str, request_id: str, rests: asyncio.Event) -> bool:
        """Wait for a task; return whether it has finished well, so that it need not be asked.

        Else it rests, has another end, or its end could not be read: the request that follows meets
        that again.

        Args:
            task_id: The task.
            request_id: The request that it was started with.
            rests: Set when the task may rest, where it runs in this process.

        Raises:
            NoWorkerError: No worker process serves the task any more.
            StuckTaskError: Workflow code fails in it.
        """
        handle = self.reader.client.get_workflow_handle(task_id, result_type=TaskResult)
        ending = asyncio.ensure_future(handle.result())
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())
        resting = asyncio.ensure_future(rests.wait())
        self._awaited += 1
        try:
            pause = FIRST_LOOK_SECONDS
            while True:
                wait = max(pause, min(self._awaited / LOOKS_A_SECOND, SPREAD_SECONDS))
                await asyncio.wait(
                    {ending, resting}, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                if ending.done() or resting.done() or await self._rests(task_id, request_id):
                    break
                pause = min(pause * GROWTH, LONGEST_LOOK_SECONDS)
            if not ending.done() or ending.exception() is not None:
                return False
            self.reader.records.ended(task_id, ending.result().seal.record)
            return True
        finally:
            self._awaited -= 1
            ending.cancel()
            resting.cancel()

    async def _rests(self, task_id: str, request_id: str) -> bool:
        """Whether a task is open and says in lists that it waits for someone."""
        presence = self.reader.presence
        if not presence.is_fresh(await presence.queue_of(task_id)):
            await presence.require(task_id, request_id)
        found = await self.reader.refuse_stuck(task_id)
        if found is None or found.close_time is not None:
            return False
        return found.typed_search_attributes.get(HF_STATUS) != "running"

    async def _missing(self, task_id: str, error: RPCError) -> Exception:
        """Return the error for a task that an RPC did not find: closed, never created, or other."""
        try:
            with suppress(RPCError), server_errors(RPCStatusCode.NOT_FOUND):
                raise error
            closed = await self.reader.records.has(task_id) or await self.is_known(task_id)
        except HoldfastError as cause:
            return cause
        return await self.closed_error(task_id) if closed else TaskNotFoundError(task_id)

    async def is_known(self, task_id: str) -> bool:
        """Whether Temporal has a task of this id, open or closed."""
        try:
            found = await self.reader.describe(task_id)
        except TaskNotFoundError:
            return False
        return found.workflow_type == AGENT_TASK

    async def closed_error(self, task_id: str) -> TaskClosedError:
        """Return the error for a request to a closed task: how it ended, and how to go on."""
        how = ""
        with suppress(HoldfastError, TemporalError):
            task = await self.reader.task(task_id)
            how = f" ({task.error.partition(': ')[2] or task.status})"
        return TaskClosedError(
            f"Task {task_id!r} is closed{how}: it can be read, not changed. To go on from one of"
            " its steps, fork it: fork(task, at=step), or `holdfast fork`."
        )


NOT_TAKEN_SECONDS = 5.0
"""How long an update is sent again that worker processes fail at, or complete a task without."""

MOVING = frozenset({"Draining", "AcceptedUpdateCompletedWorkflow"})
"""Failures which say that the task is just continuing as new."""

UNPROCESSED = "UnprocessedUpdate"
"""The server's type for an update that a worker process received and did not process."""

T = TypeVar("T")


class NotTakenError(Exception):
    """A worker process received a request and failed at the task, or did not process it."""

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(
            f"Task {task_id!r} did not take the request: {reason.rstrip('.')}. Nothing is lost. The"
            " log of the task's worker process may say more. Fix the cause, then ask again."
        )


class TaskUpdates(TaskEnds):
    """Sends updates to tasks of one namespace, and waits for their replies.

    An update keeps its id however often it is sent, and a task answers an id once: sending again
    after a lost connection or a rollover runs nothing twice.
    """

    def __init__(self, client: Client, reader: Reader, caller: Caller) -> None:
        """Send with this client, for this caller; read closed tasks with this reader."""
        super().__init__(reader)
        self._client = client
        self._caller = caller

    async def run(self, task_id: str, asked: RunRequest, request_id: str | None = None) -> RunReply:
        """Send a `run` update and wait for its reply, over rollovers of the task.

        Raises:
            InvalidArgumentError: The id of the request or of the step cannot be used.
            TaskNotFoundError: There is no such task.
            TaskClosedError: It is closed.
            NoWorkerError: No worker process serves it.
            StuckTaskError: Workflow code fails in it.
            StepFailedError: The step failed.
            HoldfastError: The task refused the request, or has ended with this error.
        """
        if len(asked.step) > LONGEST_NAME:
            msg = f"step may have at most {LONGEST_NAME} characters; this has {len(asked.step)}."
            raise InvalidArgumentError(msg)
        self._caller.follow(task_id)
        if request_id is not None:
            return await self._run(task_id, asked, request_id_of(request_id))
        while True:
            named = None if asked.attaches else self._run(task_id, asked, unique_id())
            reply = await (named or self._run_next(task_id, asked))
            # A pause that ended while no worker was up may be what a task answers with first.
            if reply.status != "paused" or (await self.reader.task(task_id)).paused:
                break
        if asked.attaches and reply.status == "done":
            self._caller.given(task_id, self._client)
        return reply

    async def _run_next(self, task_id: str, asked: RunRequest) -> RunReply:
        """Get the first step that this caller has not been given, or run the next one.

        Requests that got no answer are asked again first. The reply to one whose step was undone
        meanwhile stands for no step, so another request follows.
        """
        passed: list[str] = []
        name = ""
        try:
            while name := self._caller.kept(task_id):
                try:
                    reply = await self._run(task_id, asked, name)
                    if reply.status != "done" or await self._stands(task_id, reply):
                        return reply
                except CommandRefusedError:
                    passed.append(name)
            name = self._caller.request()
            return await self._run(task_id, asked, name)
        except CommandRefusedError:
            for each in passed:  # they may have been refused for the same reason
                self._caller.unanswered(task_id, each)
            raise
        except (asyncio.CancelledError, ConnectError, NoWorkerError, StuckTaskError):
            self._caller.unanswered(task_id, name)  # it is left without an answer
            raise

    async def _stands(self, task_id: str, reply: RunReply) -> bool:
        """Whether the step that a reply names was not undone."""
        try:
            return (await self.reader.step(task_id, reply.n)).branch == reply.branch
        except StepNotFoundError:
            return False

    async def run_on(self, task_id: str) -> None:
        """Run a task to its end or to where a person must decide; a closed task stays closed.

        Raises:
            TaskNotFoundError: No task has this id.
            StepFailedError: A step failed.
            AgentsException: The task has ended with a verdict, now or before.
            NoWorkerError: No worker process serves the task; it waits.
        """
        try:
            await self.run(task_id, RunRequest(all=True))
        except TaskClosedError:  # already while it closes: what it ended with may come later
            await self.closed(task_id)

    async def _run(
        self, task_id: str, asked: RunRequest, request_id: str, *, again: bool = False
    ) -> RunReply:
        reply = await self._send(task_id, "run", request_id, RunReply, asked, again=again)
        if isinstance(reply, RunReply):
            return reply
        if asked.all:  # the task came to its end without this request
            return RunReply(n=Task.model_validate(reply.task).steps)
        raise await self.closed_error(task_id)

    async def undo(self, task_id: str, asked: UndoRequest, request_id: str) -> UndoReceipt:
        """Send an `undo` update and wait for its reply.

        Raises:
            UndoRefusedError: Effects are in the way; nothing was changed.
            UndoFailedError: The undo of an effect failed.
            TaskClosedError: The task is closed.
            NoWorkerError: No worker process serves it.
        """
        self._caller.follow(task_id, forget=True)
        reply = await self._send(task_id, "undo", request_id, UndoReceipt, asked)
        if isinstance(reply, UndoReceipt):
            return reply
        raise await self.closed_error(task_id)

    async def finalize(self, task_id: str) -> None:
        """Commit the task to its session and close it.

        Raises:
            TaskClosedError: It was finalized before.
            TaskAbandonedError: It was abandoned meanwhile.
            AgentsException: It has ended with another verdict.
            InvalidArgumentError: Its last step is not done.
            NoWorkerError: No worker process serves it.
        """
        self._caller.follow(task_id, forget=True)
        await self._send(task_id, "finalize", unique_id(), bool)
        await self.closed(task_id)

    async def _send(
        self,
        task_id: str,
        name: str,
        request_id: str,
        kind: type[T],
        *args: Value,
        again: bool = False,
    ) -> T | TaskRecord:
        """Send an update until it has a reply, or the task has ended well without one.

        A task that continues as new replies "moved", or not at all; the update is then sent to its
        next run. There is no next run when the task is closed, or when it could not continue.

        Args:
            task_id: The task.
            name: Name of the update.
            request_id: Id of the update, the same each time.
            kind: Type of the reply.
            args: Arguments of the update.
            again: Whether the request was sent before.
        """
        for arg in args:
            gate.check_value(arg, "The request")
        run_id, failing_since = "", None
        pause = FIRST_PAUSE_SECONDS / GROWTH
        while True:
            pause = min(pause * GROWTH, LONGEST_PAUSE_SECONDS)
            try:
                await self.expect_worker(task_id, request_id)
                reply = await self._update(task_id, name, request_id, kind, *args)
            except TaskClosedError:
                if not again:
                    raise
                reply = None
            except NotTakenError as error:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since >= NOT_TAKEN_SECONDS:
                    await self.reader.refuse_stuck(task_id)
                    raise ConnectError(*error.args) from error
                await asyncio.sleep(pause)
                continue
            failing_since, again = None, True
            is_moved = isinstance(reply, RunReply) and reply.status == "moved"
            if reply is not None and not is_moved:
                return reply
            record = await self.ended(task_id)
            if record is not None:
                return record
            if pause >= LONGEST_PAUSE_SECONDS:
                # The same run twice, seconds apart: the task may be unable to continue as new.
                found = (await self.reader.describe(task_id)).run_id
                if found == run_id:
                    await self._raise_parked(task_id)
                run_id = found or ""
            await asyncio.sleep(pause)

    async def expect_worker(self, task_id: str, request_id: str) -> None:
        """Check that a request would be carried out soon, and not later when it is not wanted.

        Raises:
            NoWorkerError: No worker process serves the task.
            TaskClosedError: The task is closed.
        """
        presence = self.reader.presence
        try:
            queue = await presence.queue_of(task_id)
        except RPCError as error:
            raise await self._missing(task_id, error) from error
        if presence.is_fresh(queue):
            return
        if (await self.reader.describe(task_id)).close_time is not None:
            raise await self.closed_error(task_id)
        await presence.expect(queue, task_id=task_id, request_id=request_id)

    async def _raise_parked(self, task_id: str) -> None:
        """Raise the failure with which a task waits that could not continue as new."""
        try:
            task = await self.reader.query(task_id, "task_value", Task)
        except TaskClosedError:  # the next round reads how it ended
            return
        if task.status == "needs_attention":
            failure = await self.reader.failure(task_id)
            if failure is not None:
                raise to_error(failure, task_id=task_id, parked=True)

    async def _update(
        self, task_id: str, name: str, request_id: str, kind: type[T], *args: object
    ) -> T | None:
        """Send one update, and wait for its reply for as long as a worker process serves the task.

        None means that the task is in transit to a new run: send again.

        Raises:
            NotTakenError: A worker process did not process it: send again, for a while.
            HoldfastError: The task's own error.
        """
        handle = self._client.get_workflow_handle(task_id)
        update = handle.execute_update(name, args=list(args), id=request_id, result_type=kind)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        sending: asyncio.Future[T] = asyncio.ensure_future(update)
        sending.add_done_callback(heard)
        try:
            done, _ = await asyncio.wait({sending}, timeout=PATIENCE_SECONDS)
            while not done:
                await self.reader.presence.require(task_id, request_id)
                await self.reader.refuse_stuck(task_id)
                done, _ = await asyncio.wait({sending}, timeout=6 * PATIENCE_SECONDS)
            reply = sending.result()
        except WorkflowUpdateFailedError as error:
            failure = failure_in(error) or Failure(type="UpdateFailed", message=str(error))
            if failure.type in MOVING:
                return None
            if failure.type == UNPROCESSED:
                raise NotTakenError(task_id, failure.message) from error
            made = to_error(failure, task_id=task_id, parked=is_parked(error))
            raise made from made.__cause__
        except RPCError as error:
            if error.status is RPCStatusCode.FAILED_PRECONDITION:
                raise NotTakenError(task_id, error.message) from error
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                raise await self._missing(task_id, error) from error
            if "larger than max" in error.message:  # gRPC has no field for the reason
                msg = f"The request for task {task_id!r} is too large: {error.message}."
                raise InvalidArgumentError(msg) from error
            return None  # ten updates wait already, as many as the server allows
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return None
        finally:
            sending.cancel()
        told: object = reply
        if isinstance(told, RunReply) and told.record:
            self.reader.records.ended(task_id, told.record)
        return reply


MOST_EVENTS = 30_000
"""Events in the history of one run of a task, after which it refuses deferrable commands: the
server ends a workflow at 51,200. A task continues as new while a tool runs, but not while another
activity does: a model call, an AgentWorker's step, an `undo=`."""

RECEIPT_SECONDS = 1.0
"""How long to wait for a worker process that can answer with the receipt of a recorded command."""


class TaskClient(TaskUpdates):
    """Starts tasks of one namespace, and sends them updates and commands."""

    async def start(
        self,
        task_id: str,
        given: TaskInput,
        queue: str,
        title: str,
        *,
        origin: tuple[str, int] | None = None,
        here: Client | None = None,
        priority: Priority = Priority.default,
    ) -> float:
        """Start a task; return the time of its creation that the server keeps with it.

        Args:
            task_id: Id of the task.
            given: The task.
            queue: Its queue.
            title: The request as lists of tasks show its beginning.
            origin: Of a fork, the task that it departs from, and the number of the step.
            here: Client of a worker of this process that serves the queue: the reply to the start
                then has the first workflow task, for which the worker need not ask.
            priority: Its priority, and whose it is. Activities and child tasks inherit both.

        Raises:
            TaskExistsError: There is a task of this id, open or closed.
            ConnectError: The server could not be reached.
        """
        given = _prepared(given)
        if activity.in_activity():
            head = given.head.model_copy(update={"callers": await self.callers()})
            given = given.model_copy(update={"head": head})
        gate.check_value(given, "The task")
        await self._refuse_archived(task_id)
        now = time.time()
        try:
            with server_errors():
                await (here or self._client).start_workflow(
                    AGENT_TASK,
                    given,
                    id=task_id,
                    task_queue=queue,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    search_attributes=attributes(given),
                    memo=memo(title, now=now, origin=origin),
                    static_summary=title_of(given.head.agent, title),
                    static_details=details_of(given.head.agent, title),
                    request_eager_start=here is not None,
                    priority=priority,
                )
        except WorkflowAlreadyStartedError as error:
            raise TaskExistsError(task_id) from error
        self.reader.presence.started(task_id, queue)
        return now

    async def callers(self) -> tuple[tuple[str, str], ...]:
        """Return the `callers` of a task that an activity of this process begins.

        Raises:
            ConnectError: The server could not be reached.
        """
        info = activity.info()
        if info.workflow_type == AGENT_TASK and info.workflow_id:
            # By the activity's own client: this one may be of another server, or have other keys.
            reader = Reader(activity.client(), self.reader.archive)
            with suppress(RPCError):
                return (await reader.begun_head(info.workflow_id)).turns(info.workflow_id)
        return ()

    async def start_and_run(
        self,
        task_id: str,
        given: TaskInput,
        queue: str,
        title: str,
        started: Callable[[], None] | None = None,
        *,
        here: Client | None = None,
    ) -> None:
        """Start a task and wait until it is closed or needs a person.

        The request to run comes with the task's input, and the end is awaited in the history: an
        update of its own would be two billable actions. Only a task that rests before it is closed
        is asked why, by an update of the request's id.

        Args:
            task_id: Id of the task.
            given: The task.
            queue: Its queue.
            title: As for `start`.
            started: Called once the server has confirmed that this call created the task.
            here: As for `start`.

        Raises:
            TaskExistsError: There is a task of this id, open or closed.
            NoWorkerError: No worker process serves the queue. The task is there and waits.
            HoldfastError: The task failed; see `run`.
        """
        request_id, missing = unique_id(), None
        if here is None:
            try:
                await self.reader.presence.expect(queue, task_id=task_id, request_id=request_id)
            except NoWorkerError as error:
                missing = error
        if missing is None:
            given = given.model_copy(update={"run_request": request_id})
        with rest_of(task_id) as rests:
            await self.start(task_id, given, queue, title, here=here)
            if started is not None:
                started()
            if missing is not None:
                raise missing
            has_finished = await self.has_finished(task_id, request_id, rests)
        if not has_finished:
            await self._run(task_id, RunRequest(all=True), request_id, again=True)

    async def command(
        self,
        task_id: str,
        verb: Verb,
        *,
        by: str,
        body: dict[str, Json] | None = None,
        request_id: str | None = None,
    ) -> Receipt:
        """Send a command. It is durable once this returns, also when no worker process is up.

        Raises:
            InvalidArgumentError: It holds data that cannot be recorded; nothing was sent.
            TaskNotFoundError: There is no such task.
            TaskClosedError: It is closed.
            ConnectError: The server could not be reached.
            CommandRefusedError: The task refused it.
        """
        name = timed_id(time.time()) if request_id is None else request_id_of(request_id)
        sent = compose(name, verb, by=check_by(by), body=body or {})
        if VERBS[verb].can_wait:
            await self._refuse_when_full(task_id, verb)
        handle = self._client.get_workflow_handle(task_id)
        try:
            await handle.signal(verb, sent.sent())
        except RPCError as error:
            raise await self._missing(task_id, error) from error
        receipt = await self._receipt(task_id, sent)
        # A task takes one command for each id.
        if receipt.verb != verb or receipt.asked not in ("", sent.digest):
            msg = f"request_id {name!r} was given to an earlier {receipt.verb} of task {task_id!r}"
            msg += f", so this {verb} did nothing. Give another one."
            raise CommandRefusedError(msg, is_repeated=True)
        if receipt.status == "refused":
            msg = f"Task {task_id!r} refused to {verb}: {receipt.reason}"
            raise CommandRefusedError(msg, is_decided=receipt.is_decided)
        return receipt.model_copy(update={"asked": ""})

    async def _refuse_when_full(self, task_id: str, verb: Verb) -> None:
        """Keep a task's history from growing without end while the task cannot continue as new.

        Raises:
            CommandRefusedError: It is too long already.
        """
        try:
            events = (await self.reader.describe(task_id)).history_length
        except TaskNotFoundError:  # sending the command finds out whether it is closed
            return
        if events >= MOST_EVENTS:
            raise CommandRefusedError(
                f"Task {task_id!r} has {events} events in its history, and cannot begin a new one"
                " before a worker process is up and what the task is doing has ended or, if it is a"
                f" tool call, has run for a minute. Until then it takes no {verb}; decisions,"
                " pause, resume and abandon are taken. See that a worker process is up and ask"
                " again, or abandon the task."
            )

    async def _receipt(self, task_id: str, sent: Command) -> Receipt:
        """Read the receipt of a recorded command; it counts as recorded when reading fails."""
        presence = self.reader.presence
        with suppress(HoldfastError, TemporalError, TimeoutError, ValueError):
            queue = await presence.queue_of(task_id)
            await presence.expect(queue, task_id=task_id, seconds=RECEIPT_SECONDS)
            async with asyncio.timeout(PATIENCE_SECONDS):
                handle = self._client.get_workflow_handle(task_id)
                ask = partial(handle.query, "receipt", sent.id, result_type=dict[str, Json])
                found = await while_busy(ask)
            if found:
                return Receipt.model_validate(found)
        return Receipt(id=sent.id, verb=sent.verb, status="recorded")

    async def delete(self, task_id: str) -> None:
        """Delete a task, with its children, from Temporal (all runs) and from the archive.

        An open task is terminated; no worker process is needed.

        Raises:
            TaskNotFoundError: No task has this id.
            CommandRefusedError: It is held for a case.
            ConnectError: The server could not be reached.
        """
        if await read_holds(self.reader.archive):  # else its head need not be known
            await refuse_held(self.reader.archive, await codes_of(self.reader, [task_id]))
        for child in await children_of(self._client, task_id):
            with suppress(TaskNotFoundError):
                await self.delete(child)
        with server_errors():
            known = await delete_runs(self._client, task_id, AGENT_TASK)
        self.reader.presence.forget(task_id)
        self.reader.records.forget(task_id)
        if not (known or await self.reader.records.has(task_id)):
            raise TaskNotFoundError(task_id)
        archived = await self.reader.archive.adelete_record(record_name("tasks", task_id))
        await drop_rest(self.reader.archive, [task_id])
        if not (known or archived):
            raise TaskNotFoundError(task_id)

    async def refuse_known(self, task_id: str) -> None:
        """Refuse an id that a task has, open or closed.

        Raises:
            TaskExistsError: There is a task of this id.
        """
        await self._refuse_archived(task_id)
        with suppress(TaskNotFoundError):
            await self.reader.describe(task_id)
            raise TaskExistsError(task_id)

    async def _refuse_archived(self, task_id: str) -> None:
        """Refuse the id of an archived task, also after Temporal has forgotten it."""
        if await has_record(self.reader.archive, task_id):
            raise TaskExistsError(task_id)


def _prepared(given: TaskInput) -> TaskInput:
    """Give a new task its secret and the caller's trace."""
    head = given.head.model_copy(update={"run": in_trace(given.head.run)})
    return given.model_copy(update={"head": head, "secret": secrets.token_hex(16)})
