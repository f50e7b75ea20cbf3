"""A worker process beside the measuring one, and the memory of processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from holdfast import Agent, AgentRunner
from holdfast.engine.dev_server.server import find_server
from holdfast.errors import ConnectError
from holdfast.serving.worker_process import load_app

READY_SECONDS = 60.0


@asynccontextmanager
async def served(agents: str, directory: Path) -> AsyncGenerator[tuple[AgentRunner, int, int]]:
    """Start a worker process with an embedded server.

    Args:
        agents: The agents as `module:attribute`; the first is the default one.
        directory: The server's data directory.

    Yields:
        A runner in this process, and the process ids of worker and server.
    """
    command = [sys.executable, "-m", "holdfast", "worker", agents, "--data-dir", str(directory)]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        async with asyncio.timeout(READY_SECONDS):
            runner, server = await _connected(load_app(agents).agents[0], directory)
        async with runner:
            yield runner, process.pid, server
    finally:
        process.terminate()
        await process.wait()


async def _connected(agent: Agent, directory: Path) -> tuple[AgentRunner, int]:
    """Wait for the server; return a runner and the server's process id."""
    while True:
        server = find_server(directory)
        with suppress(ConnectError):  # it is not up yet
            runner = await AgentRunner.connect(data_dir=directory, agent=agent.name)
            if server is not None:
                return runner, server.pid
        await asyncio.sleep(0.05)


async def megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    command = ("ps", "-o", "rss=", "-p", str(pid))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return round(int(out) / 1024, 1)


async def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    command = ("ps", "-o", "cputimes=", "-p", str(pid))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return float(out)
