"""The embedded engine: a dev server, and worker processes' work done in this process.

What starts and finds servers is imported where it is used: it needs the extra `local`, which
clients and worker processes of a cluster do without.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast.agent import Agent, reachable
from holdfast.archive import Archive
from holdfast.client.names import check_archive
from holdfast.engine.connect import connect_embedded
from holdfast.engine.loop import LoopThread
from holdfast.engine.serverinfo import ServerInfo
from holdfast.errors import ConnectError, InvalidArgumentError
from holdfast.ids import DEFAULT_APP, queue_of
from holdfast.models import close_models
from holdfast.plugin import Activities, HoldfastPlugin
from holdfast.serve import App, serving_worker, session_worker

GRACE = timedelta(seconds=10)
_NOT_STARTED = "The engine is not started."


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


class LocalEngine:
    """A dev server, an archive, and workers on a thread and event loop of their own.

    The workers have their own loop because a blocking call in the caller's loop would stop their
    heartbeats, and a call whose worker shows no sign of life counts as lost.
    """

    def __init__(self, data_dir: Path | None) -> None:
        """Set up an engine.

        Args:
            data_dir: Directory of database and archive; None for memory.
        """
        self.data_dir = data_dir
        self.server: ServerInfo | None = None
        self._agents: dict[str, dict[str, Agent]] = {}
        self._lent: dict[str, set[str]] = {}
        self._serving: dict[str, Activities] = {}
        self._resources = AsyncExitStack()
        self._loop: LoopThread | None = None
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
        known = {*self._agents.get(app, {}), *self._lent.get(app, ())}
        if agent not in known:
            msg = f"No agent {agent!r} here; this runner serves: {', '.join(sorted(known))}."
            raise InvalidArgumentError(msg)

    async def ensure(self, app: str, agent: Agent) -> None:
        """Serve the agent of a run while the engine runs.

        In the default app an agent that the engine was not made with has a registry of its own:
        agents of other runs that its team shares names with are none of its own.

        Raises:
            UserError: A different agent of this name was given to `add`.
        """
        async with self._lock:
            queue = queue_of(app, agent.name)
            known = self._serving.get(queue)
            activities = known or Activities((), self._store)
            activities.registry.lend(agent)
            if known is None:
                await self._serve(queue, activities)
            if app == DEFAULT_APP:
                await self._serve_sessions()
            self._lent.setdefault(app, set()).add(agent.name)

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
            self._loop = LoopThread()
            stack.callback(self._loop.close)
            for app in self._agents:
                await self._serve_app(app)
            self._resources = stack.pop_all()
        return client, archive

    async def _serve_app(self, app: str) -> None:
        """Start the workers of the agents that the engine was made with."""
        agents = tuple(self._agents[app].values())
        activities = Activities(agents, self._store)
        for queue in App(name=app, agents=agents).queues:
            await self._serve(queue, activities)
        if app == DEFAULT_APP:
            await self._serve_sessions()

    async def _serve_sessions(self) -> None:
        """Start the worker of the default app's sessions, once."""
        queue = queue_of(DEFAULT_APP)
        if queue not in self._serving:
            await self._serve(queue, Activities((), self._store))

    async def _serve(self, queue: str, activities: Activities) -> None:
        """Start the worker of a queue on the engine's loop."""
        loop, server, archive = self._loop, self.server, self._store
        if loop is None or server is None:
            raise InvalidArgumentError(_NOT_STARTED)

        async def start() -> Worker:
            client = await connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)])
            if queue == queue_of(DEFAULT_APP):
                worker = session_worker(client, activities, graceful_shutdown_timeout=GRACE)
            else:
                worker = serving_worker(
                    client, activities, queue=queue, graceful_shutdown_timeout=GRACE
                )
            await worker.__aenter__()
            return worker

        async def stop() -> None:
            await loop.wrap(worker.shutdown())
            await loop.wrap(close_models())

        worker = await loop.wrap(start())
        self._resources.push_async_callback(stop)
        self._serving[queue] = activities

    @property
    def _store(self) -> Archive:
        if self._archive is None:
            raise InvalidArgumentError(_NOT_STARTED)
        return self._archive

    async def __aexit__(self, *_: object) -> None:
        """Stop the workers, then the server if nobody else uses it."""
        await self._resources.aclose()
        self._serving.clear()
        self._lent.clear()
