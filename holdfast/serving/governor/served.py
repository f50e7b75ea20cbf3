"""Temporal workers of this process for the queues of governors and batches."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast.serving.whole_tasks import WholeTasksRunner
from holdfast.values.text.logs import log

AGAIN_SECONDS = 1.0
"""Pause before a worker that has failed begins again."""


def bare(client: Client) -> Client:
    """Return a client without plugins, which would have its workers run tasks as well."""
    return Client(
        client.service_client, namespace=client.namespace, data_converter=client.data_converter
    )


def worker_of(client: Client, queue: str, **served: Any) -> Worker:
    """Make a worker whose workflows are as safe from queries as those of tasks."""
    return Worker(
        client,
        task_queue=queue,
        max_concurrent_workflow_task_polls=2,
        unsandboxed_workflow_runner=WholeTasksRunner(),
        **served,
    )


async def serve(client: Client, queue: str, stop: asyncio.Event, **served: Any) -> None:
    """Serve a queue until it is to stop; a worker that has failed begins again."""
    while not stop.is_set():
        worker = worker_of(client, queue, **served)
        running, stopping = asyncio.create_task(worker.run()), asyncio.create_task(stop.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if running.done() and (error := running.exception()) is not None:
            log.error("The worker of %s has failed, and begins again: %s", queue, error)
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        await worker.shutdown()
        await running
