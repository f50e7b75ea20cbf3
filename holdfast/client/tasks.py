"""The client's side of the task protocol: start, run, finalize, command."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.failures import failure_in, is_parked, to_error
from holdfast.client.reading import PATIENCE_SECONDS, Reader
from holdfast.commands import SIGNAL, Command, Verb
from holdfast.errors import (
    CommandRefusedError,
    HoldfastError,
    NoWorkerError,
    TaskClosedError,
    TaskExistsError,
    TaskNotFoundError,
)
from holdfast.segments import read_record
from holdfast.values import Json
from holdfast.wire import Failure, Receipt, RunReply, RunRequest, TaskInput, UndoRequest

HF_STATUS = SearchAttributeKey.for_keyword("HfStatus")
HF_AGENT = SearchAttributeKey.for_keyword("HfAgent")
PREVIEW_CHARACTERS = 120
AGAIN_SECONDS = 0.05
MOVING = frozenset({"Draining", "AcceptedUpdateCompletedWorkflow"})
"""Failures which say that the task is just continuing as new."""

T = TypeVar("T")


class TaskClient:
    """Talks to tasks of one namespace; the tasks' queue is given with each start."""

    def __init__(self, client: Client, reader: Reader) -> None:
        """Use this client, and this reader for what is closed."""
        self._client = client
        self._reader = reader

    async def start(self, task_id: str, given: TaskInput, queue: str) -> None:
        """Start a task.

        Raises:
            TaskExistsError: There is a task of this id, open or closed.
        """
        await self._refuse_archived(task_id)
        try:
            await self._client.start_workflow(
                "AgentTask",
                given,
                id=task_id,
                task_queue=queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=_attributes(given),
                memo=_memo(given),
            )
        except WorkflowAlreadyStartedError as error:
            raise TaskExistsError(task_id) from error

    async def start_and_run(self, task_id: str, given: TaskInput, queue: str) -> RunReply:
        """Start a task and wait until it is closed or needs somebody, in one request.

        Raises:
            TaskExistsError: There is a task of this id, open or closed.
            HoldfastError: The task failed; see `run`.
        """
        await self._refuse_archived(task_id)
        start: WithStartWorkflowOperation[object, object] = WithStartWorkflowOperation(
            "AgentTask",
            given,
            id=task_id,
            task_queue=queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=_attributes(given),
            memo=_memo(given),
        )
        request = RunRequest(all=True)
        sending: Coroutine[Any, Any, RunReply] = self._client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
            "run", request, start_workflow_operation=start, id=_unique(), result_type=RunReply
        )
        try:
            reply = await self._patiently(task_id, sending)
        except WorkflowAlreadyStartedError as error:
            raise TaskExistsError(task_id) from error
        if reply is None or reply.status == "moved":
            return await self.run(task_id, request)
        return reply

    async def run(self, task_id: str, asked: RunRequest, request_id: str | None = None) -> RunReply:
        """Send a `run` update and wait for its reply, over rollovers of the task.

        Raises:
            TaskNotFoundError: There is no such task.
            TaskClosedError: It is closed.
            NoWorkerError: No worker process serves it.
            StepFailedError: The step failed.
            HoldfastError: What the task refused or ended with.
        """
        request_id = request_id or _unique()
        while True:
            reply = await self._update(task_id, "run", request_id, RunReply, asked)
            if reply is not None and reply.status != "moved":
                return reply
            await asyncio.sleep(AGAIN_SECONDS)

    async def undo(self, task_id: str, asked: UndoRequest) -> RunReply:
        """Send an `undo` update and wait for its reply.

        Raises:
            UndoRefusedError: Effects stand in the way; nothing was changed.
            UndoFailedError: The undo of an effect failed.
            TaskClosedError: The task is closed.
        """
        request_id = _unique()
        while True:
            reply = await self._update(task_id, "undo", request_id, RunReply, asked)
            if reply is not None:
                return reply
            await asyncio.sleep(AGAIN_SECONDS)

    async def finalize(self, task_id: str) -> None:
        """Commit the task to its session and close it.

        Raises:
            TaskClosedError: It is closed already.
            InvalidArgumentError: Its last step is not done.
        """
        while not await self._update(task_id, "finalize", _unique(), bool):
            handle = self._client.get_workflow_handle(task_id)
            if (await handle.describe()).close_time is not None:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _update(
        self, task_id: str, name: str, request_id: str, kind: type[T], *args: object
    ) -> T | None:
        """Send one update; None means that the task is on its way to a new run."""
        handle = self._client.get_workflow_handle(task_id)
        sending = handle.execute_update(name, args=list(args), id=request_id, result_type=kind)  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        try:
            reply = await self._patiently(task_id, sending)
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:  # ten updates wait already
                return None
            raise await self._missing(task_id, error) from error
        return reply

    async def _patiently(self, task_id: str, sent: Coroutine[Any, Any, T]) -> T | None:
        """Wait for an update for as long as there is a worker process to answer it.

        None means that the task is on its way to a new run: ask again.
        """
        sending = asyncio.ensure_future(sent)
        try:
            done, _ = await asyncio.wait({sending}, timeout=PATIENCE_SECONDS)
            while not done:
                await self._reader.require_worker(task_id)
                done, _ = await asyncio.wait({sending}, timeout=6 * PATIENCE_SECONDS)
            return sending.result()
        except WorkflowUpdateFailedError as error:
            failure = failure_in(error) or Failure(type="UpdateFailed", message=str(error))
            if failure.type in MOVING:
                return None
            raise to_error(failure, task_id=task_id, parked=is_parked(error)) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return None
        finally:
            sending.cancel()

    async def command(
        self, task_id: str, verb: Verb, *, by: str, body: dict[str, Json] | None = None
    ) -> Receipt:
        """Send a command. It is durable once this returns, also when no worker process is up.

        Raises:
            TaskNotFoundError: There is no such task.
            TaskClosedError: It is closed.
            CommandRefusedError: The task refused it.
        """
        sent = Command(id=_unique(), verb=verb, by=by, body=body or {})
        handle = self._client.get_workflow_handle(task_id)
        try:
            await handle.signal(SIGNAL, sent)
        except RPCError as error:
            raise await self._missing(task_id, error) from error
        receipt = await self._receipt(task_id, sent)
        if receipt.status == "refused":
            msg = f"Task {task_id!r} refused to {verb}: {receipt.reason}"
            raise CommandRefusedError(msg)
        return receipt

    async def _receipt(self, task_id: str, sent: Command) -> Receipt:
        """Read what became of a command, if a worker process is there to have seen it."""
        recorded = Receipt(id=sent.id, verb=sent.verb, status="recorded")
        handle = self._client.get_workflow_handle(task_id)
        try:
            await self._reader.require_worker(task_id)
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await handle.query("receipt", sent.id, result_type=dict)
        except (NoWorkerError, TimeoutError):
            return recorded
        return Receipt.model_validate(found) if found else recorded

    async def delete(self, task_id: str) -> None:
        """Delete a task's history; an open one is terminated with it."""
        await self._client.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(
                namespace=self._client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=task_id),
            )
        )

    async def _missing(self, task_id: str, error: RPCError) -> Exception:
        """Tell apart a task that is closed, one that never was, and another trouble."""
        if error.status is not RPCStatusCode.NOT_FOUND:
            return error
        try:
            record = await read_record(self._reader.archive, task_id)
            closed = record is not None or await self._is_known(task_id)
        except HoldfastError as cause:
            return cause
        if not closed:
            return TaskNotFoundError(task_id)
        msg = f"Task {task_id!r} is closed: it can be read, not changed."
        return TaskClosedError(msg)

    async def _is_known(self, task_id: str) -> bool:
        try:
            await self._client.get_workflow_handle(task_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True

    async def _refuse_archived(self, task_id: str) -> None:
        """Keep ids unique also after Temporal has forgotten the closed task."""
        if await read_record(self._reader.archive, task_id) is not None:
            raise TaskExistsError(task_id)


def _attributes(given: TaskInput) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(HF_STATUS, "running"),
            SearchAttributePair(HF_AGENT, given.head.agent),
        ]
    )


def _memo(given: TaskInput) -> dict[str, str]:
    return {"input": given.input[:PREVIEW_CHARACTERS]} if given.input else {}


def _unique() -> str:
    return uuid.uuid4().hex[:16]
