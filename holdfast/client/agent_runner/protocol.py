"""The client's side of the task protocol: start, run, finalize, command."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.archive import record_name
from holdfast.archive.segments import read_record
from holdfast.engine.search_attributes import AGENT_TASK, TASKS, is_
from holdfast.errors import (
    CommandRefusedError,
    ConnectError,
    HoldfastError,
    InvalidArgumentError,
    NoWorkerError,
    TaskClosedError,
    TaskExistsError,
    TaskNotFoundError,
)
from holdfast.reading.presence import PATIENCE_SECONDS
from holdfast.reading.reader import Reader
from holdfast.reading.server_errors import (
    failure_in,
    is_parked,
    server_errors,
    to_error,
)
from holdfast.reading.visibility import attributes, memo
from holdfast.task.data.commands import SIGNAL, Command, Verb, compose
from holdfast.task.data.records import Failure
from holdfast.task.data.state import Receipt, RunReply, TaskInput, TaskRecord, UndoRequest
from holdfast.task.data.wire import RunRequest
from holdfast.tracing.rules import in_trace
from holdfast.values.base import Json, Value
from holdfast.values.checks import gate
from holdfast.values.checks.ids import LONGEST_NAME, check_by, check_name
from holdfast.values.steps import Task

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
CLOSING_SECONDS = 120.0
MOST_EVENTS = 30_000
"""Events in the history of one run of a task from which on it takes no more of what can wait: the
server ends a workflow at 51,200. A task continues as new while a tool runs, but not while another
activity does: a model call, an AgentWorker's step, an `undo=`."""

UNHURRIED = frozenset[Verb]({"feedback", "edit_step", "drop_step"})
"""Verbs that are refused then."""

RECEIPT_SECONDS = 1.0
"""How long a command that is recorded waits for a worker process to be seen, for its receipt."""

ACCEPTED, COMPLETED = WorkflowUpdateStage.ACCEPTED, WorkflowUpdateStage.COMPLETED

UNHEARD_SECONDS = 5.0
"""How long a request is sent again that worker processes get and fail at, or pass over."""

MOVING = frozenset({"Draining", "AcceptedUpdateCompletedWorkflow"})
"""Failures which say that the task is just continuing as new."""

PASSED_OVER = "UnprocessedUpdate"
"""The server's word for an update that a worker process got without seeing to it."""

T = TypeVar("T")


class _UnheardError(Exception):
    """A worker process failed at the task while it held a request, or passed the request over."""

    def __init__(self, task_id: str, said: str) -> None:
        super().__init__(
            f"Task {task_id!r} did not take the request: {said.rstrip('.')}. Nothing is lost. The"
            " log of the task's worker process may say more. Heal the cause, then ask again."
        )


def request_id_of(given: str | None) -> str:
    """Return the id of a request, made up when none was given.

    Raises:
        InvalidArgumentError: The id cannot be used.
    """
    return unique_id() if given is None else check_name("request_id", given)


