"""Wait until a Temporal server on this machine is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
    UpdateNamespaceRequest,
)
from temporalio.service import ConnectConfig, RPCError, ServiceClient, WorkflowService

from holdfast.engine.dev_server.process import POLL_SECONDS
from holdfast.engine.runtime import set_runtime

NAMESPACE = "default"
RETENTION = timedelta(days=3650)
"""How long closed tasks are kept: about forever, in place of the dev server's default of 24 h."""

_RPC_TIMEOUT = timedelta(seconds=5)


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Facts of a server that is ready.

    Attributes:
        version: Version of the Temporal server.
        is_retention_new: Whether its retention was raised just now, so that it may still apply the
            old one for some seconds.
    """

    version: str
    is_retention_new: bool


async def wait_ready(
    address: str, *, seconds: float, is_running: Callable[[], bool] = lambda: True
) -> Readiness | None:
    """Wait until the frontend answers and the default namespace is ready, with our retention.

    Args:
        address: host:port of the gRPC frontend.
        seconds: How long to wait.
        is_running: Called between attempts; the wait ends when the process has ended.

    Returns:
        Facts of the server, or None when it did not become ready in time.
    """
    set_runtime()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and is_running():
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.1)):
                client = await ServiceClient.connect(ConnectConfig(target_host=address))
                return await _prepare(client.workflow_service)
        # RuntimeError is how the SDK reports a refused connection.
        except (RPCError, RuntimeError, TimeoutError):
            await asyncio.sleep(POLL_SECONDS)
    return None


async def _prepare(service: WorkflowService) -> Readiness:
    """Raise the namespace's retention, if that was not done yet in this SQLite file."""
    found = await service.describe_namespace(
        DescribeNamespaceRequest(namespace=NAMESPACE), timeout=_RPC_TIMEOUT
    )
    is_new = found.config.workflow_execution_retention_ttl.ToTimedelta() != RETENTION
    if is_new:
        config = NamespaceConfig()
        config.workflow_execution_retention_ttl.FromTimedelta(RETENTION)
        await service.update_namespace(
            UpdateNamespaceRequest(namespace=NAMESPACE, config=config), timeout=_RPC_TIMEOUT
        )
    system = await service.get_system_info(GetSystemInfoRequest(), timeout=_RPC_TIMEOUT)
    return Readiness(version=system.server_version, is_retention_new=is_new)
