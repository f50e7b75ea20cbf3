"""The part of an agent that handoffs, tools and items of a run use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

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
