"""The embedded engine: a dev server, and worker processes' work done in this process.

What starts and finds servers is imported where it is used: it needs the extra `local`, which
clients and worker processes of a cluster do without.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from holdfast.agent import Agent, reachable
from holdfast.archive import Archive
from holdfast.client.names import check_archive
from holdfast.client.visibility import quoted
from holdfast.engine.connect import connect_embedded
from holdfast.engine.serverinfo import ServerInfo
from holdfast.errors import ConnectError, InvalidArgumentError
from holdfast.hosting import Host
from holdfast.logs import log
from holdfast.plugin import Activities, HoldfastPlugin
from holdfast.serve import serving_worker

GRACE = timedelta(seconds=10)

MOST_LENT = 16
"""Apps whose agents came with runs that keep a worker though they have nothing to do."""

IDLE_SECONDS = 5.0
"""How long an app is not idle after it was used: its new task may not be listed yet."""


async def running_server(data_dir: Path) -> tuple[Client, Archive]:
    """Reach the server that runs in a data directory, for a process that serves no agents.

    Raises:
        ConnectError: None does.
        ServerStartError: The extra `local` is not installed.
    """
    from holdfast.engine.server import find_server

    server = find_server(data_dir)
    if server is None:
        msg = (
            f"No server is running in {str(data_dir)!r}. AgentRunner.local(..., data_dir=...) and"
            " `holdfast worker my_module:agents --data-dir ...` start one."
        )
        raise ConnectError(msg)
    archive = Archive(data_dir / "archive")
    client = await connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)])
    await check_archive(client, archive)
    return client, archive


@dataclass
class _Served:
    """An app that is served.

    Attributes:
        activities: Its activities, with the agents.
        worker: Its worker.
        used: When a run last wanted it, by the monotonic clock.
    """

    activities: Activities
    worker: Worker
    used: float


class LocalEngine:
    """A dev server, an archive, and workers on threads and event loops of their own.

    The workers have their own loop because a blocking call in the caller's loop would stop their
    heartbeats, and a call whose worker shows no sign of life counts as lost. Tools and AgentWorkers
    have another one, for the same reason.
    """

    def __init__(self, data_dir: Path | None) -> None:
        """Set up an engine.

        Args:
            data_dir: Directory of database and archive; None for memory.
        """
        self.data_dir = data_dir
        self.server: ServerInfo | None = None
        self._agents: dict[str, dict[str, Agent]] = {}
        self._serving: dict[str, _Served] = {}
        self._client: Client | None = None
        self._resources = AsyncExitStack()
        self._host: Host | None = None
        self._archive: Archive | None = None
        self._lock = asyncio.Lock()

    def add(self, app: str, agents: Iterable[Agent]) -> None:
        """Serve these agents, and those they hand over to, once the engine is started.

        Raises:
            UserError: Two of them have one name.
        """
        given = tuple(agents)
        reachable(given)
        served = self._agents.setdefault(app, {})
        served.update({other.name: other for agent in given for other in agent.team()})
        served.update({agent.name: agent for agent in given})

    def require(self, app: str, agent: str) -> None:
        """Check that an agent is served here.

        Raises:
            InvalidArgumentError: It is not.
        """
        known = set(self._agents.get(app, {}))
        if app in self._serving:
            known.update(self._serving[app].activities.registry.names)
        if agent not in known:
            msg = f"No agent {agent!r} here; this runner serves: {', '.join(sorted(known))}."
            raise InvalidArgumentError(msg)

    async def ensure(self, app: str, agent: Agent) -> None:
        """Serve the agent of a run while the engine runs.

        Raises:
            UserError: A different agent of this name was given to `add`.
        """
        async with self._lock:
            if app not in self._serving:
                await self._serve(app)
            served = self._serving[app] = self._serving.pop(app)  # the newest
            served.used = time.monotonic()
            served.activities.registry.lend(agent)
            await self._stop_idle()

    def serves(self, app: str) -> bool:
        """Whether a worker serves an app."""
        return app in self._serving

    async def _stop_idle(self) -> None:
        """Stop the workers of apps that have not been used for longest, and have no open task.

        Each agent that a Runner starts is an app: a program may make any number of them. A worker
        that is stopped is started again when its app is used.
        """
        lent = [app for app in self._serving if app not in self._agents]
        for app in lent[: max(len(lent) - MOST_LENT, 0)]:
            served = self._serving[app]
            if time.monotonic() - served.used < IDLE_SECONDS or await self._has_tasks(served):
                continue
            del self._serving[app]
            await self._stop(served)

    async def _has_tasks(self, served: _Served) -> bool:
        """Whether an app has open tasks; so it counts, too, while that cannot be found out."""
        queue = quoted(served.worker.task_queue)
        wanted = f"TaskQueue = '{queue}' AND ExecutionStatus = 'Running'"
        query = f"{wanted} AND WorkflowType = 'AgentTask'"
        try:
            return self._client is None or (await self._client.count_workflows(query)).count > 0
        except RPCError:
            log.warning("Open tasks of %r could not be counted", queue, exc_info=True)
            return True

    async def _stop(self, served: _Served) -> None:
        if self._host is not None:
            await self._host.stop(served.worker, GRACE)

    async def _stop_all(self) -> None:
        """Stop all workers at once: one that does not stop costs the others no time."""
        serving, self._serving = self._serving, {}
        await asyncio.gather(*map(self._stop, serving.values()))

    async def __aenter__(self) -> tuple[Client, Archive]:
        """Start the server, then the workers; return a client for the caller's loop."""
        from holdfast.engine.ephemeral import ephemeral_server
        from holdfast.engine.leases import leased_server

        async with AsyncExitStack() as stack:
            self._resources = stack
            if self.data_dir is None:
                ephemeral = await stack.enter_async_context(await ephemeral_server())
                self.server = ephemeral.info
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-")))
            else:
                self.server = await stack.enter_async_context(leased_server(self.data_dir))
                directory = self.data_dir
            self._archive = archive = Archive(directory / "archive")
            client = await connect_embedded(self.server, plugins=[HoldfastPlugin(archive=archive)])
            await check_archive(client, archive)
            self._host = Host()
            stack.push_async_callback(self._host.close)
            stack.push_async_callback(self._stop_all)
            self._client = client
            for app in self._agents:
                await self._serve(app)
            self._resources = stack.pop_all()
        return client, archive

    async def _serve(self, app: str) -> None:
        """Start the worker of an app."""
        host, server, archive = self._host, self.server, self._archive
        if host is None or server is None or archive is None:
            msg = "The engine is not started."
            raise InvalidArgumentError(msg)
        activities = Activities(self._agents.get(app, {}).values(), archive, host.tools)

        async def make(host: Host) -> Worker:
            client = await connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)])
            return serving_worker(
                client,
                activities,
                app=app,
                graceful_shutdown_timeout=GRACE,
                workflow_task_executor=host.workflows,
            )

        worker = await host.start(make)
        self._serving[app] = _Served(activities, worker, time.monotonic())

    async def __aexit__(self, *_: object) -> None:
        """Stop the workers, then the server if nobody else uses it."""
        await self._resources.aclose()
