"""Presence of worker processes, checked before a request is sent and while it is awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.engine.cluster import has_workers
from holdfast.errors import ConnectError, NoWorkerError
from holdfast.reading.server_errors import server_errors
from holdfast.values.checks.ids import no_worker
from holdfast.values.pauses import pauses

PATIENCE_SECONDS = 5.0
"""How long to wait for a worker process: one that has just been started is seen after a moment."""

FRESH_SECONDS = 30.0
"""How long a queue counts as served after a worker was seen there."""

SILENCE_SECONDS = 60.0
"""How long the server may fail to answer which workers poll a queue before a wait ends."""

QUEUES_KEPT = 10_000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Presence:
    """Finds the queues of tasks, and remembers for a while which of them worker processes poll."""

    def __init__(self, client: Client) -> None:
        """Ask this client's server."""
        self._client = client
        self._queues: dict[str, str] = {}
        self._seen: dict[str, float] = {}
        self._silent_since: float | None = None

    def started(self, task_id: str, queue: str) -> None:
        """Remember the queue of a task."""
        self._queues[task_id] = queue
        while len(self._queues) > QUEUES_KEPT:
            del self._queues[next(iter(self._queues))]

    def forget(self, task_id: str) -> None:
        """Forget a task that was deleted."""
        self._queues.pop(task_id, None)

    async def queue_of(self, workflow_id: str) -> str:
        """Return a workflow's queue, which never changes.

        Raises:
            RPCError: The server knows no workflow of this id.
            ConnectError: The server could not be asked.
        """
        queue = self._queues.get(workflow_id)
        if queue is None:
            with server_errors(RPCStatusCode.NOT_FOUND):
                queue = (await self._client.get_workflow_handle(workflow_id).describe()).task_queue
            self.started(workflow_id, queue)
        return queue

    async def queue_if_known(self, workflow_id: str) -> str:
        """Return a workflow's queue, or nothing when Temporal does not know the workflow any more.

        Raises:
            ConnectError: The server could not be asked.
        """
        try:
            return await self.queue_of(workflow_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return ""

    def is_fresh(self, queue: str) -> bool:
        """Whether a worker process was seen there a moment ago."""
        seen = self._seen.get(queue)
        return seen is not None and time.monotonic() - seen < FRESH_SECONDS

    async def is_served(self, queue: str) -> bool:
        """Say whether a worker process polls a queue. True may be 70 s old, False is current."""
        if not await has_workers(self._client, queue):
            self._seen.pop(queue, None)
            return False
        self._seen[queue] = time.monotonic()
        return True

    async def require(self, workflow_id: str, request_id: str = "") -> None:
        """Check, while a request waits, that a worker process may answer it.

        Args:
            workflow_id: The task.
            request_id: Id of the request, when it has been sent and may be carried out later.

        Raises:
            NoWorkerError: No worker process polls the task's queue, or begins to within 5 s.
            ConnectError: The server has failed to answer for a minute.
        """
        queue = await self.queue_of(workflow_id)
        # A server that was started again knows of no worker process until one asks it for work.
        missing = no_worker(
            queue, task_id=workflow_id, request_id=request_id, is_sent=bool(request_id)
        )
        await self._until(self._may_be_served, queue, missing)

    async def _may_be_served(self, queue: str) -> bool:
        """Whether a queue is polled, as far as is known: a busy server does not end the wait."""
        try:
            served = await self.is_served(queue)
        except ConnectError:
            now = time.monotonic()
            self._silent_since = now if self._silent_since is None else self._silent_since
            if now - self._silent_since >= SILENCE_SECONDS:
                raise
            return True
        self._silent_since = None
        return served

    async def expect(
        self, queue: str, *, task_id: str, request_id: str = "", seconds: float | None = None
    ) -> None:
        """Check, before a request is sent, that a worker process will carry it out soon.

        Args:
            queue: The task's queue.
            task_id: The task, for the error.
            request_id: Id of the request, for the error.
            seconds: How long to wait for a worker process; PATIENCE_SECONDS by default.

        Raises:
            NoWorkerError: No worker process polls the queue, or begins to within that time.
        """
        if self.is_fresh(queue):
            return
        missing = no_worker(queue, task_id=task_id, request_id=request_id)
        await self._until(self.is_served, queue, missing, seconds)

    async def _until(
        self,
        is_served: Callable[[str], Awaitable[bool]],
        queue: str,
        missing: NoWorkerError,
        seconds: float | None = None,
    ) -> None:
        deadline = time.monotonic() + (PATIENCE_SECONDS if seconds is None else seconds)
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            if await is_served(queue):
                return
            if time.monotonic() + pause > deadline:
                raise missing
            await asyncio.sleep(pause)
