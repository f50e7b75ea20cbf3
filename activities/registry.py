"""The agents of a worker process, by name, and the snapshots that running tasks began with."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.agent import Agent
from holdfast.agent_snapshot import AgentSnapshot
from holdfast.archive import Archive
from holdfast.errors import AgentNotFoundError, NotFoundError, UserError
from holdfast.models import resolve_model
from holdfast.models.base import Model


class Registry:
    """Agents that this process can run."""

    def __init__(self, agents: Iterable[Agent], archive: Archive) -> None:
        """Register agents.

        Raises:
            UserError: Two different agents have one name.
        """
        self._archive = archive
        self._agents: dict[str, Agent] = {}
        self._snapshots: dict[str, AgentSnapshot] = {}
        for agent in agents:
            self.add(agent)

    def add(self, agent: Agent) -> None:
        """Register an agent; an equal one of the same name takes the earlier one's place.

        Raises:
            UserError: A different agent has this name.
        """
        known = self._agents.get(agent.name)
        if known is not None and known is not agent and live(known) != live(agent):
            msg = (
                f"Two different agents are named {agent.name!r} in this process. A name is an"
                " agent's identity for its tasks: rename one of them."
            )
            raise UserError(msg)
        self._agents[agent.name] = agent

    @property
    def names(self) -> list[str]:
        """Names of the agents, sorted."""
        return sorted(self._agents)

    def agent(self, name: str) -> Agent:
        """Return the agent of this name.

        Raises:
            AgentNotFoundError: This process has none.
        """
        found = self._agents.get(name)
        if found is None:
            msg = (
                f"The task wants agent {name!r}, but this worker process serves:"
                f" {', '.join(self.names) or 'none'}. The task waits, nothing is lost. Pass the"
                " agent to the worker process and restart it."
            )
            raise AgentNotFoundError(msg)
        return found

    async def publish(self, name: str) -> AgentSnapshot:
        """Put the agent's snapshot into the archive and return it."""
        snapshot = live(self.agent(name))
        if snapshot.digest not in self._snapshots:
            await self._archive.aput(snapshot.data)
            self._snapshots[snapshot.digest] = snapshot
        return snapshot

    async def snapshot(self, sha256: str) -> AgentSnapshot:
        """Return the snapshot of this digest, as it was when a task began with it."""
        known = self._snapshots.get(sha256)
        if known is None:
            known = AgentSnapshot.model_validate_json(await self._archive.aget(sha256))
            self._snapshots[sha256] = known
        return known

    def model(self, agent: Agent, snapshot: AgentSnapshot, override: str) -> Model:
        """Return the model that answers for this agent in a task: the one it began with.

        Args:
            agent: The agent as it is now.
            snapshot: The agent as the task knows it.
            override: Model name that the task was created with, or empty.

        Raises:
            NotFoundError: The agent has another Model object now, and nobody can make the earlier
                one of its name alone.
        """
        if override:
            return resolve_model(override)
        now = resolve_model(agent.model)
        if now.name == snapshot.model:
            return now
        if agent.model is None or isinstance(agent.model, str):
            return resolve_model(_like(agent.model, snapshot.model))
        msg = (
            f"The task began with model {snapshot.model!r} of agent {agent.name!r}, but this worker"
            f" process has model {now.name!r} for it. The task waits, nothing is lost. Give agent"
            f" {agent.name!r} a model named {snapshot.model!r} again, restart the worker process"
            " and run the step again; or fork the task, which begins with the agent as it is now."
        )
        raise NotFoundError(msg)


def _like(setting: str | None, name: str) -> str:
    """Name a model for the API that a setting names: a snapshot keeps the provider's name only."""
    api, colon, _ = (setting or "").partition(":")
    return f"{api}:{name}" if colon and api in ("chat", "responses") else name


def live(agent: Agent) -> AgentSnapshot:
    """Describe an agent as it is now."""
    return agent.snapshot(resolve_model(agent.model).name)
