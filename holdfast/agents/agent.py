"""Agent: the description of an agent, and its snapshot as data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from holdfast.agents.agent_base import name_for_models, users_agent, walk
from holdfast.agents.declared import DeclaredAgent, system_prompt
from holdfast.agents.guardrails import InputGuardrail, OutputGuardrail, guard_rule
from holdfast.agents.handoffs.handoff import Handoff
from holdfast.agents.hooks import AgentHooksBase, RunHooksBase
from holdfast.agents.hosted.prompt import DynamicPromptFunction, Prompt, chosen_prompt, fixed_prompt
from holdfast.agents.hosted.tools import HostedMCPTool, HostedTool
from holdfast.agents.nesting.agent_tool import (
    DEFAULT_MAX_TURNS,
    AgentTool,
    Extractor,
    InputBuilder,
    OnStream,
    ResultT,
    RunOptions,
    argument_type,
    check_run_options,
    input_schema,
    own_config,
)
from holdfast.agents.run_config import RunConfig
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.foreign.servers import (
    MCPConfig,
    ServerTool,
    ToolServer,
    check_names,
    served_tools,
    server_keys,
)
from holdfast.agents.tools.options import (
    ApprovalPredicate,
    EnabledPredicate,
    FailureFormatter,
    is_offered,
)
from holdfast.agents.tools.retriever import ToolRetriever
from holdfast.models.resolve import AnyModel, default_settings, get_default_model, were_given
from holdfast.task.data.guard_rules import GuardRule
from holdfast.task.data.head import MAX_DEPTH, AgentSnapshot
from holdfast.values.checks.gate import known_as
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import ContextT, RunContextWrapper
from holdfast.values.settings import ModelSettings
from holdfast.values.text.html import InNotebook, written
from holdfast.workers.base import AgentWorker, RunsSteps
from holdfast.workers.tool_use import ToolUseBehavior, behavior_code


class Agent(InNotebook, DeclaredAgent[ContextT]):
    """An agent. `Agent[Context]` declares the type of the run's context object.

    Args:
        name: Identity of the agent within a worker process.
        instructions: System prompt, or a function (context, agent) that makes it for each turn.
        prompt: A prompt that the provider of the Responses API keeps, or a function
            (GenerateDynamicPromptData) that chooses one for each turn.
        model: A model name for OpenAI's Responses API, "chat:NAME" for Chat Completions, "offline",
            a Model, an LLM of LlamaIndex, or None for the default (`HOLDFAST_MODEL`, else
            gpt-5-mini). Of a list of these, the first that can answers.
        tools: Tools, tools of LlamaIndex, plain functions to be made into tools, or tools that
            the provider runs, as WebSearchTool() (Responses API only). More may be appended to
            `agent.tools`, for tasks that start afterwards.
        model_settings: How the model is called: a ModelSettings, or a dict of its fields. An agent
            that is given none has, in runs of Runner, those of its model's name (GPT-5).
        worker: The step logic: an AgentWorker, or any object with `async def run_step(step, ctx)`.
        tool_retriever: Used in place of `tools`: chooses from its catalogue the tools that each
            step offers the model. See `holdfast.agents.tools.retriever`. An ObjectRetriever of
            LlamaIndex is one as well.
        mcp_servers: MCP servers whose tools the model is offered as well, see `holdfast.mcp`. The
            worker process connects them, and a task keeps the list with which it began.
        mcp_config: Settings of these servers, see MCPConfig.
        handoffs: Agents that this one may hand the task to, as they are or by `handoff(...)`. More
            may be appended to `agent.handoffs`, so that two agents can name each other.
        handoff_description: Description of this agent for the models of other agents.
        input_guardrails: Checks of the input, for runs that begin with this agent.
        output_guardrails: Checks of the final output, for runs that end with this agent.
        output_type: Type of the final output: a pydantic model, a dataclass, or any type that
            pydantic can validate; None for text. `AgentOutputSchema(type,
            strict_json_schema=False)` for what OpenAI's strict mode cannot express.
        hooks: Methods that are called at events of this agent.
        tool_use_behavior: What follows tool calls: "run_llm_again", "stop_on_first_tool",
            {"stop_at_tool_names": [...]}, or a function (context, results) that returns a
            ToolsToFinalOutputResult.
        reset_tool_choice: Whether a tool choice other than "auto" is dropped once a tool was used.

    Raises:
        UserError: The name is empty, both tools and a tool_retriever are given, or an argument
            has a wrong type.
    """

    if TYPE_CHECKING:  # lists are made of other sequences, and settings of a dict

        def __init__(
            self,
            name: str,
            handoff_description: str | None = None,
            *,
            instructions: str | Callable[..., Any] | None = None,
            prompt: Prompt | DynamicPromptFunction | None = None,
            model: AnyModel | Sequence[AnyModel] | None = None,
            tools: Sequence[Tool | HostedTool | Callable[..., Any]] = (),
            model_settings: ModelSettings | Mapping[str, Any] = ...,
            worker: AgentWorker | RunsSteps = ...,
            tool_retriever: ToolRetriever | None = None,
            mcp_servers: Sequence[ToolServer] = (),
            mcp_config: MCPConfig = ...,
            handoffs: Sequence[Agent[Any] | Handoff[Any, Any]] = (),
            input_guardrails: Sequence[InputGuardrail[Any]] = (),
            output_guardrails: Sequence[OutputGuardrail[Any]] = (),
            output_type: Any = None,
            hooks: AgentHooksBase[ContextT, Any] | None = None,
            tool_use_behavior: ToolUseBehavior = "run_llm_again",
            reset_tool_choice: bool = True,
        ) -> None: ...

    else:
        __init__ = known_as("Agent")(DeclaredAgent.__init__)

    @known_as("Agent.clone")
    def clone(self, **changes: Any) -> Agent[ContextT]:
        """Return a copy with some fields changed; lists that are not given are the same lists."""
        return replace(self, **changes)

    async def get_system_prompt(self, run_context: RunContextWrapper[ContextT]) -> str | None:
        """Return the instructions, made for a context if they are a function.

        Raises:
            TypeError: The function does not take (context, agent).
        """
        return await system_prompt(self, self.instructions, run_context)

    async def get_prompt(self, run_context: RunContextWrapper[ContextT]) -> dict[str, Any] | None:
        """Return the provider's prompt, chosen for a context if a function does that.

        Returns:
            Its `id`, `version` and `variables`, None for what it does not name; None without
            a prompt.

        Raises:
            UserError: The function returned something else than a prompt.
        """
        chosen = await chosen_prompt(self, self.prompt, run_context)
        return chosen and {"version": None, "variables": None, **chosen}

    async def get_all_tools(
        self, run_context: RunContextWrapper[ContextT]
    ) -> list[Tool | HostedTool]:
        """Return the tools that the model is offered in a context, those of MCP servers first.

        Raises:
            MCPConnectionError: A server cannot be reached now.
            UserError: Two tools have the same name.
        """
        tools = (*await self.get_mcp_tools(run_context), *self.all_tools)
        own = [tool for tool in tools if not isinstance(tool, HostedTool)]
        try:
            async with asyncio.TaskGroup() as asking:
                asked = {
                    id(tool): asking.create_task(is_offered(tool.is_enabled, run_context, self))
                    for tool in own
                }
        except BaseExceptionGroup as several:
            first = several.exceptions[0]
            raise first from first.__cause__
        return [tool for tool in tools if id(tool) not in asked or asked[id(tool)].result()]

    async def get_mcp_tools(
        self, run_context: RunContextWrapper[ContextT] | None = None
    ) -> list[Tool]:
        """List the tools of the MCP servers as they are now.

        Args:
            run_context: The context for which filter functions are asked; without one, tools that
                a function decides on are listed as well.

        Raises:
            MCPConnectionError: A server cannot be reached now.
            UserError: Two tools have the same name.
            Exception: What a server answered.
        """
        found = await served_tools(users_agent(self), self.mcp_servers, self.mcp_config)
        taken = {tool.qualified_name: "a tool" for tool in self.made_tools}
        taken |= {each.tool_name: "a handoff" for each in self.made_handoffs}
        check_names(self.name, found, taken)
        if run_context is None:
            return [*found]
        agent = users_agent(self)
        return [tool for tool in found if await is_offered(tool.is_enabled, run_context, agent)]

    @property
    def guard_rules(self) -> tuple[GuardRule, ...]:
        """The guardrails as data for a task, input guardrails first."""
        return (*map(guard_rule, self.input_guardrails), *map(guard_rule, self.output_guardrails))

    def team(self) -> tuple[Agent, ...]:
        """List the other agents that handoffs can lead to from this one, nearest first.

        Raises:
            UserError: Two of the agents, this one included, have the same name.
        """
        return walk([self], lambda agent: [each.agent for each in agent.made_handoffs])[1:]

    @known_as("Agent.as_tool")
    def as_tool(  # noqa: PLR0917  the Agents SDK's signature
        self,
        tool_name: str | None = None,
        tool_description: str | None = None,
        custom_output_extractor: Extractor[ResultT] | None = None,
        is_enabled: bool | EnabledPredicate = True,  # noqa: FBT001, FBT002  the Agents SDK's signature
        on_stream: OnStream | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooksBase[Any, Any] | None = None,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        session: Any = None,
        failure_error_function: FailureFormatter | Literal["default"] | None = "default",
        needs_approval: bool | ApprovalPredicate | ApprovalRule = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
        parameters: type[Any] | None = None,
        input_builder: InputBuilder | None = None,
        include_input_schema: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
        on_stream_max_pending_events: int | None = 1024,
        max_depth: int = MAX_DEPTH,
    ) -> AgentTool:
        """Make a tool of this agent: other agents' models call it, and go on with its answer.

        A call is a child task, `<task>~<branch>.<step>.<batch>.<position>`. It sees only its input,
        has its own ledger, and is undone with the step that made it. Its approvals and questions
        are also shown in the calling task.

        Args:
            tool_name: Name of the tool; the agent's own by default, made of letters, digits and _.
            tool_description: Description of the tool for the model.
            custom_output_extractor: Makes the tool's result from the nested RunResult; by default,
                the result is the final output.
            is_enabled: As for a tool.
            on_stream: Called with each event of the nested run, an AgentToolStreamEvent, once the
                nested run has its answer; outside of a task while it runs.
            run_config: Settings of the nested run; those of the calling run by default.
            max_turns: Most model calls of the nested run; None for no limit.
            hooks: As for `Runner.run`; called once the nested run has its answer, in the worker
                process.
            previous_response_id: As for `Runner.run`.
            conversation_id: As for `Runner.run`.
            session: As for `Runner.run`, for calls outside of a task; a task refuses the tool.
            failure_error_function: As for a tool: makes the model's text when the nested run fails.
            needs_approval: As for a tool: whether a reviewer decides before the agent is run.
            parameters: Type of the arguments, a dataclass or a pydantic model, in place of
                {"input": text}.
            input_builder: Makes the nested input, a text or a list of items, from a dict with
                `params`, `summary` and `json_schema`.
            include_input_schema: Whether the nested input shows the JSON Schema of `parameters`.
            on_stream_max_pending_events: Any positive number will do: events wait in the record.
            max_depth: How many nested runs may be inside each other: a call that would be one more,
                as of an agent that is a tool of itself, is refused, and the model reads so.

        Raises:
            UserError: An option cannot be served.
            WrongTypeError: `parameters` is not a type of arguments.
            InvalidArgumentError: The name cannot be used.
        """
        options = RunOptions(
            on_stream=on_stream,
            on_stream_max_pending_events=on_stream_max_pending_events,
            hooks=hooks,
            session=session,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
        )
        check_run_options(options, max_turns, max_depth)
        takes, name = argument_type(parameters, self), tool_name or name_for_models(self.name)
        return AgentTool(
            name=name,
            description=tool_description or "",
            params_json_schema=input_schema(takes, name),
            effect="read",  # the call itself has no effect: the child task undoes its own calls
            needs_approval=needs_approval,
            is_enabled=is_enabled,
            failure_error_function=failure_error_function,
            agent=self,
            takes=takes,
            is_structured=parameters is not None or input_builder is not None,
            extractor=custom_output_extractor,
            max_turns=max_turns,
            max_depth=max_depth,
            run_config=own_config(run_config),
            input_builder=input_builder,
            shows_schema=include_input_schema and parameters is not None,
            options=options,
        )

    def nested(self) -> tuple[Agent, ...]:
        """List the agents that this one calls as tools."""
        called = (tool.agent for tool in self.made_tools if isinstance(tool, AgentTool))
        return tuple(agent for agent in called if isinstance(agent, Agent))

    def _shown(self) -> tuple[str, Mapping[str, object]]:
        """Return what a notebook shows."""
        return f"Agent {self.name}", {
            "model": written(self.model),
            "instructions": written(self.instructions),
            "tools": ", ".join(tool.qualified_name for tool in self.made_tools),
            "handoffs": ", ".join(each.agent.name for each in self.made_handoffs),
            "output": written(self.output_type),
        }

    def tool(self, name: str, began: AgentSnapshot | None = None) -> Tool | None:
        """Return the tool of this name, or the handoff of this name as a tool, or None.

        Args:
            name: The name, after that of the tool's namespace if it has one.
            began: The agent as a task began with it, which knows the tools of MCP servers.
        """
        if began is not None and name in began.served:
            return self.served_tools(began).get(name)
        found = self._offered().get(name)
        if isinstance(found, Handoff):
            return found.tool()
        return found if isinstance(found, Tool) else None

    def served_tools(self, began: AgentSnapshot) -> dict[str, ServerTool]:
        """Make the tools of MCP servers that a task knows; no server is asked.

        Args:
            began: The agent as the task began with it. A server that the agent has lost since then
                has no tools.
        """
        servers = server_keys(self.mcp_servers)
        return {
            name: servers[each.server].made(name, each, users_agent(self), self.mcp_config)
            for name, each in began.served.items()
            if each.server in servers
        }

    def _settings_of_model(self) -> ModelSettings | None:
        if were_given(self.model_settings):
            return None
        if self.model is None and self.prompt is None:
            return default_settings(get_default_model())
        return default_settings(self.model)

    def snapshot(self, model: str, served: Sequence[Tool] = ()) -> AgentSnapshot:
        """Describe this agent as data, without its team.

        Args:
            model: Name of the resolved model.
            served: The tools of its MCP servers.
        """
        self._check_hosted()
        tools = [
            tool
            for tool in (*self.all_tools, *served)
            if isinstance(tool, HostedTool) or tool.is_enabled is not False
        ]
        handoffs = [each for each in self.made_handoffs if each.is_enabled is not False]
        kind = type(self.worker)
        chooser = None if self.tool_retriever is None else type(self.tool_retriever)
        return AgentSnapshot(
            name=self.name,
            instructions=self.instructions if isinstance(self.instructions, str) else "",
            model=model,
            settings=self.model_settings,
            of_model=self._settings_of_model(),
            tools=tuple(tool.spec() for tool in tools),
            handoffs=tuple(each.spec() for each in handoffs),
            policies={
                **{tool.qualified_name: tool.policy() for tool in tools if isinstance(tool, Tool)},
                **{tool.key: tool.policy() for tool in tools if isinstance(tool, HostedMCPTool)},
                **{each.tool_name: each.policy() for each in handoffs},
            },
            served={tool.name: tool.served for tool in served if isinstance(tool, ServerTool)},
            worker=f"{kind.__module__}.{kind.__qualname__}",
            retriever="" if chooser is None else f"{chooser.__module__}.{chooser.__qualname__}",
            is_dynamic=callable(self.instructions),
            prompt=None if self.prompt is None else fixed_prompt(self, self.prompt),
            makes_prompt=callable(self.prompt),
            leaves_model=self.prompt is not None and self.model is None,
            output=None if self.made_output is None else self.made_output.spec(),
            behavior=behavior_code(self.tool_use_behavior),
            keeps_tool_choice=not self.reset_tool_choice,
            guards=self.guard_rules,
            shared=self.shared_name,
        )
