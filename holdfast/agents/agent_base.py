"""The part of an agent that handoffs, tools and items of a run use."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Generic, TypeVar

from holdfast.errors import UserError
from holdfast.values.runs.run_context import ContextT


@dataclass
class AgentBase(Generic[ContextT]):
    """An agent's identity. Every agent is an `Agent`.

    Attributes:
        name: Identity of the agent within a worker process.
        handoff_description: Description of this agent for the models of other agents.
        shared_name: The name that its author gave a member of a run which has two of that name.
    """

    name: str
    handoff_description: str | None = None
    shared_name: ClassVar[str] = ""


AgentT = TypeVar("AgentT", bound=AgentBase[Any])


def users_agent(agent: AgentT) -> AgentT:
    """Return the user's own object for a member of a run, see `members`; else the agent itself."""
    found: AgentT = getattr(agent, "__dict__", {}).get(_OWN, agent)
    return found


def as_member(agent: AgentT, name: str, *, shares: bool) -> AgentT:
    """Copy an agent for a run in which it has this name.

    Args:
        agent: The user's agent.
        name: The name.
        shares: Whether the name that the user gave it is that of another agent of the run as well.
    """
    made = copy.copy(agent)
    own = {"name": name, _OWN: agent, "shared_name": agent.name if shares else ""}
    vars(made).update(own)  # its fields were checked, and a name of this form can be used
    return made


_OWN = "_own"

MOST_AGENTS = 10_000
"""Agents of a run after which it is taken to make new ones without end."""


def name_for_models(name: str) -> str:
    """Return an agent's name as tools and handoffs have it: models refuse most characters."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name).lower()


def names_apart(agents: Iterable[AgentBase[Any]]) -> list[str]:
    """Return a name for each agent: its own for the first of each name, then `name#2`, `name#3`."""
    found = [agent.name for agent in agents]
    taken = set(found)  # a name may look as one of ours
    given: set[str] = set()
    for k, name in enumerate(found):
        if name in given:
            numbered = (f"{name}#{number}" for number in count(2))
            found[k] = next(each for each in numbered if each not in taken)
        taken.add(found[k])
        given.add(name)
    return found


def is_named_for(member: str, name: str) -> bool:
    """Whether the agent that a task calls `member` may be the one that its author called `name`."""
    return member == name or re.fullmatch(rf"{re.escape(name)}#\d+", member) is not None


def walk(
    agents: Iterable[AgentT], following: Callable[[AgentT], list[AgentT]]
) -> tuple[AgentT, ...]:
    """List agents and all agents that can be reached from them, each once, nearest first.

    A task refers to agents by name, so each needs a name of its own.

    Raises:
        UserError: Two agents have the same name.
    """
    found: dict[str, AgentT] = {}
    for agent in walk_all(agents, following):
        known = found.setdefault(agent.name, agent)
        if known is not agent:
            raise UserError(
                f"Two agents are named {agent.name!r}. A task knows its agents by their names: it"
                " could hand over to the wrong one. Rename one of them, or use the same Agent"
                " object in both places."
            )
    return tuple(found.values())


def walk_all(agents: Iterable[AgentT], following: Callable[[AgentT], list[AgentT]]) -> list[AgentT]:
    """Do what `walk` does, and list agents that share a name as well.

    Raises:
        UserError: There is no end to them: an agent makes new ones each time that it is asked.
    """
    found = {id(agent): agent for agent in agents}
    waiting = list(found.values())
    for agent in waiting:  # grows while it is walked
        if len(waiting) > MOST_AGENTS:
            raise UserError(
                f"More than {MOST_AGENTS:,} agents can be reached, as {agent.name!r}. Make each"
                " agent once: its handoffs and tools must be the same objects each time."
            )
        new = {id(each): each for each in following(agent) if id(each) not in found}
        found |= new
        waiting += new.values()
    return waiting
