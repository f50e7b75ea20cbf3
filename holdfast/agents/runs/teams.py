"""Agents that belong together: those of a task, their names in it, and the checks of them as one.

A task knows its agents by name: its snapshot, records, queue and audit do. The user's agents may
share names, so a run begins by giving them names that are apart, see `members`. From there on only
what is shown to the user, or handed to the user's code, goes back to the user's objects, by
`users_agent`.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import (
    as_member,
    name_for_models,
    names_apart,
    users_agent,
    walk,
    walk_all,
)
from holdfast.agents.declared import as_handoff
from holdfast.agents.handoffs.handoff import HandoffTool
from holdfast.agents.items.run_items import ToolOrigin, ToolOriginType
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.foreign.servers import ServerTool
from holdfast.errors import UserError
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.values.text.logs import log
from holdfast.values.text.redact import bare_addresses


def reachable(agents: Iterable[Agent]) -> tuple[Agent, ...]:
    """List agents, and all agents that their tasks may hand over to or call as tools.

    Raises:
        UserError: Two agents have the same name.
    """
    return walk(agents, _next_to)


def members(first: Agent) -> Agent:
    """Return an agent for a run in which each agent that it can reach has a name of its own.

    Where no two share a name, that is the agent itself. Else it is a copy of it: the agents of the
    run are copied, and their handoffs and agents as tools lead to the copies. The first agent of a
    name keeps it, the following ones are `name#2`, `name#3`, in the order in which they are found,
    so the same program finds the same ones again.

    Args:
        first: The agent that the run begins with.

    Raises:
        UserError: An agent that a tool retriever chooses as a tool shares its name with another:
            a retriever's catalogue cannot be copied.
    """
    found = walk_all([first], _next_to)
    often = Counter(agent.name for agent in found)
    if len(often) == len(found):
        return first
    named = zip(found, names_apart(found), strict=True)
    made = {
        id(agent): as_member(agent, name, shares=often[agent.name] > 1) for agent, name in named
    }
    for member in made.values():
        _lead_to(member, made)
    reachable([made[id(first)]])
    return made[id(first)]


def is_apart(agent: Agent) -> bool:
    """Whether an agent is one of a run in which two of the user's agents share a name."""
    return users_agent(agent) is not agent


def changed_places(name: str, outcome: str) -> tuple[str, str]:
    """Say that an agent may have changed places with another of its name, and what to do.

    The order in which the program lists agents of one name distinguishes them. An edit may change
    that order.

    Args:
        name: The name by which the task knows the agent.
        outcome: What has happened to the task.

    Returns:
        The text of the error and its remedy.
    """
    msg = (
        f"Several agents of the run share a name, and the one that is {name!r} now is declared"
        " otherwise than the one that the task began with, or leads to others of them: it may be"
        f" another of them. {outcome}"
    )
    remedy = (
        "Declare these agents as they were, in the same order, and go on with the agent that the"
        " task began with, after a restart of its worker process. Names of their own allow such"
        " changes."
    )
    return msg, remedy


def _next_to(agent: Agent) -> list[Agent]:
    return [*(each.agent for each in agent.made_handoffs), *agent.nested()]


def _lead_to(member: Agent, made: Mapping[int, Agent]) -> None:
    """Let the handoffs and the agents as tools of a member lead to members."""
    handoffs = [copy.copy(as_handoff(each)) for each in member.handoffs]
    for handoff in handoffs:
        handoff.target = made.get(id(handoff.target), handoff.target)
    member.handoffs = handoffs
    member.tools = [_leading_to(tool, made) for tool in member.tools]


def _leading_to(tool: Any, made: Mapping[int, Agent]) -> Any:
    if not isinstance(tool, AgentTool) or id(tool.agent) not in made:
        return tool
    copied = copy.copy(tool)
    copied.agent = made[id(tool.agent)]
    return copied


class ToldTool(NamedTuple):
    """What an item tells of its tool.

    Attributes:
        description: Its description, if it has one.
        title: Its short name for people, if it has one.
        origin: Where it comes from.
    """

    description: str | None
    title: str | None
    origin: ToolOrigin

    @classmethod
    def of(cls, tool: Tool) -> ToldTool:
        """Return what items tell of a tool as it is now."""
        title = tool.title or None if isinstance(tool, ServerTool) else None
        return cls(tool.description or None, title, _origin(tool))


def _origin(tool: Tool) -> ToolOrigin:
    if isinstance(tool, ServerTool):
        server = bare_addresses(tool.server.name)
        return ToolOrigin(ToolOriginType.MCP, mcp_server_name=server)
    if isinstance(tool, AgentTool):
        return ToolOrigin(
            ToolOriginType.AGENT_AS_TOOL,
            agent_name=users_agent(tool.agent).name,
            agent_tool_name=tool.name,
        )
    return ToolOrigin(ToolOriginType.FUNCTION)


