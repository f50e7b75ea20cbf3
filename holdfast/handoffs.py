"""Handoffs: an agent hands the task to another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agent import Agent

HandoffInputFilter = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """How one agent hands the task to another. Made by `handoff(...)`.

    Attributes:
        agent: The agent that goes on.
        tool_name: Name under which the model calls it.
        tool_description: What the model is told of it.
        on_handoff: Called when the task is handed over: (ctx), or (ctx, input) with an input_type.
        input_type: Type of what the model says with the handoff, or None.
        input_filter: Chooses what the next agent sees.
        nest_handoff_history: Whether the earlier conversation becomes one message; None leaves it
            to the run.
        is_enabled: Whether it is offered, or a predicate (ctx, agent).
    """

    agent: Agent
    tool_name: str
    tool_description: str
    on_handoff: Callable[..., Any] | None = None
    input_type: Any = None
    input_filter: HandoffInputFilter | None = None
    nest_handoff_history: bool | None = None
    is_enabled: bool | Callable[..., Any] = True


def handoff(
    agent: Agent,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    *,
    on_handoff: Callable[..., Any] | None = None,
    input_type: Any = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: bool | Callable[..., Any] = True,
) -> Handoff:
    """Make a handoff to an agent."""
    about = f"Handoff to the {agent.name} agent to handle the request. {agent.handoff_description}"
    return Handoff(
        agent=agent,
        tool_name=tool_name_override or default_tool_name(agent.name),
        tool_description=tool_description_override or about,
        on_handoff=on_handoff,
        input_type=input_type,
        input_filter=input_filter,
        nest_handoff_history=nest_handoff_history,
        is_enabled=is_enabled,
    )


def default_tool_name(name: str) -> str:
    """Return the name under which a model hands over to an agent of this name."""
    return "transfer_to_" + re.sub(r"[^a-zA-Z0-9_]", "_", name).lower()
