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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypedDict, cast, get_args

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
from holdfast.agents.run_config import RunConfig
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.foreign.servers import ServerTool
from holdfast.errors import AgentsException, UserError
from holdfast.models.base import AMONG, ModelAnswer
from holdfast.models.resolve import default_settings
from holdfast.task.data.head import (
    AGENTS_SDK,
    AgentSnapshot,
    FollowedRun,
    KeptConversation,
    RunRules,
    TaskHead,
)
from holdfast.tracing.spans import DEFAULT_WORKFLOW_NAME, includes_sensitive_data
from holdfast.values.base import Json
from holdfast.values.code.code_refs import refer
from holdfast.values.code.context_data import type_ref
from holdfast.values.messages import Amount
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.settings import Budget
from holdfast.values.text.logs import log
from holdfast.values.text.redact import bare_addresses
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from holdfast.agents.items.run_items import RunItem


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


# What a run's task begins with: the settings of the run as data, error handlers, its budget.

ErrorKind = Literal["max_turns", "model_refusal", "invalid_final_output"]
"""Kinds of errors that a handler may handle."""

ErrorHandler = Callable[["RunErrorHandlerInput[Any]"], Any]
"""Returns a final output, a RunErrorHandlerResult, or None to decline; sync or async."""

RunErrorHandler = ErrorHandler
"""The same, by its name in the Agents SDK."""


class RunErrorHandlers(TypedDict, total=False):
    """Error handlers by the kind of error that they handle.

    Attributes:
        max_turns: Called in place of MaxTurnsExceeded.
        model_refusal: Called in place of ModelRefusalError.
        invalid_final_output: Called when the final output does not fit its type.
    """

    max_turns: ErrorHandler
    model_refusal: ErrorHandler
    invalid_final_output: ErrorHandler


@dataclass(frozen=True)
class RunErrorData:
    """The data of a run at the time of the error.

    Attributes:
        input: The run's input: a text, or items of the Responses API.
        new_items: The items that the run made, oldest first.
        history: Input and new items in one list. As in the Agents SDK, it has messages twice that a
            handoff has moved into the input: there, and where the run made them. The list of a
            result, `to_input_list()`, has them once.
        output: The new items, as input items for another run.
        raw_responses: The model's answers of the turn that failed.
        last_agent: The agent that ran last.
    """

    input: str | list[dict[str, Json]]
    new_items: list[RunItem]
    history: list[dict[str, Json]]
    output: list[dict[str, Json]]
    raw_responses: list[ModelAnswer]
    last_agent: Agent


@dataclass(frozen=True)
class RunErrorHandlerInput(Generic[ContextT]):
    """Argument of an error handler.

    Attributes:
        error: MaxTurnsExceeded, ModelRefusalError or ModelBehaviorError.
        context: The run's context.
        run_data: The data of the run at the time of the error.
    """

    error: AgentsException
    context: RunContextWrapper[ContextT]
    run_data: RunErrorData


@dataclass(frozen=True)
class RunErrorHandlerResult:
    """Result of an error handler.

    Attributes:
        final_output: The run's final output.
        include_in_history: Whether it joins the conversation as the agent's last message.
    """

    final_output: Any
    include_in_history: bool = True


def check_handlers(given: Any) -> dict[ErrorKind, ErrorHandler]:
    """Return error handlers by the kind of error that they handle.

    Raises:
        UserError: It is not a mapping from kinds to functions; the text lists the kinds.
    """
    kinds = get_args(ErrorKind)
    if not isinstance(given, Mapping | None):
        msg = f"error_handlers={shown(given)} is not a dict of {', '.join(map(repr, kinds))}."
        raise UserError(msg)
    handlers = dict(cast("Mapping[ErrorKind, ErrorHandler]", given or {}))
    for kind, handler in handlers.items():
        if kind not in kinds or not callable(handler):
            raise UserError(
                f"error_handlers has {kind!r}: {shown(handler)}. Give a function for one of"
                f" {', '.join(map(repr, kinds))}."
            )
    return handlers


