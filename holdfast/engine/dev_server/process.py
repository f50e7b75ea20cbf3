"""Server processes by pid and start time, so that a reused pid is not mistaken for the old one.

Also free ports of this machine, and the wait until a server is ready.
"""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
    UpdateNamespaceRequest,
)
from temporalio.service import ConnectConfig, RPCError, ServiceClient, WorkflowService

from holdfast.engine.runtime import forked, set_runtime
from holdfast.values.code.extras import needing_local

with needing_local():
    import psutil

POLL_SECONDS = 0.05
CLOCK_SLACK_SECONDS = 2.0
"""Tolerance for start times: psutil derives them from the boot time, which moves when the clock is
corrected."""

STOP_SECONDS = 10.0
"""Grace between SIGTERM and SIGKILL; a graceful stop of the server takes 1.1 s."""

PORTS = range(17_233, 27_233)
"""Below every system's range for outgoing connections. Inside that range a client that keeps
reconnecting to a stopped server can be given the server's own port as its source port (TCP
simultaneous open), and the restarted server then finds its port taken."""

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Children of this process. A child that has ended stays a zombie until its parent reaps it."""


def adopt_child(child: subprocess.Popen[bytes]) -> None:
    """Remember a child, so that `is_alive` also reaps it."""
    _children[child.pid] = child


def start_time(pid: int) -> float | None:
    """Return when this process started (seconds since the epoch), or None when it is not alive."""
    if (child := _children.get(pid)) is not None and child.poll() is not None:
        del _children[pid]
    try:
        process = psutil.Process(pid)
        # A killed process with many threads is a zombie at once, but holds its port and its files
        # until the last thread has ended.
        if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
            return None
        return process.create_time()
    except psutil.Error:
        return None


def is_alive(pid: int, started: float) -> bool:
    """Whether the process with this pid is alive, and is the one that started at `started`."""
    now = start_time(pid)
    return now is not None and abs(now - started) < CLOCK_SLACK_SECONDS


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children, oldest first; none when it is not alive."""
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


@dataclass(frozen=True)
class Found:
    """A process found by its working directory.

    Attributes:
        pid: Process id.
        command: Command line.
        is_deleted: Whether its directory was deleted, and another one has that name now.
    """

    pid: int
    command: list[str]
    is_deleted: bool


def processes_in(directory: Path) -> Iterator[Found]:
    """Yield the processes whose working directory this is, or was when it had this name."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            command = process.cmdline()
            # For a directory that was deleted, psutil returns its former name.
            if command and Path(process.cwd()).samefile(directory):
                real = Path(f"/proc/{process.pid}/cwd")
                is_deleted = real.exists() and not real.samefile(directory)
                yield Found(process.pid, command, is_deleted)


async def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; return whether it came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


async def end_process(pid: int, started: float, *, grace: float = STOP_SECONDS) -> bool:
    """End a process: SIGTERM, and SIGKILL when it is still alive after `grace` seconds.

    Returns:
        False when no such process was alive; another process that reuses the pid is left alone.
    """
    if not is_alive(pid, started):
        return False
    with suppress(psutil.Error):
        psutil.Process(pid).terminate()
    if not await wait_until(lambda: not is_alive(pid, started), grace):
        with suppress(psutil.Error):
            psutil.Process(pid).kill()
        # A killed process holds its port and files until its threads have ended, however short
        # the grace was.
        await wait_until(lambda: not is_alive(pid, started), STOP_SECONDS)
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Go's servers do, so that closing connections of a killed server do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
        return True


def free_port(*, preferred: int | None = None, taken: tuple[int, ...] = ()) -> int:
    """Choose a free port: `preferred` when it is free, else a random one of `PORTS`.

    Raises:
        OSError: No free port was found.
    """
    if preferred is not None and preferred not in taken and is_free(preferred):
        return preferred
    # Random, because two servers started at the same time would both choose the lowest free port.
    for port in random.SystemRandom().sample(PORTS, 200):
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port found in {PORTS.start}..{PORTS.stop - 1} of 127.0.0.1")


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
        except AssertionError as error:
            raise forked(error) from error
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
