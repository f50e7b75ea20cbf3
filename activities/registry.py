"""The agents of a worker process, by name, and the snapshots that running tasks began with."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.agent import Agent
from holdfast.agent_snapshot import AgentSnapshot
from holdfast.archive import Archive
from holdfast.errors import AgentNotFoundError, UserError
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

    def model(self, agent: Agent, override: str) -> Model:
        """Return the model that answers for this agent."""
        return resolve_model(override or agent.model)


def live(agent: Agent) -> AgentSnapshot:
    """Describe an agent as it is now."""
    return agent.snapshot(resolve_model(agent.model).name)
