"""The embedded engine: a dev server, and workers that run in this process.

What starts and finds servers is imported where it is used: it needs the extra `local`, which
clients and worker processes of a cluster do without.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.activities.notices import Notifier, checked_notifiers
from holdfast.agents.agent import Agent
from holdfast.agents.runs.teams import check_agents, reachable
from holdfast.archive.archive import Archive
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.search_attributes import OPEN_TASKS, is_
from holdfast.errors import ConnectError, InvalidArgumentError
from holdfast.models.prices import Prices
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.worker_host import Host, Workers
from holdfast.serving.worker_process import App, serving_worker, session_worker
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import Described
from holdfast.values.checks.ids import DEFAULT_APP, queue_of
from holdfast.values.code.code_refs import kept
from holdfast.values.text.logs import log

if TYPE_CHECKING:
    from holdfast.archive import Keys
    from holdfast.serving.activities import Activities
    from holdfast.serving.governor.providers import Limited

GRACE = timedelta(seconds=10)
_NOT_STARTED = "The engine is not started."

MOST_LENT = 16
"""Agents that came with runs and keep a worker though they have nothing to do."""

IDLE_SECONDS = 5.0
"""How long an agent is not idle after it was used: its new task may not be listed yet."""


async def running_server(data_dir: Path, keys: Keys | None = None) -> tuple[Client, Archive]:
    """Reach the server that runs in a data directory, for a process that serves no agents.

    Raises:
        ConnectError: None does.
        ServerStartError: The extra `local` is not installed.
    """
    from holdfast.engine.dev_server.server import find_server

    server = find_server(data_dir)
    if server is None:
        raise ConnectError(
            f"No server is running in {str(data_dir)!r}. AgentRunner.local(..., data_dir=...) and"
            " `holdfast worker my_module:agents --data-dir ...` start one."
        )
    archive = Archive(data_dir / "archive", keys=keys)
    client = await connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)])
    await check_archive(client, archive)
    return client, archive


@dataclass
class _Served:
    """A queue that is served.

    Attributes:
        place: The server and the queue.
        is_made: Whether the engine was made with its agents, and not lent them by runs.
        activities: Its activities, with the agents.
        workers: Its worker.
        used: When a run last wanted it, by the monotonic clock.
        note: What tells other processes that this one serves the queue.
    """

    place: tuple[object, str]
    is_made: bool
    activities: Activities
    workers: Workers
    used: float
    note: ExitStack

    def agree(self) -> None:
        """Have all engines of this process that serve the queue answer with the same code.

        It is the code of the engine that was started last, among engines that were made with its
        agents: in a notebook, a cell that is run again makes an engine, and leaves the one before
        it running.
        """
        same = [each for each in _all if each.place == self.place]
        newest = ([each for each in same if each.is_made] or [self])[-1]
        for each in same:
            if each.activities is not newest.activities:
                each.activities.follow(newest.activities)


_all: list[_Served] = []
"""Those of all engines of this process, the newest last."""


class LocalEngine:
    """A dev server, an archive, and workers on threads and event loops of their own.

    The workers have their own loop because a blocking call in the caller's loop would stop their
    heartbeats, and a call whose worker shows no sign of life counts as lost. AgentWorkers have
    another one, for the same reason, and so have tools whose caller has no loop that runs.
    """

    def __init__(
        self,
        data_dir: Path | None,
        *,
        prices: Prices | None = None,
        notify: Iterable[Notifier] | None = None,
        keys: Keys | None = None,
        providers: Iterable[Limited] | None = None,
    ) -> None:
        """Set up an engine.

        Args:
            data_dir: Directory of database and archive; None for memory.
            prices: What models cost; the prices that `HOLDFAST_PRICES` names by default.
            notify: What notifies people of approvals; what `HOLDFAST_NOTIFY` names by default.
            keys: What encrypts the history and the archive; the keys that `HOLDFAST_KEYS` names by
                default.
            providers: Limits of model providers and budgets of tenants; `HOLDFAST_PROVIDERS` names
                the file by default.

        Raises:
            InvalidArgumentError: One of these is not a notifier, or cannot be used.
        """
        self.data_dir = data_dir
        self._prices = prices
        self._keys = keys
        self._providers = None if providers is None else tuple(providers)
        self._notifiers = checked_notifiers(notify)
        self.server: ServerInfo | None = None
        self._agents: dict[str, dict[str, Agent]] = {}
        self._lent: dict[str, set[str]] = {}
        self._kept: set[str] = set()
        self._serving: dict[str, _Served] = {}
        self._client: Client | None = None
        self._resources = AsyncExitStack()
        self._host: Host | None = None
        self._archive: Archive | None = None
        self._lock = asyncio.Lock()

    def add(self, app: str, agents: Iterable[Agent]) -> None:
        """Serve these agents, and those they hand over to, once the engine is started.

        Raises:
            UserError: Two of them have one name, or an `output_type` has no schema.
        """
        given = tuple(agents)
        check_agents(reachable(given), "error")
        served = self._agents.setdefault(app, {})
        served.update({other.name: other for agent in given for other in agent.team()})
        served.update({agent.name: agent for agent in given})

    def require(self, app: str, agent: str) -> None:
        """Check that an agent is served here.

        Raises:
            InvalidArgumentError: It is not.
        """
        own = self._agents.get(app, {})
        known = {*own, *self._lent.get(app, ())}
        if app != DEFAULT_APP:  # one queue for all: it has the tasks of the agents of tools, too
            known |= {each.name for each in reachable(own.values())}
        if agent not in known:
            msg = f"No agent {agent!r} here; this runner serves: {', '.join(sorted(known))}."
            raise InvalidArgumentError(msg)

    async def ensure(self, app: str, agent: Agent) -> None:
        """Serve the agent of a run while the engine runs.

        In the default app an agent that the engine was not made with has a registry of its own:
        agents of other runs with the names of its team do not belong to it.

        Raises:
            UserError: A different agent of this name was given to `add`.
        """
        async with self._lock:
            queue = queue_of(app, agent.name)
            known = self._serving.get(queue)
            activities = self._activities(()) if known is None else known.activities
            activities.registry.lend(agent)
            if known is None:
                await self._serve(queue, activities)
            if app == DEFAULT_APP:
                await self._serve_sessions()
            served = self._serving[queue] = self._serving.pop(queue)  # the newest
            served.used = time.monotonic()
            self._lent.setdefault(app, set()).add(agent.name)
            served.agree()
            await self._stop_idle()
        if replaced := activities.registry.replaced:
            runs: list[Agent] = [each for each in kept() if isinstance(each, Agent)]
            used = {key for each in runs for key in connected_by(reachable([each]))}
            left = {key: each for key, each in connected_by(replaced).items() if key not in used}
            used |= {key for key, each in left.items() if each.is_busy}
            replaced[:] = [each for each in replaced if connected_by([each]).keys() & used]
            await self._end({key: each for key, each in left.items() if key not in used})

    def serves(self, app: str, agent: str) -> bool:
        """Whether a worker serves an agent."""
        return queue_of(app, agent) in self._serving

    def client_of(self, queue: str) -> Client | None:
        """Return the client of the worker that serves a queue, if there is one.

        It alone can begin a task of the queue in the reply to its start. Each worker has a client
        of its own: Temporal's SDK refuses a second worker of the same queue on one, as that of a
        program, or while the one before stops.
        """
        served = self._serving.get(queue)
        return None if served is None else served.workers.client

    def polls(self, queue: str) -> bool:
        """Whether a worker takes tasks from a queue."""
        return queue in self._serving

    async def described(self, app: str, head: TaskHead) -> Described | None:
        """Return what a new task must know of its agent, as far as this process can say it."""
        served = self._serving.get(queue_of(app, head.agent))
        return None if served is None else await served.activities.describe(head)

    async def _stop_idle(self) -> None:
        """Stop the workers of agents that have not been used for longest, and have no open task.

        Each agent that a Runner starts has a queue: a program may make any number of them. A worker
        that is stopped is started again when its agent is used.
        """
        lent = [queue for queue in self._serving if queue not in self._kept]
        for queue in lent[: max(len(lent) - MOST_LENT, 0)]:
            served = self._serving[queue]
            if time.monotonic() - served.used < IDLE_SECONDS or await self._has_tasks(served):
                continue
            del self._serving[queue]
            self._let_go(queue)
            await self._stop(served)

    async def _has_tasks(self, served: _Served) -> bool:
        """Whether a queue has open tasks; true as well while the server cannot be asked."""
        query = f"{OPEN_TASKS}{is_('TaskQueue', *served.workers.queues)}"
        try:
            return self._client is None or (await self._client.count_workflows(query)).count > 0
        except RPCError:
            log.warning("Open tasks could not be counted by %r", query, exc_info=True)
            return True

    async def _stop(self, served: _Served) -> None:
        served.note.close()
        if self._host is not None:
            await self._host.stop(served.workers, GRACE)
        await self._end(connected_by(served.activities.registry.agents))

    async def _end(self, servers: Mapping[int, Any]) -> None:
        """End the connections that tasks have opened to servers which no agent here has."""
        used = {key for each in _all for key in connected_by(each.activities.registry.agents)}
        await asyncio.gather(*(each.let_go() for key, each in servers.items() if key not in used))

    def _let_go(self, queue: str) -> None:
        """Forget the agent of a queue whose worker was stopped."""
        for app, names in self._lent.items():
            names -= {name for name in names if queue_of(app, name) == queue}

    async def _stop_all(self) -> None:
        """Stop all workers at once: one that does not stop costs the others no time."""
        serving, self._serving = self._serving, {}
        self._lent.clear()
        await asyncio.gather(*map(self._stop, serving.values()))

    async def __aenter__(self) -> tuple[Client, Archive]:
        """Start the server, then the workers; return a client for the caller's loop."""
        from holdfast.engine.dev_server.ephemeral import ephemeral_server
        from holdfast.engine.dev_server.leases import leased_server

        async with AsyncExitStack() as stack:
            self._resources = stack
            if self.data_dir is None:
                ephemeral = await stack.enter_async_context(await ephemeral_server())
                self.server = ephemeral.info
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-")))
            else:
                self.server = await stack.enter_async_context(leased_server(self.data_dir))
                directory = self.data_dir
            self._archive = archive = Archive(directory / "archive", keys=self._keys)
            client = await connect_embedded(self.server, plugins=[HoldfastPlugin(archive=archive)])
            await check_archive(client, archive)
            self._host = Host()
            stack.push_async_callback(self._host.close)
            stack.push_async_callback(self._stop_all)
            self._client = client
            for app in self._agents:
                await self._serve_app(app)
            self._resources = stack.pop_all()
        return client, archive

    async def _serve_app(self, app: str) -> None:
        """Start the workers of the agents that the engine was made with."""
        agents = tuple(self._agents[app].values())
        activities = self._activities(agents)
        for queue in App(name=app, agents=agents).queues:
            self._kept.add(queue)
            await self._serve(queue, activities)
            self._serving[queue].agree()
        if app == DEFAULT_APP:
            await self._serve_sessions()

    async def _serve_sessions(self) -> None:
        """Start the worker of the default app's sessions, once."""
        queue = queue_of(DEFAULT_APP)
        self._kept.add(queue)
        if queue not in self._serving:
            await self._serve(queue, self._activities(()))

    def _activities(self, agents: tuple[Agent, ...]) -> Activities:
        """Make the activities of agents.

        Raises:
            InvalidArgumentError: The engine is not started.
        """
        if self._host is None or self._archive is None:
            raise InvalidArgumentError(_NOT_STARTED)
        from holdfast.serving.activities import Activities

        return Activities(
            agents,
            self._archive,
            self._host.tools,
            prices=self._prices,
            notify=self._notifiers,
            providers=self._providers,
        )

    async def _serve(self, queue: str, activities: Activities) -> None:
        """Start the worker of a queue."""
        from holdfast.engine.dev_server.leases import serving

        host, server, archive = self._host, self.server, self._archive
        if host is None or server is None or archive is None:
            raise InvalidArgumentError(_NOT_STARTED)

        async def make(host: Host) -> Workers:
            client = await connect_embedded(server, plugins=[HoldfastPlugin(archive=archive)])
            options = {"graceful_shutdown_timeout": GRACE, "workflow_task_executor": host.workflows}
            if queue == queue_of(DEFAULT_APP):
                return Workers([session_worker(client, activities, **options)])
            return Workers([serving_worker(client, activities, queue=queue, **options)])

        workers = await host.start(make)
        note = ExitStack()
        if self.data_dir is not None and queue != queue_of(DEFAULT_APP):
            note.enter_context(serving(self.data_dir, queue))
        place = (server.data_dir or server, queue)
        served = _Served(place, queue in self._kept, activities, workers, time.monotonic(), note)
        _all.append(served)
        note.callback(_all.remove, served)
        self._serving[queue] = served

    async def __aexit__(self, *_: object) -> None:
        """Stop the workers, then the server unless another engine of this process uses it."""
        await self._resources.aclose()


def connected_by(agents: Iterable[Agent]) -> dict[int, Any]:
    """Return the MCP servers of agents that keep a connection, by their identity."""
    return {id(s): s for agent in agents for s in agent.mcp_servers if hasattr(s, "let_go")}
