"""Agents that belong together: those of a task, and the checks of them as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import walk
from holdfast.errors import UserError
from holdfast.values.text.logs import log


def reachable(agents: Iterable[Agent]) -> tuple[Agent, ...]:
    """List agents, and all agents that their tasks may hand over to or call as tools.

    Raises:
        UserError: Two agents have the same name.
    """
    return walk(agents, lambda agent: [*(h.agent for h in agent.made_handoffs), *agent.nested()])


def has_servers(agent: Agent) -> bool:
    """Whether an agent, or one that it hands over to, has MCP servers."""
    return any(each.mcp_servers for each in (agent, *agent.team()))


def check_tool_names(agents: Iterable[Agent], policy: Literal["warn", "error"]) -> None:
    """Refuse agents that have several tools or handoffs of one name, or log a warning.

    Raises:
        UserError: There is one, and the policy is "error".
    """
    for agent in agents:
        clashes = agent.name_clashes
        if not clashes:
            continue
        names = ", ".join(map(repr, clashes))
        if policy == "warn":
            text = "Agent %r has more than one tool or handoff named %s: the last is offered"
            log.warning(text, agent.name, names)
            continue
        msg = (
            f"Ambiguous function tool configuration of agent {agent.name!r}: the tool name"
            f" `{clashes[0]}` is used by multiple tools or handoffs ({names}). The model could not"
            " tell them apart: rename one, with @tool(name=...) or handoff(agent,"
            " tool_name_override=...)."
        )
        raise UserError(msg)
