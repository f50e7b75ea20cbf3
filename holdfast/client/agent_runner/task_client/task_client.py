"""A task from a client's side: starting it, sending it commands, deleting it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.archive import record_name
from holdfast.archive.holds import read_holds, refuse_held
from holdfast.archive.kept_answers import drop_answers, drop_folders, forget_turn
from holdfast.archive.segments import has_record
from holdfast.client.agent_runner.task_client.updates import TaskUpdates, request_id_of, unique_id
from holdfast.engine.rests import rest_of
from holdfast.engine.search_attributes import AGENT_TASK, TASKS, is_
from holdfast.errors import (
    CommandRefusedError,
    HoldfastError,
    NoWorkerError,
    TaskExistsError,
    TaskNotFoundError,
)
from holdfast.reading.erasable import codes_of
from holdfast.reading.queries import PATIENCE_SECONDS
from holdfast.reading.server_errors import server_errors
from holdfast.reading.visibility import attributes, children_of, memo
from holdfast.task.data.commands import Command, Receipt, RunRequest, compose
from holdfast.task.data.state import TaskInput
from holdfast.task.queries.labels import details_of, title_of
from holdfast.tracing.rules import in_trace
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.ids import check_by, timed_id
from holdfast.values.runs.verbs import VERBS, Verb

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
        if receipt.status == "refused":
            msg = f"Task {task_id!r} refused to {verb}: {receipt.reason}"
            raise CommandRefusedError(msg, is_decided=receipt.is_decided)
        return receipt

    async def _refuse_when_full(self, task_id: str, verb: Verb) -> None:
        """Keep a task's history from growing without end while the task cannot continue as new.

        Raises:
            CommandRefusedError: It is too long already.
        """
        try:
            events = (await self._describe(task_id)).history_length
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
                found = await self._client.get_workflow_handle(task_id).query(
                    "receipt", sent.id, result_type=dict
                )
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
        known = await self._delete_run(task_id) if await self.is_known(task_id) else False
        self.reader.presence.forget(task_id)
        self.reader.records.forget(task_id)
        query = f"{TASKS}{is_('WorkflowId', task_id)}"
        with server_errors():
            async for run in self._client.list_workflows(query):
                if run.id != task_id:
                    continue
                known = await self._delete_run(task_id, run.run_id) or known
        if not (known or await self.reader.records.has(task_id)):
            raise TaskNotFoundError(task_id)
        archived = await self.reader.archive.adelete_record(record_name("tasks", task_id))
        await forget_turn(self.reader.archive, task_id)
        await drop_answers(self.reader.archive, task_id)
        await drop_folders(self.reader.archive, task_id)
        if not (known or archived):
            raise TaskNotFoundError(task_id)

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
        except RPCError:  # not found: it may be in the archive only
            return False
        return True

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
        """Refuse the id of an archived task, also after Temporal has forgotten it."""
        if await has_record(self.reader.archive, task_id):
            raise TaskExistsError(task_id)


def _prepared(given: TaskInput) -> TaskInput:
    """Give a new task its secret and the caller's trace."""
    head = given.head.model_copy(update={"run": in_trace(given.head.run)})
    return given.model_copy(update={"head": head, "secret": secrets.token_hex(16)})
