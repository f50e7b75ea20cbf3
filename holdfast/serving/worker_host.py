"""Workers in this process: their thread and event loop, and an end that comes in time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from datetime import timedelta
from typing import Self

from temporalio.client import Client, WorkflowExecution
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError
from temporalio.worker import Worker

from holdfast.activities.user_loop import UserLoops
from holdfast.engine.loop import LoopThread
from holdfast.engine.search_attributes import is_
from holdfast.values.code.user_calls import DaemonThreads, heard
from holdfast.values.text.logs import log

EXTRA_SECONDS = 15.0
"""How long a worker may take to stop when its grace for running calls is over."""

CLOSE_SECONDS = 5.0
"""How long the loops may take to end, and the search for tasks that are left."""

MOST_WORKFLOW_THREADS = 500
MOST_NAMED = 100


class LongLived:
    """Keeps the objects that exist when a worker starts out of garbage collection while one runs.

    Modules, schemas and clients are some hundred thousand objects, and each full collection looks
    at all of them: the event loop stops for 100 ms and more, and heartbeats with it. Objects are
    freed as before when their last reference goes; what is left are cycles among these objects,
    which are collected once the last worker of the process has stopped.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._lock = threading.Lock()
        self._users = 0
        self._is_ours = False

    def begin(self) -> None:
        """Freeze what exists, if no other worker has, nor the program itself."""
        with self._lock:
            self._users += 1
            if self._users == 1 and not gc.get_freeze_count():
                gc.freeze()
                self._is_ours = True

    def end(self) -> None:
        """Give the objects back to the collector with the last worker."""
        with self._lock:
            self._users -= 1
            if not self._users and self._is_ours:
                gc.unfreeze()
                self._is_ours = False


LONG_LIVED = LongLived()


class Workers:
    """The Temporal workers of a process, one for each queue that it serves; start them together.

    Attributes:
        queues: The queues.
        client: The client that they use.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        """Keep workers that are not started, at least one."""
        self.queues = tuple(worker.task_queue for worker in workers)
        self.client = workers[0].client
        self._workers = tuple(workers)
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start them."""
        async with AsyncExitStack() as stack:
            for worker in self._workers:
                await stack.enter_async_context(worker)
            self._running = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop them."""
        await self.shutdown()
        await self._running.aclose()

    @property
    def are_running(self) -> bool:
        """Whether all of them were started, and none has ended."""
        return all(worker.is_running for worker in self._workers)

    async def run(self) -> None:
        """Run them until `shutdown`.

        Raises:
            Exception: What ended one of them.
        """
        await asyncio.gather(*(worker.run() for worker in self._workers))

    async def shutdown(self) -> None:
        """Stop them all at once: running calls end side by side."""
        await asyncio.gather(*(worker.shutdown() for worker in self._workers))


class Host:
    """A thread with an event loop for Temporal workers, and the loops of their tools.

    Attributes:
        tools: Where activities of the workers do their work.
        workflows: The threads of their workflow tasks, shared: they cost little, and the end of the
            process does not wait for one that hangs.
    """

    def __init__(self) -> None:
        """Start the thread."""
        self.tools = UserLoops()
        self.workflows = DaemonThreads(MOST_WORKFLOW_THREADS, "holdfast-workflow")
        self._loop = LoopThread("holdfast-worker")
        self._runs: dict[Workers, asyncio.Task[None]] = {}
        self._keeps = False

    async def start(self, make: Callable[[Host], Awaitable[Workers]]) -> Workers:
        """Make a worker, and run it until `stop`."""

        async def begin() -> Workers:
            worker = await make(self)
            self._runs[worker] = asyncio.create_task(worker.run())
            return worker

        # Not in the caller's context: tools of all later runs would see its variables.
        workers = await self._loop.wrap(begin(), context=Context())
        if not self._keeps:
            self._keeps = True
            LONG_LIVED.begin()
        return workers

    async def ended(self, worker: Workers) -> None:
        """Wait until a worker has ended.

        Raises:
            Exception: What ended it.
        """

        async def wait() -> None:
            await asyncio.shield(self._runs[worker])

        await self._loop.wrap(wait())

    async def stop(self, worker: Workers, grace: timedelta) -> bool:
        """Stop a worker; one that does not stop in time is left behind, and what holds it logged.

        Args:
            worker: The worker.
            grace: Its own grace for running calls.

        Returns:
            Whether it has stopped.
        """
        seconds = grace.total_seconds() + EXTRA_SECONDS
        stopping = asyncio.wrap_future(self._loop.submit(worker.shutdown()))
        await asyncio.wait([stopping], timeout=seconds)
        if stopping.done():
            stopping.result()
            self._runs.pop(worker).add_done_callback(heard)
            return True
        stopping.cancel()
        names = await _stuck(worker.client, worker.queues)
        works = sorted(map(str, self.tools.works.values()))
        log.error(
            "The worker of %s did not stop within %g seconds and is left behind. Tasks whose"
            " workflow task fails or does not end: %s. Work that does not end: %s. Tasks stay as"
            " they are recorded, and go on with the next worker.",
            ", ".join(worker.queues),
            seconds,
            ", ".join(names) or "none known",
            "; ".join(works) or "none",
        )
        return False

    async def close(self) -> None:
        """End the loops; a thread that does not end is left to the end of the process."""
        if self._keeps:
            self._keeps = False
            LONG_LIVED.end()
        await self.tools.close(CLOSE_SECONDS)
        await asyncio.to_thread(self._loop.close, CLOSE_SECONDS)


@asynccontextmanager
async def hosted(
    make: Callable[[Host], Awaitable[Workers]], grace: timedelta
) -> AsyncGenerator[tuple[Host, Workers]]:
    """Run one worker on a host of its own while the block runs.

    Args:
        make: Makes the worker; runs in the host's loop.
        grace: The worker's own grace for running calls.
    """
    host = Host()
    try:
        worker = await host.start(make)
        try:
            yield host, worker
        finally:
            await host.stop(worker, grace)
    finally:
        await host.close()


async def _stuck(client: Client, queues: Sequence[str]) -> list[str]:
    """Name the open tasks of queues whose workflow task was tried more than once."""
    found: list[str] = []

    async def look() -> None:
        for queue in queues:
            query = f"ExecutionStatus = 'Running'{is_('TaskQueue', queue)}"
            open_tasks = client.list_workflows(query, limit=MOST_NAMED)
            found.extend([each.id async for each in open_tasks if await _is_stuck(client, each)])

    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await look()
    except (TimeoutError, RPCError, TemporalError) as error:
        log.warning("The tasks left behind could not be asked for: %s", error)
    return found


async def _is_stuck(client: Client, task: WorkflowExecution) -> bool:
    described = await client.get_workflow_handle(task.id, run_id=task.run_id).describe()
    pending = described.raw_description.pending_workflow_task
    return pending.attempt > 1
