"""The fields of an agent: checked whenever they are set, and what is made of them.

Of its tools and handoffs is made what it offers its model; that says what follows of equal names.

Its instructions are a text, or a function that makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, cast

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.guardrails import InputGuardrail, OutputGuardrail, check_guardrails
from holdfast.agents.handoffs.handoff import Handoff, handoff
from holdfast.agents.hooks import AgentHooksBase, check_agent_hooks
from holdfast.agents.hosted.prompt import DynamicPromptFunction, Prompt, check_prompt
from holdfast.agents.hosted.tools import (
    HostedTool,
    check_names_apart,
    check_served,
    is_searched,
    servers_of,
)
from holdfast.agents.local.base import LocalTool, check_one_of_kind
from holdfast.agents.output_type import AgentOutputSchemaBase, check_output_type, output_schema
from holdfast.agents.tools.decorator import Tool, to_tool
from holdfast.agents.tools.foreign.llama_index import ForeignToolRetriever, is_foreign_retriever
from holdfast.agents.tools.foreign.servers import MCPConfig
from holdfast.agents.tools.retriever import ToolRetriever
from holdfast.errors import InvalidArgumentError, UserError, WrongTypeError, message_of, remedy_of
from holdfast.models.base import check_model
from holdfast.models.resolve import AnyModel, NoSettings, check_prefix, taken
from holdfast.values.checks.gate import is_array
from holdfast.values.checks.ids import check_name
from holdfast.values.code.user_calls import with_caller
from holdfast.values.runs.run_context import ContextT
from holdfast.values.settings import ModelSettings, as_model_settings
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker, RunsSteps, as_worker
from holdfast.workers.function_calling import FunctionCallingAgentWorker
from holdfast.workers.tool_use import ToolUseBehavior, behavior_code


def checked(agent: str, field: str, given: Any) -> Any:
    """Return the value that a field of an agent gets.

    Args:
        agent: Name of the agent, for error messages.
        field: Name of the field.
        given: The value that was assigned.

    Raises:
        UserError: It cannot be used.
    """
    check = _CHECKS.get(field)
    return given if check is None else check(agent, field, given)


def wrong_type(field: str, wanted: str, given: object) -> WrongTypeError:
    """Make the error for a value of a wrong type."""
    return WrongTypeError(
        f"Agent {field} must be {wanted}, got {type(given).__name__}: {shown(given)}."
    )


def _name(_agent: str, field: str, given: Any) -> Any:
    if not isinstance(given, str):
        raise wrong_type(field, "a string", given)
    try:
        return check_name("The name of an agent", given)
    except InvalidArgumentError as error:
        raise WrongTypeError(message_of(error), remedy=remedy_of(error)) from None


def _text(_agent: str, field: str, given: Any) -> Any:
    if given is not None and not isinstance(given, str):
        raise wrong_type(field, "a string or None", given)
    return given


def _instructions(_agent: str, field: str, given: Any) -> Any:
    if given is not None and not isinstance(given, str) and not callable(given):
        raise wrong_type(field, "a string, callable, or None", given)
    return given


def _prompt(agent: str, _field: str, given: Any) -> Any:
    check_prompt(agent, given)
    return given


def _bool(_agent: str, field: str, given: Any) -> Any:
    if not isinstance(given, bool):
        raise wrong_type(field, "True or False", given)
    return given


def _model(_agent: str, _field: str, given: Any) -> Any:
    made = taken(given)
    check_model(made)
    check_prefix(made)
    return made


def _settings(_agent: str, _field: str, given: Any) -> Any:
    return as_model_settings(given, "Agent model_settings")


def _tools(_agent: str, field: str, given: Any) -> Any:
    """Return a list of tools itself, and a new list of anything else that can be made into one."""
    _check_list(field, given, "tools or functions")
    if is_array(given) and all(isinstance(each, Tool | HostedTool) for each in given):
        return given
    return [each if isinstance(each, HostedTool) else to_tool(each) for each in given]


def _handoffs(_agent: str, field: str, given: Any) -> Any:
    _check_list(field, given, "agents or handoffs")
    return given if is_array(given) else list(given)


def _check_list(name: str, given: Any, of: str) -> None:
    if not isinstance(given, Iterable) or isinstance(
        given, Tool | HostedTool | str | bytes | Mapping
    ):
        wanted = f"a list of {of}, also for a single one: {name}=[...]"
        raise wrong_type(name, wanted, given)  # pyright: ignore[reportUnknownArgumentType]  anything is shown


def _retriever(_agent: str, _field: str, given: Any) -> Any:
    if given is None:
        return None
    retriever = ForeignToolRetriever(given) if is_foreign_retriever(given) else given
    can = callable(getattr(retriever, "retrieve", None)) and hasattr(retriever, "tools")
    if isinstance(retriever, type) or not can:
        raise WrongTypeError(
            f"tool_retriever={shown(retriever)} ({type(retriever).__name__}) cannot choose tools."
            " Pass an object with `tools` and `retrieve(query)`, as KeywordToolRetriever([...])."
        )
    return retriever


def _servers(_agent: str, field: str, given: Any) -> Any:
    _check_list(field, given, "MCP servers")
    servers = given if is_array(given) else list(given)
    wrong = [each for each in servers if not callable(getattr(each, "offered", None))]
    if wrong:
        raise WrongTypeError(
            f"{shown(wrong[0])} ({type(wrong[0]).__name__}) in mcp_servers is not an MCP server of"
            " Holdfast's. Pass servers of holdfast.mcp, such as MCPServerStdio."
        )
    return servers


def _server_settings(_agent: str, field: str, given: Any) -> Any:
    if not isinstance(given, dict):
        raise wrong_type(field, "a dict", given)
    config = cast("dict[str, Any]", given)
    unknown = sorted(str(name) for name in config if name not in MCPConfig.__annotations__)
    if unknown:
        known = ", ".join(MCPConfig.__annotations__)
        raise WrongTypeError(f"Agent mcp_config has no {', '.join(unknown)}. It may hold: {known}.")
    return config


def _guardrails(kind: type[Any]) -> Callable[[str, str, Any], Any]:
    def check(agent: str, field: str, given: Any) -> Any:
        check_guardrails(f"agent {agent!r}", field, given, kind)
        return given if is_array(given) else list(given)

    return check


def _hooks(agent: str, _field: str, given: Any) -> Any:
    check_agent_hooks(agent, given)
    return given


def _behavior(_agent: str, _field: str, given: Any) -> Any:
    behavior_code(given)
    return given


_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "name": _name,
    "handoff_description": _text,
    "instructions": _instructions,
    "prompt": _prompt,
    "model": _model,
    "model_settings": _settings,
    "tools": _tools,
    "tool_retriever": _retriever,
    "mcp_servers": _servers,
    "mcp_config": _server_settings,
    "handoffs": _handoffs,
    "input_guardrails": _guardrails(InputGuardrail),
    "output_guardrails": _guardrails(OutputGuardrail),
    "hooks": _hooks,
    "tool_use_behavior": _behavior,
    "reset_tool_choice": _bool,
}


ARGUMENTS = ("context", "agent")


async def system_prompt(
    agent: object, instructions: str | Callable[..., Any] | None, context: object
) -> str | None:
    """Return instructions as text.

    Args:
        agent: The agent that has them.
        instructions: A text, or a function (context, agent), sync or async.
        context: The run's context.

    Raises:
        WrongTypeError: The function does not take two arguments.
    """
    if not callable(instructions):
        return instructions
    names = list(inspect.signature(instructions).parameters)
    if len(names) != len(ARGUMENTS):
        raise WrongTypeError(
            "'instructions' callable must accept exactly 2 arguments (context, agent), but got"
            f" {len(names)}: {', '.join(names) or 'none'}."
        )
    made: Any = instructions(context, agent)
    text: str | None = await with_caller(lambda: made) if inspect.isawaitable(made) else made
    return text


Offered = Tool[..., Any] | HostedTool | Handoff[Any, Any]
"""What an agent offers its model."""


def made_tools(
    agent: str, given: list[Any], retriever: ToolRetriever | None
) -> list[Tool | HostedTool]:
    """Make tools of what an agent was given as such, or of its retriever's catalogue.

    Args:
        agent: Name of the agent, for error messages.
        given: Its list of tools, in which functions are replaced by the tools made of them.
        retriever: What chooses its tools, or None.

    Raises:
        UserError: There are both, an object cannot be made into a tool, or a catalogue has a name
            twice.
    """
    if given and retriever is not None:
        raise UserError(
            f"Cannot specify both `tools` and `tool_retriever`: agent {agent!r} has both."
            " Put the tools into the retriever's catalogue."
        )
    made: list[Tool | HostedTool] = []
    is_hosted = False
    wanted = given if retriever is None else retriever.tools
    for each in cast("list[Any]", wanted):
        if isinstance(each, HostedTool):
            is_hosted = True
            made.append(each)
        else:
            made.append(each if isinstance(cast("object", each), Tool) else to_tool(each))
    if retriever is not None:
        _check_catalogue(agent, [tool.qualified_name for tool in made if isinstance(tool, Tool)])
    elif made != given:
        given[:] = made  # a function is made into a tool once
    if is_hosted:
        servers_of(made)
    return made


def _check_catalogue(agent: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(
            f"The tool_retriever of agent {agent!r} has more than one tool named"
            f" {', '.join(map(repr, twice))} in its catalogue. Rename one with @tool(name=...)."
        )


@dataclass
class DeclaredAgent(AgentBase[ContextT]):
    """What an agent was declared with; `Agent` says what each field means.

    Fields may be set later as well: it changes the tasks that begin afterwards.
    """

    _: KW_ONLY
    instructions: str | Callable[..., Any] | None = None
    prompt: Prompt | DynamicPromptFunction | None = None
    model: AnyModel | Sequence[AnyModel] | None = None
    tools: list[Any] = field(default_factory=list[Any])
    model_settings: ModelSettings = field(default_factory=NoSettings)
    worker: AgentWorker | RunsSteps = field(default_factory=FunctionCallingAgentWorker)
    tool_retriever: ToolRetriever | None = None
    mcp_servers: list[Any] = field(default_factory=list[Any])
    mcp_config: MCPConfig = field(default_factory=MCPConfig)
    handoffs: list[Any] = field(default_factory=list[Any], repr=False, compare=False)
    input_guardrails: list[InputGuardrail[Any]] = field(default_factory=list[Any])
    output_guardrails: list[OutputGuardrail[Any]] = field(default_factory=list[Any])
    output_type: Any = None
    hooks: AgentHooksBase[ContextT, Any] | None = None
    tool_use_behavior: ToolUseBehavior = "run_llm_again"
    reset_tool_choice: bool = True
    made_worker: AgentWorker = field(init=False, repr=False, compare=False)
    """The worker, wrapped into an AgentWorker if it is another object."""
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field, checked; runs that have begun are not changed by it.

            Raises:
                UserError: The field cannot hold the value.
            """
            value = checked(self.__dict__.get("name", ""), name, value)
            if name == "worker":
                object.__setattr__(self, "made_worker", as_worker(value))
            elif name == "output_type":
                check_output_type(value)
            object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        """Check what the fields are together."""
        _ = self.made_tools  # checks the objects, and those of the handoffs given so far
        self._check_hosted()

    def _check_hosted(self) -> None:
        """Check tools of the provider, local tools and functions of tool search."""
        special: list[Any] = [
            each
            for each in (*self.made_tools, *self.tools)
            if not isinstance(each, Tool)
            or isinstance(each, LocalTool)
            or each.namespace
            or each.defer_loading
        ]
        if not special and self.prompt is None:
            return
        check_one_of_kind(self.name, self.made_tools)
        check_names_apart(self.name, self.tools)
        what = [each.name for each in self.tools if isinstance(each, HostedTool | LocalTool)]
        what += ["prompt"] if self.prompt is not None else []
        functions = [each.qualified_name for each in self.made_tools if is_searched(each)]
        check_served(self.name, what, self.model, self.made_worker, functions)

    def __hash__(self) -> int:
        """Return the same for equal agents."""
        return hash(self.name)

    @property
    def made_output(self) -> AgentOutputSchemaBase | None:
        """The structure of the final output; None for text.

        Raises:
            UserError: pydantic cannot describe `output_type`, or OpenAI's strict mode cannot
                express it. Runs and processes that serve the agent find out when they begin.
        """
        given = self.output_type  # another thread may assign another one
        made: tuple[Any, AgentOutputSchemaBase | None] | None = self.__dict__.get("_made_output")
        if made is None or made[0] is not given:
            made = self.__dict__["_made_output"] = given, output_schema(given)
        return made[1]

    def _offered(self) -> dict[str | int, Offered]:
        """The tools in their order, then the handoffs, by name: of equal names the last on offer.

        Tools that the provider runs share names, so they are kept by identity.

        Raises:
            UserError: As for `all_tools`, or another object is among the handoffs.
        """
        tools = made_tools(self.name, self.tools, self.tool_retriever)
        kept: dict[str | int, Offered] = {}
        for each in (*tools, *map(as_handoff, self.handoffs)):
            if isinstance(each, HostedTool):
                kept[id(each)] = each
                continue
            name = each.tool_name if isinstance(each, Handoff) else each.qualified_name
            if name not in kept or each.is_enabled is not False:
                kept.pop(name, None)
                kept[name] = each
        return kept

    @property
    def made_tools(self) -> tuple[Tool, ...]:
        """The tools that are functions, as tools; with a retriever, its whole catalogue.

        Raises:
            UserError: As for `all_tools`.
        """
        return tuple([tool for tool in self._offered().values() if isinstance(tool, Tool)])

    @property
    def hosted_tools(self) -> tuple[HostedTool, ...]:
        """The tools that the provider runs."""
        return tuple(tool for tool in self.tools if isinstance(tool, HostedTool))

    @property
    def all_tools(self) -> tuple[Tool | HostedTool, ...]:
        """The tools in their order, with functions made into tools.

        Of several tools of one name, the last is here, and none that has the name of a handoff.

        Raises:
            UserError: An object cannot be made into a tool, or a retriever's catalogue has a name
                twice.
        """
        found = self._offered().values()
        return tuple([tool for tool in found if not isinstance(tool, Handoff)])

    @property
    def name_clashes(self) -> list[str]:
        """Names that several tools or handoffs have: the model is offered one of each."""
        found = [*made_tools(self.name, self.tools, None), *map(as_handoff, self.handoffs)]
        own = [e for e in found if not isinstance(e, HostedTool) and e.is_enabled is not False]
        names = [e.tool_name if isinstance(e, Handoff) else e.qualified_name for e in own]
        return sorted({name for name in names if names.count(name) > 1})

    @property
    def made_handoffs(self) -> tuple[Handoff[Any, Any], ...]:
        """The handoffs, with agents made into handoffs; of several of one name, the last.

        Raises:
            UserError: Another object is among them.
        """
        return tuple([each for each in self._offered().values() if isinstance(each, Handoff)])


def as_handoff(given: Any) -> Handoff[Any, Any]:
    """Return a handoff itself, and make one of an agent."""
    made: Any = given
    return made if isinstance(given, Handoff) else handoff(given)
