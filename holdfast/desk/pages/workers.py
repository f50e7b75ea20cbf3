"""The page of the workers: queues, who serves them, and open tasks that nobody serves."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, timedelta

from nicegui import ui
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import (
    CARD,
    STRONG,
    Tone,
    chip,
    empty,
    heading,
    link,
    quiet,
    task_url,
    text,
)
from holdfast.desk.views.words import age, clock, counted
from holdfast.desk.views.workers import Queue, Worker, queues_of, seen
from holdfast.engine.cluster import POLLER_SECONDS, known_workers
from holdfast.engine.search_attributes import OPEN_TASKS, TASKS
from holdfast.reading.listing import agent_of
from holdfast.reading.server_errors import server_errors

MOST_TASKS = 2_000
"""Open tasks that are looked at for their queues."""

NEWEST = 200
"""Newest tasks, also closed ones, that are looked at for their agents."""

_SECONDS = timedelta(seconds=3)


class Workers:
    """The queues in one browser."""

    def __init__(self, frame: Frame) -> None:
        """Draw it."""
        self._frame = frame
        self._drawn: list[Queue] | None = None
        heading("Workers", level=1)
        self._body = ui.column().classes("w-full gap-4")
        ui.timer(TICK_SECONDS * 2, lambda: self._frame.look(self._look))

    async def _look(self) -> None:
        desk = self._frame.desk
        found = await read_queues(desk.runner.client)
        if found == self._drawn:
            return
        self._drawn = found
        now = time.time()
        self._body.clear()
        with self._body:
            if not found:
                more = "A worker process appears here when it serves a queue that has tasks."
                empty("dns", "No queue has open tasks or workers", more)
            for queue in found:
                _draw_queue(queue, now)


def _draw_queue(queue: Queue, now: float) -> None:
    look = "ring-2 ring-rose-600 dark:ring-rose-500" if queue.is_unserved else ""
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3 {look}"):
        with ui.row().classes("w-full items-center gap-2"):
            heading(queue.serves).classes("min-w-0 break-words")
            tone: Tone = "bad" if queue.is_unserved else "good" if queue.workers else "calm"
            chip(queue.words, tone)
        names = f" of {', '.join(queue.agents)}" if queue.agents else ""
        quiet(counted(queue.open_tasks, "open task") + names, "break-words")
        if queue.is_unserved:
            with ui.row().classes("gap-x-4 gap-y-1"):
                for task in queue.tasks:
                    link(task, task_url(task), "text-sm break-all")
        if queue.workers:
            with ui.element("ul").classes("m-0 flex list-none flex-col gap-2 p-0"):
                for worker in queue.workers:
                    with ui.element("li").classes("flex flex-wrap items-baseline gap-x-4 gap-y-1"):
                        text("span", worker.identity, f"font-mono text-sm break-all {STRONG}")
                        if worker.since:
                            since = f"since {clock(worker.since)}, {age(now - worker.since)}"
                            quiet(since)
                        if worker.version:
                            quiet(f"version {worker.version}")
                        quiet(f"last poll {seen(worker, now=now)}")


async def read_queues(client: Client) -> list[Queue]:
    """Read the queues of open tasks and of worker processes.

    Raises:
        ConnectError: The server could not be reached.
    """
    tasks: dict[str, list[str]] = {}
    agents: dict[str, set[str]] = {}
    with server_errors():
        async for found in client.list_workflows(OPEN_TASKS, page_size=500, limit=MOST_TASKS):
            tasks.setdefault(found.task_queue, []).append(found.id)
            agents.setdefault(found.task_queue, set()).add(agent_of(found.raw_info))
        async for found in client.list_workflows(TASKS, page_size=NEWEST, limit=NEWEST):
            agents.setdefault(found.task_queue, set()).add(agent_of(found.raw_info))
    known = await _workers(client)
    queues = [*dict.fromkeys([*tasks, *(queue for queue, _ in known)])]
    pollers = await asyncio.gather(*(_pollers(client, queue, known) for queue in queues))
    served = dict(zip(queues, pollers, strict=True))
    polled = {queue: found for queue, found in served.items() if found}
    return queues_of(tasks, polled, agents)


async def _workers(client: Client) -> dict[tuple[str, str], Worker]:
    """Return what worker processes say of themselves, by queue and identity."""
    return {
        (each.task_queue, each.worker_identity): Worker(
            identity=each.worker_identity,
            since=each.start_time.ToDatetime(tzinfo=UTC).timestamp(),
            version=each.deployment_version.build_id,
        )
        for each in await known_workers(client)
    }


async def _pollers(
    client: Client, queue: str, known: dict[tuple[str, str], Worker]
) -> tuple[Worker, ...]:
    """Return who has polled a queue a moment ago."""
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    with server_errors():
        found = await client.workflow_service.describe_task_queue(asked, timeout=_SECONDS)
    oldest = time.time() - POLLER_SECONDS
    return tuple(
        Worker(
            identity=each.identity,
            seen=at,
            since=told.since if told else 0.0,
            version=told.version if told else "",
        )
        for each in found.pollers
        if (at := each.last_access_time.ToDatetime(tzinfo=UTC).timestamp()) >= oldest
        for told in (known.get((queue, each.identity)),)
    )
