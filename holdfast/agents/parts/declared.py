"""The fields of an agent: checked whenever they are set, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.guardrails import InputGuardrail, OutputGuardrail
from holdfast.agents.handoffs.handoff import Handoff, handoff
from holdfast.agents.hooks import AgentHooksBase
from holdfast.agents.hosted.prompt import DynamicPromptFunction, Prompt
from holdfast.agents.hosted.tool_search import check_names_apart, is_searched
from holdfast.agents.hosted.tools import HostedTool, check_served
from holdfast.agents.local.base import LocalTool, check_one_of_kind
from holdfast.agents.output_type import (
    AgentOutputSchemaBase,
    check_output_type,
    output_schema,
)
from holdfast.agents.parts.fields import checked
from holdfast.agents.parts.offers import (
    clashing_names,
    made_tools,
    offered_handoffs,
    offered_tools,
)
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.foreign.servers import MCPConfig
from holdfast.agents.tools.retriever import ToolRetriever
from holdfast.models.agents_sdk import AskedModel
from holdfast.models.base import Model
from holdfast.models.libraries.llama_index import LLM
from holdfast.models.resolve import NoSettings
from holdfast.values.runs.run_context import ContextT
from holdfast.values.settings import ModelSettings
from holdfast.workers.base import AgentWorker, RunsSteps, as_worker
from holdfast.workers.function_calling.worker import FunctionCallingAgentWorker
from holdfast.workers.tool_use import ToolUseBehavior


@dataclass
class DeclaredAgent(AgentBase[ContextT]):
    """What an agent was declared with; `Agent` says what each field means.

    Fields may be set later as well: it changes the tasks that begin afterwards.
    """

    _: KW_ONLY
    instructions: str | Callable[..., Any] | None = None
    prompt: Prompt | DynamicPromptFunction | None = None
    model: str | Model | LLM | AskedModel | None = None
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

    @property
    def made_tools(self) -> tuple[Tool, ...]:
        """The tools that are functions, as tools; with a retriever, its whole catalogue.

        Raises:
            UserError: As for `all_tools`.
        """
        return tuple(tool for tool in self.all_tools if isinstance(tool, Tool))

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
        tools = made_tools(self.name, self.tools, self.tool_retriever)
        return offered_tools(tools, self.made_handoffs)

    @property
    def name_clashes(self) -> list[str]:
        """Names that several tools or handoffs have: the model is offered one of each."""
        return clashing_names(self.tools, map(as_handoff, self.handoffs))

    @property
    def made_handoffs(self) -> tuple[Handoff[Any, Any], ...]:
        """The handoffs, with agents made into handoffs; of several of one name, the last.

        Raises:
            UserError: Another object is among them.
        """
        return offered_handoffs(map(as_handoff, self.handoffs))


def as_handoff(given: Any) -> Handoff[Any, Any]:
    """Return a handoff itself, and make one of an agent."""
    made: Any = given
    return made if isinstance(given, Handoff) else handoff(given)
