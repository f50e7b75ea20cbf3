"""Search attributes of a Temporal namespace, and the workers that poll a task queue."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    ListWorkersRequest,
    ListWorkersResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.engine.search_attributes import SEARCH_ATTRIBUTES
from holdfast.errors import ConnectError

POLLER_SECONDS = 70.0
"""Most age of a live poller's last access: that is the start of its long poll of up to 60 s."""

VISIBLE_SECONDS = 60.0
"""How long to wait for added search attributes: frontends cache their list for about 30 s."""

_PROBE = " AND ".join(
    f"{name} = '-'" if kind == "Keyword" else f"{name} = 0"
    for name, kind in SEARCH_ATTRIBUTES.items()
)
_RPC_TIMEOUT = timedelta(seconds=10)
_POLLERS_TIMEOUT = timedelta(seconds=3)
_POLLERS_ATTEMPTS = 4
"""Most requests for a queue's pollers: while a server loads the queue, a request may time out, and
the next one is answered at once."""

_UNANSWERED = {RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED}
_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
}


async def ensure_search_attributes(client: Client) -> None:
    """Add Holdfast's search attributes to the namespace, if they are missing.

    A query checks for them first, because it needs no operator's rights.

    Raises:
        ConnectError: The cluster refuses, or has one of them with another type; the text has the
            commands that an operator can run.
    """
    if await are_usable(client):
        return
    try:
        found = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=_RPC_TIMEOUT
        )
        for name, kind in SEARCH_ATTRIBUTES.items():
            known = found.custom_attributes.get(name)
            if known is None:
                await _add(client, name, kind)
            elif known != _TYPES[kind]:
                raise ConnectError(
                    f"Namespace {client.namespace!r} has a search attribute {name!r} that is not"
                    f" of type {kind}. Remove it, or use another namespace."
                )
    except RPCError as error:
        raise ConnectError(_refused(client, error)) from error
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not await are_usable(client):
        if time.monotonic() >= deadline:
            raise ConnectError(
                f"The search attributes were added to namespace {client.namespace!r}, but the"
                f" cluster does not know them after {VISIBLE_SECONDS:.0f} s. Try again later."
            )
        await asyncio.sleep(0.2)


async def are_usable(client: Client) -> bool:
    """Whether the cluster accepts a query that names all of Holdfast's search attributes."""
    try:
        await client.count_workflows(_PROBE, rpc_timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.INVALID_ARGUMENT:
            return False
        raise ConnectError(_failed(client, error)) from error
    return True


async def _add(client: Client, name: str, kind: str) -> None:
    """Add one search attribute, unless another process has added it meanwhile."""
    request = AddSearchAttributesRequest(namespace=client.namespace)
    request.search_attributes[name] = _TYPES[kind]
    try:
        await client.operator_service.add_search_attributes(request, timeout=_RPC_TIMEOUT)
    except RPCError as error:
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            raise


def _refused(client: Client, error: RPCError) -> str:
    """Make the error text with the commands for an operator."""
    commands = "\n".join(
        f"  temporal operator search-attribute create --namespace {client.namespace}"
        f" --name {name} --type {kind}"
        for name, kind in SEARCH_ATTRIBUTES.items()
    )
    return (
        f"Namespace {client.namespace!r} lacks Holdfast's search attributes and the cluster does"
        f" not let us add them ({error.status.name}: {error.message}). Ask an operator to run:\n"
        f"{commands}\nOn Temporal Cloud, add them in the namespace's settings."
    )


def _failed(client: Client, error: RPCError) -> str:
    """Make the error text for any other failed call."""
    return (
        f"The Temporal server did not answer for namespace {client.namespace!r}:"
        f" {error.status.name}: {error.message}. Check that it runs, then try again."
    )


async def known_workers(client: Client) -> ListWorkersResponse:
    """List the workers that have reported to the server; empty if the server keeps no list."""
    asked = ListWorkersRequest(namespace=client.namespace, page_size=500)
    try:
        return await client.workflow_service.list_workers(asked, timeout=_POLLERS_TIMEOUT)
    except RPCError:
        return ListWorkersResponse()


async def has_workers(client: Client, queue: str) -> bool:
    """Whether a worker process polls this task queue for workflow tasks.

    True may be up to 70 s out of date: the server lists a poller for 5 minutes after its last poll,
    and does not distinguish a worker in a long poll of 60 s from one that was killed. Pollers with
    an older access do not count. False is current.

    Raises:
        ConnectError: The server did not answer.
    """
    for attempt in range(1, _POLLERS_ATTEMPTS + 1):
        try:
            found = await pollers_of(client, queue, _POLLERS_TIMEOUT)
        except RPCError as error:
            if error.status not in _UNANSWERED or attempt == _POLLERS_ATTEMPTS:
                raise ConnectError(_failed(client, error)) from error
        else:
            return max(found.values(), default=0.0) >= time.time() - POLLER_SECONDS
    raise RuntimeError  # unreachable: the last attempt returns or raises


async def pollers_of(client: Client, queue: str, patience: timedelta) -> dict[str, float]:
    """Return who has polled a task queue for workflow tasks, and when last.

    Args:
        client: The client.
        queue: The queue.
        patience: How long the server may take.

    Returns:
        Identity to time by the server's clock, in seconds since the epoch.

    Raises:
        RPCError: The server did not answer.
    """
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    found = await client.workflow_service.describe_task_queue(asked, timeout=patience)
    seen = dict[str, float]()
    for each in found.pollers:
        at = each.last_access_time.ToNanoseconds() / 1e9
        seen[each.identity] = max(at, seen.get(each.identity, 0.0))
    return seen
