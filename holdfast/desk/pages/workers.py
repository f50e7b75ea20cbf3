"""The page of the workers: each process with its queues, and open tasks without a worker."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, timedelta
from functools import partial

from nicegui import ui
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerSlotsInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import (
    CARD,
    chip,
    copied,
    empty,
    facts,
    heading,
    link,
    moment,
    quiet,
    task_url,
    text,
)
from holdfast.desk.views.words import age, counted
from holdfast.desk.views.workers import Process, Queue, Worker, processes_of, queues_of, seen
from holdfast.engine.cluster import POLLER_SECONDS, known_workers
from holdfast.engine.search_attributes import OPEN_TASKS, TASKS
from holdfast.reading.listing import agent_of
from holdfast.reading.queries import server_errors

MOST_TASKS = 2_000
"""Open tasks that are looked at for their queues."""

NEWEST = 200
"""Newest tasks, also closed ones, that are looked at for their agents."""

_SECONDS = timedelta(seconds=3)


class Workers:
    """The worker processes in one browser."""

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
                if queue.is_unserved:
                    _draw_unserved(queue)
            for process in processes_of(found):
                _draw_process(process, now)


def _draw_unserved(queue: Queue) -> None:
    look = "ring-2 ring-rose-600 dark:ring-rose-500"
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3 {look}"):
        with ui.row().classes("w-full items-center gap-2"):
            heading(queue.serves).classes("min-w-0 break-words")
            chip(queue.words, "bad")
        quiet(_load(queue), "break-words")
        with ui.row().classes("gap-x-4 gap-y-1"):
            for task in queue.tasks:
                link(task, task_url(task), "text-sm break-all")


def _load(queue: Queue) -> str:
    names = f" of {', '.join(queue.agents)}" if queue.agents else ""
    return counted(queue.open_tasks, "open task") + names


def _draw_process(process: Process, now: float) -> None:
    newest = max(process.workers, key=lambda each: each.seen)
    since = min(each.since for each in process.workers)
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3"):
        with ui.row().classes("w-full items-center gap-2"):
            heading(process.name).classes("min-w-0 break-words")
            chip("serving", "good")
        facts(
            [
                ("Host", "" if newest.host else "known 10 s after its start"),
                ("Agents", process.agents),
                ("Started", partial(_draw_start, since, now) if since else ""),
                ("Build", newest.version),
                ("Busy", process.slots),
                ("Last poll", seen(newest, now=now)),
                *((queue.serves, _load(queue)) for queue in process.queues),
                ("Names", partial(_draw_names, process)),
            ]
        )


def _draw_start(since: float, now: float) -> None:
    moment(since)
    text("span", f", {age(now - since)} ago")


def _draw_names(process: Process) -> None:
    for name in dict.fromkeys(worker.identity for worker in process.workers):
        copied(name, "pr-2")


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
    found = await known_workers(client)
    told = (each.worker_heartbeat for each in found.workers_info)
    slots = {each.worker_instance_key: each.activity_task_slots_info for each in told}
    return {
        (each.task_queue, each.worker_identity): Worker(
            identity=each.worker_identity,
            since=each.start_time.ToDatetime(tzinfo=UTC).timestamp(),
            version=each.deployment_version.build_id,
            host=each.host_name,
            pid=each.process_id,
            busy=own.current_used_slots,
            slots=own.current_used_slots + own.current_available_slots,
        )
        for each in found.workers
        for own in (slots.get(each.worker_instance_key, WorkerSlotsInfo()),)
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
        replace(known.get((queue, each.identity), Worker(identity=each.identity)), seen=at)
        for each in found.pollers
        if (at := each.last_access_time.ToDatetime(tzinfo=UTC).timestamp()) >= oldest
    )
