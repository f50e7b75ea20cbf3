"""The part of an agent that handoffs, tools and items of a run use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.errors import UserError
from holdfast.values.runs.run_context import ContextT


@dataclass
class AgentBase(Generic[ContextT]):
    """An agent's identity. Every agent is an `Agent`.

    Attributes:
        name: Identity of the agent within a worker process.
        handoff_description: Description of this agent for the models of other agents.
    """

    name: str
    handoff_description: str | None = None


AgentT = TypeVar("AgentT", bound=AgentBase[Any])


def walk(
    agents: Iterable[AgentT], following: Callable[[AgentT], list[AgentT]]
) -> tuple[AgentT, ...]:
    """List agents and all agents that can be reached from them, each once, nearest first.

    A task refers to agents by name, so each needs a name of its own.

    Raises:
        UserError: Two agents have the same name.
    """
    found: dict[str, AgentT] = {}
    waiting = list(agents)
    for agent in waiting:  # grows while it is walked
        known = found.setdefault(agent.name, agent)
        if known is not agent:
            msg = (
                f"Two agents are named {agent.name!r}. A task knows its agents by their names: it"
                " could hand over to the wrong one. Rename one of them, or use the same Agent"
                " object in both places."
            )
            raise UserError(msg)
        new = [each for each in following(agent) if found.get(each.name) is not each]
        waiting += [each for each in new if all(each is not other for other in waiting)]
    return tuple(found.values())