def as_handler_result(value: Any) -> RunErrorHandlerResult | None:
    """Convert the return value of a handler; None when it declines.

    A dict with a `final_output` has the fields of a RunErrorHandlerResult; any other dict is a
    final output.

    Raises:
        UserError: The dict has unknown fields.
    """
    if value is None or isinstance(value, RunErrorHandlerResult):
        return value
    if not isinstance(value, Mapping) or "final_output" not in value:
        return RunErrorHandlerResult(value)
    given = cast("Mapping[str, Any]", value)
    known = {field.name for field in fields(RunErrorHandlerResult)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise UserError(
            f"An error handler returned a dict with {', '.join(map(repr, unknown))} next to"
            " 'final_output'; there is only 'include_in_history'."
        )
    return RunErrorHandlerResult(**given)


def run_head(
    agent: str,
    config: RunConfig,
    *,
    context: Any = None,
    error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
    streams: bool = False,
    kept: KeptConversation | None = None,
    follows: FollowedRun | None = None,
    refer: Callable[[Any], str] = refer,
) -> TaskHead:
    """Return the head of a run's task: the one place where settings of a run become data.

    Args:
        agent: Name of the agent that the run starts with.
        config: The run's settings.
        context: Its context object.
        error_handlers: Kind of error to the handler that answers in its place.
        streams: Whether models stream their answers to readers of the task's events.
        kept: Where the provider keeps the conversation, if it does.
        follows: The run that it goes on from, if it does.
        refer: Returns the reference by which worker processes find a piece of code.
    """

    def ref(thing: Any) -> str:
        return "" if thing is None else refer(thing)

    model = config.model
    if isinstance(model, tuple) and all(isinstance(each, str) for each in model):
        model = AMONG.join(map(str, model))
    retry = config.model_settings.retry if config.model_settings is not None else None
    workflow = config.workflow_name
    blocked = config.output_guardrail_blocked_message
    rules = RunRules(
        context=type_ref(context),
        model="" if isinstance(model, str) else ref(model),
        of_model=None if model is None else default_settings(config.model),
        model_provider=ref(config.model_provider),
        retry_policy=ref(retry.policy if retry is not None else None),
        model_input_filter=ref(config.call_model_input_filter),
        tool_error_formatter=ref(config.tool_error_formatter),
        tool_not_found=config.tool_not_found_behavior or "tell",
        output_attempts=config.max_output_attempts or 0,
        tool_concurrency=config.tool_execution.max_function_tool_concurrency or 0,
        handoff_filter=ref(config.handoff_input_filter),
        nests_history=config.nest_handoff_history,
        history_mapper=ref(config.handoff_history_mapper),
        input_guardrails=tuple(map(refer, config.input_guardrails)),
        output_guardrails=tuple(map(refer, config.output_guardrails)),
        guards_before_approval=config.tool_execution.pre_approval_tool_input_guardrails,
        error_handlers={kind: refer(each) for kind, each in (error_handlers or {}).items()},
        reasoning_ids=config.reasoning_item_id_policy or "preserve",
        blocked_message=blocked if isinstance(blocked, str) else "",
        blocked_formatter="" if isinstance(blocked, str) else ref(blocked),
        workflow_name="" if workflow == DEFAULT_WORKFLOW_NAME else workflow,
        trace_id=config.trace_id or "",
        group_id=config.group_id or "",
        trace_metadata=dict(config.trace_metadata or {}),
        traced=not config.tracing_disabled,
        sensitive=_sensitive(config),
        streams=streams,
        kept=kept,
    )
    return TaskHead(
        agent=agent,
        dialect=AGENTS_SDK,
        model=model if isinstance(model, str) else "",
        settings=config.model_settings,
        run=rules,
        follows=follows,
    )


def _sensitive(config: RunConfig) -> bool | None:
    """Return whether a run's spans hold texts; None leaves that to the setting of each process."""
    tells = config.trace_include_sensitive_data
    return None if tells and includes_sensitive_data() else tells


def run_budget(max_turns: int | None, max_dollars: Amount | None = None) -> Budget | None:
    """Return the budget of a run: a model call beyond it ends its task.

    Raises:
        UserError: max_dollars is not an amount.
    """
    if max_turns is None and max_dollars is None:
        return None
    return Budget(max_turns=max_turns, max_dollars=max_dollars, on_exceeded="fail")
