"""The queues of open tasks, and who polls them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, timedelta

from temporalio.api.worker.v1 import WorkerSlotsInfo
from temporalio.client import Client

from holdfast.desk.views.workers import Queue, Worker, queues_of
from holdfast.engine.cluster import POLLER_SECONDS, known_workers, pollers_of
from holdfast.engine.search_attributes import OPEN_TASKS, TASKS
from holdfast.reading.listing import agent_of
from holdfast.reading.queries import server_errors

MOST_TASKS = 2_000
"""Open tasks that are looked at for their queues."""

NEWEST = 200
"""Newest tasks, also closed ones, that are looked at for their agents."""

_SECONDS = timedelta(seconds=3)


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
    with server_errors():
        found = await pollers_of(client, queue, _SECONDS)
    return tuple(
        replace(known.get((queue, each), Worker(identity=each)), seen=at)
        for each, at in found.items()
        if at >= time.time() - POLLER_SECONDS
    )
