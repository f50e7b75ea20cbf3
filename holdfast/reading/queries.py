"""Queries that tasks answer themselves, and what Temporal says of their workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError, RPCStatusCode

from holdfast.engine.search_attributes import SPLIT
from holdfast.errors import (
    ConnectError,
    EngineError,
    QueryFailedError,
    StuckTaskError,
    TaskClosedError,
    TaskNotFoundError,
)
from holdfast.reading.ended import has_begun, why_stuck
from holdfast.reading.presence import PATIENCE_SECONDS, Presence
from holdfast.reading.server_errors import server_errors
from holdfast.values.checks.ids import no_worker

T = TypeVar("T")

QUESTIONS = 3
"""How often a task is asked the same while no answer comes. A worker drops the questions that wait
behind another when it evicts the task's run from its cache (temporalio/sdk-rust#672 is similar);
the server then holds the caller until the request times out."""

FIRST_SECONDS = 1.0
"""How long an answer may take before it is asked whether workflow code fails in the task."""

BUSY_PAUSES = (0.05, 0.1, 0.2, 0.5, *(1.0,) * 30)
"""Waits between the attempts to query a task while the server refuses: it is busy with others."""

_LOST = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
_PASSING = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, *_LOST)


class TaskQueries:
    """Queries the tasks of one namespace.

    Attributes:
        client: Temporal client.
        presence: Which worker processes serve which task.
    """

    def __init__(self, client: Client) -> None:
        """Use this client."""
        self.client = client
        self.presence = Presence(client)

    async def describe(self, task_id: str) -> WorkflowExecutionDescription:
        """Describe the newest run of a task.

        Raises:
            TaskNotFoundError: Temporal knows none of this id.
            ConnectError: The server could not be reached.
        """
        try:
            with server_errors(RPCStatusCode.NOT_FOUND):
                return await self.client.get_workflow_handle(task_id).describe()
        except RPCError as error:
            raise TaskNotFoundError(task_id) from error

    async def query(
        self,
        task_id: str,
        name: str,
        kind: type[T],
        *args: object,
        even_closed: bool | WorkflowExecution = False,
    ) -> T:
        """Ask a task.

        Args:
            task_id: The task.
            name: Name of the query.
            kind: Type of the answer.
            args: Arguments of the query.
            even_closed: Whether to ask a closed task too: it is replayed for that. Of one that is
                known to be closed, what the server says of it, which is not asked for again then.

        Raises:
            TaskClosedError: It is closed; the archive has it.
            TaskNotFoundError: Temporal knows none of this id.
            NoWorkerError: No worker process is up to answer.
            QueryFailedError: It could not answer, or never began.
            ConnectError: The server could not be reached.
        """
        ended = even_closed
        if isinstance(ended, bool):
            try:
                return await self._query(task_id, name, kind, args, even_closed=False)
            except TaskClosedError:
                if not ended:
                    raise
            ended = await self.describe(task_id)
        if not has_begun(ended):  # a worker process would fail to replay it
            msg = f"{task_id!r} has nothing to tell: its input could not be read, it never began."
            raise QueryFailedError(msg)
        return await self._query(task_id, name, kind, args, even_closed=True)

    async def _query(
        self,
        task_id: str,
        name: str,
        kind: type[T],
        args: Sequence[object],
        *,
        even_closed: bool,
        again: bool = False,
    ) -> T:
        handle = self.client.get_workflow_handle(task_id)

        async def ask() -> T:
            while True:
                try:
                    answer: T = await handle.query(
                        name,
                        args=args,
                        result_type=kind,
                        reject_condition=None if even_closed else QueryRejectCondition.NOT_OPEN,
                    )
                except WorkflowQueryRejectedError as error:
                    # The run that the server had found continued as new meanwhile: ask the next.
                    if error.status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
                        raise
                else:
                    return answer

        try:
            with server_errors(*_PASSING):
                return await self._patiently(lambda: while_busy(ask), task_id)
        except WorkflowQueryRejectedError as cause:
            msg = f"Task {task_id!r} is closed."
            raise TaskClosedError(msg) from cause
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise TaskNotFoundError(task_id) from error
            await self.refuse_stuck(task_id)
            if error.status is RPCStatusCode.FAILED_PRECONDITION and not again:
                await asyncio.sleep(FIRST_SECONDS)  # its workflow task has failed, and goes on now
                return await self._query(
                    task_id, name, kind, args, even_closed=even_closed, again=True
                )
            queue = await self.presence.queue_if_known(task_id)
            raise unanswered(error, task_id, name, queue) from error
        except WorkflowQueryFailedError as error:
            await self.refuse_stuck(task_id)
            raise QueryFailedError(
                f"{task_id!r} could not answer {name!r}: {error}.",
                remedy="It goes on as before; ask again, and see the worker's log if that does not"
                " help.",
            ) from error

    async def refuse_stuck(self, task_id: str) -> WorkflowExecutionDescription | None:
        """Say what is in the way of an answer, if workflow code fails in the task.

        Returns:
            What the server says of the task; None when it could not be asked, or knows none.

        Raises:
            StuckTaskError: It does.
        """
        found, why = None, ""
        with suppress(ConnectError, TaskNotFoundError):  # the query itself finds that out
            found = await self.describe(task_id)
            if found.raw_description.pending_workflow_task.attempt > 1:
                why = await why_stuck(self.client, found)
        if why:
            raise StuckTaskError(
                f"{task_id!r} cannot answer. {why}.",
                remedy="Mend the code and start the workers again: the task continues. Or"
                " end it: `holdfast abandon --force`.",
            )
        return found

    async def _patiently(self, ask: Callable[[], Coroutine[Any, Any, T]], task_id: str) -> T:
        """Wait for an answer for as long as there is a worker process to give it.

        The question is asked again while none comes; the first answer counts.
        """
        asked = [asyncio.ensure_future(ask())]
        open_ = set(asked)
        try:
            await asyncio.wait(open_, timeout=FIRST_SECONDS)
            if not asked[0].done():
                await self.refuse_stuck(task_id)
            while True:
                done, open_ = await asyncio.wait(
                    open_, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    if not _is_lost(each.exception()) or (len(asked) >= QUESTIONS and not open_):
                        return each.result()
                await self.presence.require(task_id)
                await self.refuse_stuck(task_id)
                if len(asked) < QUESTIONS:
                    asked.append(asyncio.ensure_future(ask()))
                    open_.add(asked[-1])
        finally:
            for each in asked:
                each.add_done_callback(lambda done: done.cancelled() or done.exception())
                each.cancel()


def unanswered(error: RPCError, task_id: str, name: str, queue: str) -> EngineError:
    """Make the error for a query that the server could not have answered.

    Args:
        error: What the server said.
        task_id: The task.
        name: Name of the query.
        queue: The task's queue.
    """
    if "no poller" in error.message:  # the server knows of a dead worker before its list does
        return no_worker(queue, task_id=task_id)
    if _is_lost(error):
        return QueryFailedError(
            f"No worker process has answered {name!r} of {task_id!r}, though one polled the queue"
            f" {queue!r} in the last minutes.",
            remedy="See that it runs (one that was killed counts for 70 s) and is not held up by"
            " code that blocks its event loop; then ask again.",
        )
    return QueryFailedError(
        f"{task_id!r} has nothing to answer {name!r} with: {error.message}.",
        remedy="If it has just been started, ask again; else see the worker's log.",
    )


def _is_lost(error: BaseException | None) -> bool:
    """Whether no one answered before the request timed out."""
    return isinstance(error, RPCError) and error.status in _LOST


async def while_busy(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, and ask again while others keep the task busy: the server holds few questions to it."""
    for pause in BUSY_PAUSES:
        try:
            return await ask()
        except RPCError as error:
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                raise
        except WorkflowQueryFailedError as error:
            if SPLIT not in str(error):
                raise
        await asyncio.sleep(pause)
    return await ask()
