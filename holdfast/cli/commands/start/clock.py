"""How far the clock of this machine is from the server's."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

_QUEUE = "hf-doctor"
_POLL = timedelta(seconds=10)
"""Servers refuse a poll that is to end sooner than in 2 s."""

_SECONDS = timedelta(seconds=2)
_TIMES = 20
_PAUSE_SECONDS = 0.1


async def clock_difference(client: Client) -> float | None:
    """Return by how many seconds this machine's clock is ahead; None where it cannot be learned.

    The server has no call for its time. But it lists who polls a queue, with the time of the last
    poll by its own clock: so a queue that is used for nothing else is polled for a moment.
    """
    identity = f"doctor-{time.time_ns()}"
    begun = time.time()
    polling = asyncio.create_task(_poll(client, identity))
    try:
        for _ in range(_TIMES):
            polled = await _polled(client, identity)
            if polled is not None:
                return begun - polled
            await asyncio.sleep(_PAUSE_SECONDS)
    except RPCError:
        return None
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
    return None


async def _poll(client: Client, identity: str) -> None:
    with suppress(RPCError):  # then the server does not list it, and its time is not known
        await client.workflow_service.poll_workflow_task_queue(
            PollWorkflowTaskQueueRequest(
                namespace=client.namespace, task_queue=TaskQueue(name=_QUEUE), identity=identity
            ),
            timeout=_POLL,
        )


async def _polled(client: Client, identity: str) -> float | None:
    """Return when the server has seen this poller, in seconds since 1970."""
    found = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        ),
        timeout=_SECONDS,
    )
    for poller in found.pollers:
        if poller.identity == identity:
            return poller.last_access_time.ToNanoseconds() / 1e9
    return None
