"""A task's updates, as a client sends them: waiting for the reply, sending again over rollovers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.agent_runner.task_client.caller import Caller, request_id_of, unique_id
from holdfast.client.agent_runner.task_client.ends import (
    FIRST_PAUSE_SECONDS,
    GROWTH,
    LONGEST_PAUSE_SECONDS,
    TaskEnds,
)
from holdfast.errors import (
    CommandRefusedError,
    ConnectError,
    InvalidArgumentError,
    NoWorkerError,
    StepNotFoundError,
    StuckTaskError,
    TaskClosedError,
)
from holdfast.reading.presence import PATIENCE_SECONDS
from holdfast.reading.reader import Reader
from holdfast.reading.server_errors import failure_in, is_parked, to_error
from holdfast.task.data.commands import RunReply, RunRequest
from holdfast.task.data.failures import Failure
from holdfast.task.data.state import TaskRecord
from holdfast.task.data.undo import UndoRequest
from holdfast.values.base import Value
from holdfast.values.checks import gate
from holdfast.values.checks.ids import LONGEST_NAME
from holdfast.values.pauses import pauses
from holdfast.values.steps import Task, UndoReceipt

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
        if request_id is not None or not asked.attaches:
            self._caller.follow(task_id)
            return await self._run(task_id, asked, request_id_of(request_id))
        reply = await self._run_next(task_id, asked)
        if reply.status == "done":
            self._caller.given(task_id, self._client)
        return reply

    async def _run_next(self, task_id: str, asked: RunRequest) -> RunReply:
        """Get the first step that this caller has not been given, or run the next one.

        Requests that got no answer are asked again first. The reply to one whose step was undone
        meanwhile stands for no step, so another request follows.
        """
        passed: list[str] = []
        while name := self._caller.kept(task_id):
            with self._keeping(task_id, name):
                try:
                    reply = await self._run(task_id, asked, name)
                    if reply.status != "done" or await self._stands(task_id, reply):
                        return reply
                except CommandRefusedError:
                    passed.append(name)
        name = self._caller.request(task_id)
        try:
            with self._keeping(task_id, name):
                return await self._run(task_id, asked, name)
        except CommandRefusedError:
            for each in passed:  # they may have been refused for the same reason
                self._caller.unanswered(task_id, each)
            raise

    @contextmanager
    def _keeping(self, task_id: str, name: str) -> Generator[None]:
        """Keep the name of a request that is left without an answer."""
        try:
            yield
        except (asyncio.CancelledError, ConnectError, NoWorkerError, StuckTaskError):
            self._caller.unanswered(task_id, name)
            raise

    async def _stands(self, task_id: str, reply: RunReply) -> bool:
        """Whether the step that a reply names was not undone."""
        try:
            return (await self._reader.step(task_id, reply.n)).branch == reply.branch
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
        for pause in pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, GROWTH):
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
                    await self._reader.refuse_stuck(task_id)
                    raise ConnectError(*error.args) from error
                await asyncio.sleep(pause)
                continue
            failing_since, again = None, True
            if reply is not None and not _is_moved(reply):
                return reply
            record = await self.ended(task_id)
            if record is not None:
                return record
            if pause >= LONGEST_PAUSE_SECONDS:
                # The same run twice, seconds apart: the task may be unable to continue as new.
                found = (await self._describe(task_id)).run_id
                if found == run_id:
                    await self._raise_parked(task_id)
                run_id = found or ""
            await asyncio.sleep(pause)
        raise await self.closed_error(task_id)

    async def expect_worker(self, task_id: str, request_id: str) -> None:
        """Check that a request would be carried out soon, and not later when it is not wanted.

        Raises:
            NoWorkerError: No worker process serves the task.
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
            raise await self.closed_error(task_id)
        await presence.expect(queue, task_id=task_id, request_id=request_id)

    async def _raise_parked(self, task_id: str) -> None:
        """Raise the failure with which a task waits that could not continue as new."""
        try:
            task = await self._reader.query(task_id, "task_value", Task)
        except TaskClosedError:  # the next round reads how it ended
            return
        if task.status == "needs_attention":
            failure = await self._reader.failure(task_id)
            if failure is not None:
                raise to_error(failure, task_id=task_id, parked=True)

    async def _update(
        self, task_id: str, name: str, request_id: str, kind: type[T], *args: object
    ) -> T | None:
        """Send one update; None means that the task is in transit to a new run."""
        handle = self._client.get_workflow_handle(task_id)
        sending = handle.execute_update(name, args=list(args), id=request_id, result_type=kind)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        try:
            return await self._await_reply(task_id, sending, request_id)
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
                if "larger than max" in error.message:  # gRPC has no field for the reason
                    msg = f"The request for task {task_id!r} is too large: {error.message}."
                    raise InvalidArgumentError(msg) from error
                return None  # ten updates wait already, as many as the server allows
            raise await self._missing(task_id, error) from error

    async def _await_reply(
        self, task_id: str, sent: Coroutine[Any, Any, T], request_id: str
    ) -> T | None:
        """Wait for the reply to an update for as long as a worker process serves the task.

        None means that the task is in transit to a new run: send again.

        Raises:
            NotTakenError: A worker process did not process it: send again, for a while.
            HoldfastError: The task's own error.
        """
        sending = asyncio.ensure_future(sent)
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({sending}, timeout=PATIENCE_SECONDS)
            while not done:
                await self._reader.presence.require(task_id, request_id)
                await self._reader.refuse_stuck(task_id)
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
            raise
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return None
        finally:
            sending.cancel()
        if isinstance(reply, RunReply) and reply.record:
            self._reader.records.ended(task_id, reply.record)
        return reply


def _is_moved(reply: object) -> bool:
    return isinstance(reply, RunReply) and reply.status == "moved"