class TaskClient:
    """Talks to tasks of one namespace; the tasks' queue is given with each start."""

    def __init__(self, client: Client, reader: Reader) -> None:
        """Use this client, and this reader for what is closed."""
        self._client = client
        self._reader = reader

    async def start(self, task_id: str, given: TaskInput, queue: str, asked: str) -> None:
        """Start a task.

        Args:
            task_id: Id of the task.
            given: The task.
            queue: Its queue.
            asked: What it was asked, of which a list of tasks shows the beginning.

        Raises:
            TaskExistsError: There is a task of this id, open or closed.
            ConnectError: The server could not be reached.
        """
        given = _prepared(given)
        gate.check_value(given, "The task")
        await self._refuse_archived(task_id)
        try:
            with server_errors():
                await self._client.start_workflow(
                    AGENT_TASK,
                    given,
                    id=task_id,
                    task_queue=queue,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    search_attributes=attributes(given),
                    memo=memo(asked, now=time.time()),
                )
        except WorkflowAlreadyStartedError as error:
            raise TaskExistsError(task_id) from error
        self._reader.presence.started(task_id, queue)

    async def start_and_run(
        self,
        task_id: str,
        given: TaskInput,
        queue: str,
        asked: str,
        started: Callable[[], None] | None = None,
    ) -> RunReply:
        """Start a task and wait until it is closed or needs somebody, in one request.

        Args:
            task_id: Id of the task.
            given: The task.
            queue: Its queue.
            asked: As for `start`.
            started: Called once the task of this id is known to be this one; asking for that is a
                request more.

        Raises:
            TaskExistsError: There is a task of this id, open or closed.
            NoWorkerError: No worker process serves the queue. The task is there and waits.
            HoldfastError: The task failed; see `run`.
        """
        gate.check_value(given, "The task")
        request_id, presence = unique_id(), self._reader.presence
        try:
            await presence.expect(queue, task_id=task_id, request_id=request_id)
        except NoWorkerError:
            await self.start(task_id, given, queue, asked)
            if started is not None:
                started()
            raise
        await self._refuse_archived(task_id)
        presence.started(task_id, queue)
        given = _prepared(given)
        start: WithStartWorkflowOperation[object, object] = WithStartWorkflowOperation(
            AGENT_TASK,
            given,
            id=task_id,
            task_queue=queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=attributes(given),
            memo=memo(asked, now=time.time()),
        )
        wanted = RunRequest(all=True)
        try:
            with server_errors():
                sending = self._start_and_ask(start, wanted, request_id, started)
                reply = await self._patiently(task_id, sending, request_id)
        except WorkflowAlreadyStartedError as error:
            presence.forget(task_id)
            raise TaskExistsError(task_id) from error
        except _UnheardError as error:
            if not await self._is_known(task_id):
                raise ConnectError(*error.args) from error
            reply = None
            if started is not None:
                started()
        if reply is None or reply.status == "moved":
            return await self._run(task_id, wanted, request_id, again=True)
        return reply

    async def _start_and_ask(
        self,
        start: WithStartWorkflowOperation[object, object],
        asked: RunRequest,
        request_id: str,
        started: Callable[[], None] | None,
    ) -> RunReply:
        """Send the start of a task together with its `run` update."""
        handle: WorkflowUpdateHandle[RunReply]
        try:
            handle = await self._client.start_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
                "run",
                asked,
                start_workflow_operation=start,
                wait_for_stage=COMPLETED if started is None else ACCEPTED,
                id=request_id,
                result_type=RunReply,
            )
        except (RPCError, WorkflowAlreadyStartedError, WorkflowUpdateRPCTimeoutOrCancelledError):
            # The error is in the operation, too: asyncio reports one that nobody has looked at.
            with suppress(RPCError, WorkflowAlreadyStartedError, asyncio.CancelledError):
                await start.workflow_handle()
            raise
        if started is not None:
            started()
        return await handle.result()

    async def run(self, task_id: str, asked: RunRequest, request_id: str | None = None) -> RunReply:
        """Send a `run` update and wait for its reply, over rollovers of the task.

        Raises:
            InvalidArgumentError: The id of the request or of the step cannot be used.
            TaskNotFoundError: There is no such task.
            TaskClosedError: It is closed.
            NoWorkerError: No worker process serves it.
            StepFailedError: The step failed.
            HoldfastError: What the task refused or ended with.
        """
        if len(asked.step) > LONGEST_NAME:
            msg = f"step may have at most {LONGEST_NAME} characters; this has {len(asked.step)}."
            raise InvalidArgumentError(msg)
        return await self._run(task_id, asked, request_id_of(request_id))

    async def _run(
        self, task_id: str, asked: RunRequest, request_id: str, *, again: bool = False
    ) -> RunReply:
        reply = await self._ask(task_id, "run", request_id, RunReply, asked, again=again)
        if isinstance(reply, RunReply):
            return reply
        if asked.all:  # it went on by itself to its end
            return RunReply(n=Task.model_validate(reply.task).steps)
        raise _closed(task_id)

    async def undo(
        self, task_id: str, asked: UndoRequest, request_id: str | None = None
    ) -> RunReply:
        """Send an `undo` update and wait for its reply.

        Raises:
            UndoRefusedError: Effects stand in the way; nothing was changed.
            UndoFailedError: The undo of an effect failed.
            TaskClosedError: The task is closed.
            NoWorkerError: No worker process serves it.
        """
        reply = await self._ask(task_id, "undo", request_id_of(request_id), RunReply, asked)
        if isinstance(reply, RunReply):
            return reply
        raise _closed(task_id)

    async def finalize(self, task_id: str) -> None:
        """Commit the task to its session and close it.

        Raises:
            TaskClosedError: It was finalized before.
            TaskAbandonedError: It was abandoned meanwhile.
            AgentsException: It has ended with another verdict.
            InvalidArgumentError: Its last step is not done.
            NoWorkerError: No worker process serves it.
        """
        await self._ask(task_id, "finalize", unique_id(), bool)
        for pause in _pauses(CLOSING_SECONDS):
            if await self.ended(task_id) is not None:
                return
            await asyncio.sleep(pause)
        msg = f"Task {task_id!r} said that it is closed, but is not. Ask again."
        raise TaskClosedError(msg)

    async def _ask(
        self,
        task_id: str,
        name: str,
        request_id: str,
        kind: type[T],
        *args: Value,
        again: bool = False,
    ) -> T | TaskRecord:
        """Send an update until it is answered, or the task has ended well without answering it.

        A task that continues as new says "moved", or nothing. Its next run answers; there is none
        when it is closed, or when it could not continue.

        Args:
            task_id: The task.
            name: Name of the update.
            request_id: Id of the update, the same each time.
            kind: Type of the answer.
            args: Arguments of the update.
            again: Whether the request was sent before.
        """
        for arg in args:
            gate.check_value(arg, "The request")
        await self.expect_worker(task_id, request_id)
        run_id, unheard = "", None
        for pause in _pauses():
            try:
                reply = await self._update(task_id, name, request_id, kind, *args)
            except TaskClosedError:
                if not again:
                    raise
                reply = None
            except _UnheardError as error:
                unheard = unheard or time.monotonic()
                if time.monotonic() - unheard >= UNHEARD_SECONDS:
                    raise ConnectError(*error.args) from error
                await asyncio.sleep(pause)
                continue
            unheard, again = None, True
            if reply is not None and not _is_moved(reply):
                return reply
            record = await self.ended(task_id)
            if record is not None:
                return record
            if pause >= LONGEST_PAUSE_SECONDS:
                found = (await self._describe(task_id)).run_id
                if found == run_id:
                    await self._raise_parked(task_id)
                run_id = found or ""
            await asyncio.sleep(pause)
        raise _closed(task_id)

    async def expect_worker(self, task_id: str, request_id: str) -> None:
        """Check that a request would be carried out soon, and not later when nobody wants it.

        Raises:
            NoWorkerError: It would not.
            TaskClosedError: The task is closed.
        """
        presence = self._reader.presence
        try:
            queue = await presence.queue_of(task_id)
        except RPCError as error:
            raise await self._missing(task_id, error) from error
        if presence.is_fresh(queue):
            return
        if (await self._describe(task_id)).close_time is not None:
            raise _closed(task_id)
        await presence.expect(queue, task_id=task_id, request_id=request_id)

    async def _raise_parked(self, task_id: str) -> None:
        """Raise what a task waits with that could not continue as new."""
        try:
            task = await self._reader.query(task_id, "task", Task)
        except TaskClosedError:  # the next round finds out how
            return
        if task.status == "needs_attention":
            failure = await self._reader.failure(task_id)
            if failure is not None:
                raise to_error(failure, task_id=task_id, parked=True)

    async def _update(
        self, task_id: str, name: str, request_id: str, kind: type[T], *args: object
    ) -> T | None:
        """Send one update; None means that the task is on its way to a new run."""
        handle = self._client.get_workflow_handle(task_id)
        sending = handle.execute_update(name, args=list(args), id=request_id, result_type=kind)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        try:
            return await self._patiently(task_id, sending, request_id)
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
                if "larger than max" in error.message:  # gRPC has no field for the reason
                    msg = f"The request for task {task_id!r} is too large: {error.message}."
                    raise InvalidArgumentError(msg) from error
                return None  # ten updates wait already
            raise await self._missing(task_id, error) from error

    async def _patiently(
        self, task_id: str, sent: Coroutine[Any, Any, T], request_id: str
    ) -> T | None:
        """Wait for an update for as long as there is a worker process to answer it.

        None means that the task is on its way to a new run: ask again.

        Raises:
            _UnheardError: A worker process got it and did not see to it: ask again, for a while.
            HoldfastError: What the task says.
        """
        sending = asyncio.ensure_future(sent)
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({sending}, timeout=PATIENCE_SECONDS)
            while not done:
                await self._reader.presence.require(task_id, request_id)
                done, _ = await asyncio.wait({sending}, timeout=6 * PATIENCE_SECONDS)
            return sending.result()
        except WorkflowUpdateFailedError as error:
            failure = failure_in(error) or Failure(type="UpdateFailed", message=str(error))
            if failure.type in MOVING:
                return None
            if failure.type == PASSED_OVER:
                raise _UnheardError(task_id, failure.message) from error
            raise to_error(failure, task_id=task_id, parked=is_parked(error)) from None
        except RPCError as error:
            if error.status is RPCStatusCode.FAILED_PRECONDITION:
                raise _UnheardError(task_id, error.message) from error
            raise
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return None
        finally:
            sending.cancel()

    async def ended(self, task_id: str) -> TaskRecord | None:
        """Return a finished task's record, or None while the task is open.

        Raises:
            TaskNotFoundError: There is no such task.
            TaskAbandonedError: It was abandoned.
            AgentsException: It has ended with another verdict.
            TaskClosedError: It was ended with Temporal's own tools.
        """
        found = await self._describe(task_id)
        if found.close_time is None or found.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return None
        record = await read_record(self._reader.archive, task_id)
        if record is None:
            how = found.status.name.lower() if found.status is not None else "ended"
            msg = f"Task {task_id!r} was {how} with Temporal's own tools: it can only be read."
            raise TaskClosedError(msg)
        if record.failure is not None:
            raise to_error(record.failure, task_id=task_id)
        return record

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
            InvalidArgumentError: It holds what no task can keep; nothing was sent.
            TaskNotFoundError: There is no such task.
            TaskClosedError: It is closed.
            ConnectError: The server could not be reached.
            CommandRefusedError: The task refused it.
        """
        name = request_id_of(request_id)
        sent = compose(name, verb, by=check_by(by), body=body or {})
        if verb in UNHURRIED:
            await self._refuse_when_full(task_id, verb)
        handle = self._client.get_workflow_handle(task_id)
        try:
            await handle.signal(SIGNAL, sent)
        except RPCError as error:
            raise await self._missing(task_id, error) from error
        receipt = await self._receipt(task_id, sent)
        if receipt.status == "refused":
            msg = f"Task {task_id!r} refused to {verb}: {receipt.reason}"
            raise CommandRefusedError(msg, is_decided=receipt.is_decided)
        return receipt

    async def _refuse_when_full(self, task_id: str, verb: Verb) -> None:
        """Keep a task's history from growing without end while the task cannot begin a new one.

        Raises:
            CommandRefusedError: It has grown too long already.
        """
        try:
            events = (await self._describe(task_id)).history_length
        except TaskNotFoundError:  # the command finds out whether it is closed
            return
        if events >= MOST_EVENTS:
            msg = (
                f"Task {task_id!r} has {events} events in its history, and cannot begin a new one"
                " before a worker process is up and what the task is doing has ended or, if it is a"
                f" tool call, has run for a minute. Until then it takes no {verb}; decisions,"
                " pause, resume and abandon are taken. See that a worker process is up and ask"
                " again, or abandon the task."
            )
            raise CommandRefusedError(msg)

    async def _receipt(self, task_id: str, sent: Command) -> Receipt:
        """Read what became of a command that is recorded; trouble in reading is none of it."""
        presence = self._reader.presence
        with suppress(HoldfastError, TemporalError, TimeoutError, ValueError):
            queue = await presence.queue_of(task_id)
            await presence.expect(queue, task_id=task_id, seconds=RECEIPT_SECONDS)
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await self._client.get_workflow_handle(task_id).query(
                    "receipt", sent.id, result_type=dict
                )
            if found:
                return Receipt.model_validate(found)
        return Receipt(id=sent.id, verb=sent.verb, status="recorded")

    async def delete(self, task_id: str) -> None:
        """Delete a task from Temporal, all its runs, and from the archive; its children, too.

        An open one is terminated with it; no worker process is needed.

        Raises:
            TaskNotFoundError: There is none of this id.
            ConnectError: The server could not be reached.
        """
        for child in await self._children(task_id):
            with suppress(TaskNotFoundError):
                await self.delete(child)
        known = await self._delete_run(task_id) if await self._is_known(task_id) else False
        self._reader.presence.forget(task_id)
        query = f"{TASKS}{is_('WorkflowId', task_id)}"
        with server_errors():
            async for run in self._client.list_workflows(query):
                if run.id != task_id:
                    continue
                known = await self._delete_run(task_id, run.run_id) or known
        archived = await self._reader.archive.adelete_record(record_name("tasks", task_id))
        if not (known or archived):
            raise TaskNotFoundError(task_id)

    async def _children(self, task_id: str) -> set[str]:
        """List the tasks that calls of agents as tools were in a task."""
        query = f"{TASKS}{is_('ParentWorkflowId', task_id)}"
        with server_errors():
            found = self._client.list_workflows(query)
            return {each.id async for each in found if each.parent_id == task_id}

    async def _delete_run(self, task_id: str, run_id: str = "") -> bool:
        """Delete a run, the newest by default; return whether Temporal still had it."""
        which = WorkflowExecution(workflow_id=task_id, run_id=run_id)
        try:
            with server_errors(RPCStatusCode.NOT_FOUND):
                await self._client.workflow_service.delete_workflow_execution(
                    DeleteWorkflowExecutionRequest(
                        namespace=self._client.namespace, workflow_execution=which
                    )
                )
        except RPCError:  # not found: the archive alone may have it
            return False
        return True

    async def _missing(self, task_id: str, error: RPCError) -> Exception:
        """Tell apart a task that is closed, one that never was, and another trouble."""
        try:
            with suppress(RPCError), server_errors(RPCStatusCode.NOT_FOUND):
                raise error
            record = await read_record(self._reader.archive, task_id)
            closed = record is not None or await self._is_known(task_id)
        except HoldfastError as cause:
            return cause
        return _closed(task_id) if closed else TaskNotFoundError(task_id)

    async def _is_known(self, task_id: str) -> bool:
        try:
            found = await self._describe(task_id)
        except TaskNotFoundError:
            return False
        return found.workflow_type == AGENT_TASK

    async def _describe(self, task_id: str) -> WorkflowExecutionDescription:
        return await self._reader.describe(task_id)

    async def refuse_known(self, task_id: str) -> None:
        """Refuse an id that a task has, open or closed.

        Raises:
            TaskExistsError: There is a task of this id.
        """
        await self._refuse_archived(task_id)
        with suppress(TaskNotFoundError):
            await self._describe(task_id)
            raise TaskExistsError(task_id)

    async def _refuse_archived(self, task_id: str) -> None:
        """Keep ids unique also after Temporal has forgotten the closed task."""
        if await read_record(self._reader.archive, task_id) is not None:
            raise TaskExistsError(task_id)


def _prepared(given: TaskInput) -> TaskInput:
    """Put a new task into the trace around the caller, and give it its secret."""
    head = given.head.model_copy(update={"run": in_trace(given.head.run)})
    return given.model_copy(update={"head": head, "secret": secrets.token_hex(16)})


def _is_moved(reply: object) -> bool:
    return isinstance(reply, RunReply) and reply.status == "moved"


def _closed(task_id: str) -> TaskClosedError:
    return TaskClosedError(f"Task {task_id!r} is closed: it can be read, not changed.")


def _pauses(seconds: float | None = None) -> Iterator[float]:
    """Give the pauses between attempts, longer each time, for so long or for ever."""
    pause, total = FIRST_PAUSE_SECONDS, 0.0
    while seconds is None or total < seconds:
        yield pause
        total += pause
        pause = min(1.5 * pause, LONGEST_PAUSE_SECONDS)


def unique_id() -> str:
    """Make up the id of a request."""
    return uuid.uuid4().hex[:16]