class Team:
    """The agents of a run by the names that its task knows, see `members`."""

    def __init__(self, first: str, agents: Sequence[Agent] = ()) -> None:
        """Take the agents that are known.

        Args:
            first: Name of the agent that the task began with.
            agents: The agents that this process has.
        """
        self._first = first
        self._agents: dict[str, Agent] = {agent.name: agent for agent in reversed(agents)}
        self._own = frozenset(self._agents)
        self._began: AgentSnapshot | None = None
        self._tools: dict[tuple[str, str], Tool | None] = {}
        self._told: dict[tuple[str, str], ToldTool | None] = {}

    @property
    def lacks_servers(self) -> bool:
        """Whether agents have MCP servers whose tools it does not know yet, see `learn`."""
        return self._began is None and any(each.mcp_servers for each in self._agents.values())

    def learn(self, began: AgentSnapshot) -> None:
        """Take the first agent and its team as the task began with them, with tools of servers."""
        self._began = began
        self._tools.clear()
        self._told.clear()

    def name_of(self, agent: object) -> str:
        """Return the name by which the task knows an agent of the user's; empty for another."""
        return next((name for name, each in self._agents.items() if users_agent(each) is agent), "")

    def has(self, name: str) -> bool:
        """Whether this process has an agent of this name."""
        return name in self._own

    def of(self, name: str) -> Agent:
        """Return an agent, or one that has only the name; without a name, the first agent."""
        name = name or self._first
        if name not in self._agents:
            self._agents[name] = Agent(name=name)
        return self._agents[name]

    def tool(self, agent: Agent, name: str) -> Tool | None:
        """Return an agent's tool of a name, or its handoff as a tool, or None."""
        key = (agent.name, name)
        if key not in self._tools:
            known = (self._began, *self._began.team) if self._began is not None else ()
            began = next((each for each in known if each.name == agent.name), None)
            self._tools[key] = agent.tool(name, began)
        return self._tools[key]

    def told(self, agent: Agent, name: str) -> ToldTool | None:
        """Return what items tell of an agent's tool of a name; None for one that is not known."""
        key = (agent.name, name)
        if key not in self._told:
            tool = self.tool(agent, name) if name else None
            self._told[key] = None if tool is None else ToldTool.of(tool)
        return self._told[key]

    def alone(self, name: str, tools: Iterable[str]) -> Team:
        """Return a team of one agent as it is now, without its handoffs.

        Later changes to the agent do not matter.

        Args:
            name: The agent.
            tools: Names of the tools that it has called.
        """
        agent = self.of(name)
        member = as_member(users_agent(agent), agent.name, shares=False)
        vars(member)["handoffs"] = []  # its own list: that of the user stays
        made = Team(self._first, [member])
        made._told = {(member.name, each): self.told(agent, each) for each in tools}
        return made

    def target(self, agent: Agent, handoff: str, named: str) -> Agent:
        """Return the agent that one has handed the task to.

        Args:
            agent: The agent that handed over.
            handoff: Name of the handoff, or empty if it is not known.
            named: Name of the next agent in the handoff's output: the name that its author gave it.
        """
        tool = self.tool(agent, handoff) if handoff else None
        to = tool.handoff.agent if isinstance(tool, HandoffTool) else None
        return to if to is not None and users_agent(to).name == named else self.of(named)


def team_of(agent: Agent, *, first: str = "") -> Team:
    """Return an agent's team, for a task that began with the agent or with another of the team.

    It includes the agents that these call as tools, because their calls may need an approval.
    """
    agent = members(agent)
    known = {each.name: each for each in (agent, *agent.team())}
    agents = list(known.values())
    for each in agents:  # grows while it is walked
        for child in each.nested():
            new = [a for a in (child, *child.team()) if a.name not in known]
            known |= {a.name: a for a in new}
            agents += new
    return Team(first or agent.name, agents)


def has_servers(agent: Agent) -> bool:
    """Whether an agent, or one that it hands over to, has MCP servers."""
    return any(each.mcp_servers for each in (agent, *agent.team()))


def check_agents(agents: Iterable[Agent], policy: Literal["warn", "error"]) -> None:
    """Refuse agents that no run can use.

    Args:
        agents: The agents.
        policy: What to do about one that has several tools or handoffs of one name: refuse it, or
            log a warning.

    Raises:
        UserError: There is one, or an `output_type` has no schema; or the names of two agents are
            one as the name of a handoff or tool, whatever the policy.
    """
    for agent in agents:
        _ = agent.made_output
        clashes = agent.name_clashes
        if not clashes:
            continue
        names = ", ".join(map(repr, clashes))
        _refuse_folded(agent)
        if policy == "warn":
            text = "Agent %r has more than one tool or handoff named %s: the last is offered"
            log.warning(text, agent.name, names)
            continue
        raise UserError(
            f"Ambiguous function tool configuration of agent {agent.name!r}: the tool name"
            f" `{clashes[0]}` is used by multiple tools or handoffs ({names}). The model could not"
            " tell them apart: rename one, with @tool(name=...) or handoff(agent,"
            " tool_name_override=...)."
        )


def _refuse_folded(agent: Agent) -> None:
    """Refuse two agents that lead to one name because a name lost what models refuse in names."""
    handoffs = [(each.tool_name, each.agent_name) for each in map(as_handoff, agent.handoffs)]
    calls = [(each.name, each.agent.name) for each in agent.tools if isinstance(each, AgentTool)]
    first: dict[str, str] = {}
    for name, led in (*handoffs, *calls):
        author = re.sub(r"#\d+$", "", led)  # an agent of a run may have a number
        folded = name_for_models(author)
        is_folded = name in {folded, f"transfer_to_{folded}"} and name in agent.name_clashes
        if is_folded and first.setdefault(name, author) != author:
            raise UserError(
                f"Agent {agent.name!r} leads to agents {first[name]!r} and {author!r} by one name,"
                f" {name!r}, so only one could be offered. Name them otherwise for models, with"
                " handoff(agent, tool_name_override=...) or agent.as_tool(...)."
            )
