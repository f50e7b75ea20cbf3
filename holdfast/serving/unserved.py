"""Open tasks whose queue no worker process polls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from temporalio.client import Client

from holdfast.engine.cluster import has_workers
from holdfast.engine.search_attributes import OPEN_TASKS, is_
from holdfast.errors import EngineError
from holdfast.reading.queries import server_errors
from holdfast.values.checks.ids import serves
from holdfast.values.text.logs import log

MOST_QUEUES = 20
"""Queues that are looked at: each one costs the server two questions."""


@dataclass(frozen=True)
class Unserved:
    """A queue with open tasks that no worker process serves.

    Attributes:
        queue: The queue.
        task_id: One of the tasks.
    """

    queue: str
    task_id: str

    @property
    def text(self) -> str:
        """What to do about it."""
        return (
            f"Open tasks wait, such as {self.task_id!r}: no worker process serves"
            f" {serves(self.queue)}. Nothing is lost. Start one that does, or abandon them."
        )


async def warn_of_unserved(client: Client, served: Collection[str]) -> None:
    """Log a warning for each queue that has open tasks and no worker process.

    Args:
        client: Temporal client.
        served: Queues that this process serves.
    """
    try:
        for each in await unserved(client, served):
            log.warning("%s", each.text)
    except EngineError as error:
        log.info("whether open tasks wait for other worker processes is not known: %s", error)


async def unserved(client: Client, served: Collection[str]) -> list[Unserved]:
    """List queues that have open tasks and no worker process.

    Raises:
        ConnectError: The server could not be asked.
    """
    found: list[Unserved] = []
    known = [*served]
    for _ in range(MOST_QUEUES):
        each = await _other(client, known)
        if each is None:
            break
        known.append(each.queue)
        if not await has_workers(client, each.queue):
            found.append(each)
    return found


async def _other(client: Client, known: Collection[str]) -> Unserved | None:
    """Find an open task of a queue that is not among these."""
    query = OPEN_TASKS + "".join(is_("TaskQueue", queue, negated=True) for queue in known)
    with server_errors():
        async for task in client.list_workflows(query, page_size=1000):
            if task.task_queue not in known:
                return Unserved(queue=task.task_queue, task_id=task.id)
    return None
