"""The engine that a `Runner` uses: given, configured, a cluster, or the embedded one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.engine.loop import close_at_exit
from holdfast.errors import InvalidArgumentError
from holdfast.serving.embedded import LocalEngine
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import DEFAULT_APP

DEFAULT_DATA_DIR = ".holdfast"


class Engines:
    """The engines of this process. They live on the shared loop, whichever thread calls.

    One embedded engine serves all agents.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self._options: dict[str, str | None] = {}
        self.forget()

    def forget(self) -> None:
        """Begin without an engine: a forked process does not have that of its parent."""
        self._embedded: LocalEngine | None = None
        self._embedded_runner: AgentRunner | None = None
        self._runners: dict[str, AgentRunner] = {}
        self._lock: asyncio.Lock | None = None

    def configure(self, **options: str | None) -> None:
        """Choose the engine of all later runs."""
        if self._runners:
            msg = "configure must be called before the first run of this process."
            raise InvalidArgumentError(msg)
        self._options = options

    @property
    def directory(self) -> Path:
        """The data directory of the embedded engine, whether or not it is the one that is used."""
        given = self._options.get("data_dir") or os.environ.get("HOLDFAST_DATA_DIR")
        return Path(given or DEFAULT_DATA_DIR)

    async def handle(self, agent: Agent, **options: Any) -> AgentRunner:
        """Return a runner of its own for an agent. Call it on the shared loop.

        Args:
            agent: The agent.
            options: Options of the AgentRunner.
        """
        base = await self.runner(agent)
        return AgentRunner(
            agent=agent.name,
            app=None if base.app == DEFAULT_APP else base.app,
            engine=self._embedded,
            client=base.client,
            archive=base.archive,
            **options,
        )

    async def runner(self, agent: Agent) -> AgentRunner:
        """Return the runner for an agent. Call it on the shared loop."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            known = self._runners.get(agent.name)
            if known is None:
                known = self._runners[agent.name] = await self._make(agent)
        await known.ensure_agent(agent)
        engine = self._embedded
        if engine is not None:
            gone = [
                name for name, each in self._runners.items() if not engine.serves(each.app, name)
            ]
            for name in gone:
                del self._runners[name]
        return known

    async def _make(self, agent: Agent) -> AgentRunner:
        address = self._options.get("address") or os.environ.get("TEMPORAL_ADDRESS")
        if address and not self._options.get("data_dir"):
            return await AgentRunner.connect(
                address,
                agent=agent.name,
                app=os.environ.get("HOLDFAST_APP") or None,
                namespace=self._options.get("namespace"),
                archive=self._options.get("archive"),
                api_key=self._options.get("api_key"),
            )
        if self._embedded is None:
            engine = LocalEngine(self.directory)
            first = AgentRunner(agent=agent.name, engine=engine)
            await first.start()
            self._embedded, self._embedded_runner = engine, first
            close_at_exit(self.close)
            return first
        return await self._share(agent)

    async def _share(self, agent: Agent) -> AgentRunner:
        """Make a runner for one more agent of the embedded engine."""
        first = self._embedded_runner
        if first is None:
            raise RuntimeError("the embedded engine is started with its first runner")
        return AgentRunner(
            agent=agent.name, engine=self._embedded, client=first.client, archive=first.archive
        )

    async def close(self) -> None:
        """Stop the embedded engine when the process ends; its tasks stay."""
        runner, self._embedded_runner = self._embedded_runner, None
        self._runners.clear()
        self._embedded = None
        if runner is not None:
            await runner.close()


engines = Engines()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=engines.forget)


def configure(
    *,
    address: str | None = None,
    namespace: str | None = None,
    archive: str | None = None,
    api_key: str | None = None,
    data_dir: str | Path | None = None,
) -> None:
    """Choose the engine of every `Runner` call of this process that is given none.

    Args:
        address: host:port of a cluster, instead of `TEMPORAL_ADDRESS`.
        namespace: Temporal namespace.
        archive: URL of the archive, instead of `HOLDFAST_ARCHIVE`.
        api_key: API key of Temporal Cloud.
        data_dir: Directory of the embedded engine, instead of a cluster.

    Raises:
        InvalidArgumentError: A run has been made already, or one of these is of another type.
    """
    check_arguments(
        configure,
        address=address,
        namespace=namespace,
        archive=archive,
        api_key=api_key,
        data_dir=data_dir,
    )
    engines.configure(
        address=address,
        namespace=namespace,
        archive=archive,
        api_key=api_key,
        data_dir=None if data_dir is None else str(data_dir),
    )
