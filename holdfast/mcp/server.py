"""MCPServer: a server whose tools agents use, under the names of the Agents SDK."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import MCPConfig, ServerTool
from holdfast.agents.tools.guardrails import (
    ToolInputGuardrail,
    ToolOutputGuardrail,
    check_tool_guardrails,
)
from holdfast.agents.tools.hooks import FailureFormatter
from holdfast.agents.tools.options import ToolOptions, refuse_option
from holdfast.errors import UserError
from holdfast.mcp.results import read_call_result
from holdfast.mcp.settings import (
    LocalMCPApprovalCallable,
    MCPToolMetaContext,
    MCPToolMetaResolver,
    RequireApprovalSetting,
    ToolFilter,
    approvals_of,
    passes,
)
from holdfast.mcp.tools import check_tool_options, definition_of, made_tool
from holdfast.task.data.agent_snapshot import ServedTool
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from mcp.types import (
        CallToolResult,
        GetPromptResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
    )
    from mcp.types import Tool as MCPTool

UNSET: Any = "default"

_OWNER = "MCP server"


class MCPServer(abc.ABC):
    """A server of tools. Subclass it for a transport of your own.

    Attributes:
        use_structured_content: Whether the model gets a result's structured content instead of its
            texts and images.
        tool_filter: Which of its tools are used: lists of names, or a function that is asked for
            each tool in each turn.
        tool_options: Name of a tool at the server to options of `@tool` that hold for it, such as
            `{"book": {"effect": "reversible", "undo": cancel}}`; they go before what the server
            says of it.
        trusts_annotations: Whether the effect of a tool is what the server says: it reads
            (readOnlyHint), or is idempotent (idempotentHint). Without it, and for tools without
            such hints, a call may have an effect and is not repeatable.
        approves_destructive: Whether calls of tools that the server calls destructive
            (destructiveHint) need an approval.
        tool_meta_resolver: Makes the `_meta` of each call.
        tool_input_guardrails: Checks of the calls of all its tools, before those of `tool_options`.
        tool_output_guardrails: Checks of their results, likewise.
    """

    tool_filter: ToolFilter = None

    def __init__(
        self,
        use_structured_content: bool = False,  # noqa: FBT001, FBT002  the Agents SDK's signature
        require_approval: RequireApprovalSetting = None,
        failure_error_function: FailureFormatter | Literal["default"] | None = UNSET,
        tool_meta_resolver: MCPToolMetaResolver | None = None,
        custom_data_extractor: None = None,
        *,
        tool_options: Mapping[str, ToolOptions] | None = None,
        trusts_annotations: bool = True,
        approves_destructive: bool = False,
        tool_input_guardrails: Sequence[ToolInputGuardrail] | None = None,
        tool_output_guardrails: Sequence[ToolOutputGuardrail] | None = None,
    ) -> None:
        """Take what holds for all tools of the server.

        Args:
            use_structured_content: See above.
            require_approval: Which calls need an approval: "always", "never", True, False, a dict
                of names, lists of names, or a function (run_context, agent, tool).
            failure_error_function: Makes the model's text for a failed call; None lets the error
                end the run. By default that of the agent's `mcp_config`, else the error's own text.
            tool_meta_resolver: See above.
            custom_data_extractor: Not served; None.
            tool_options: See above.
            trusts_annotations: See above.
            approves_destructive: See above.
            tool_input_guardrails: See above.
            tool_output_guardrails: See above.

        Raises:
            UserError: One of these cannot be used.
        """
        refuse_option("of an MCP server", "custom_data_extractor", custom_data_extractor)
        self.use_structured_content = use_structured_content
        self.tool_options = check_tool_options(tool_options or {})
        self.trusts_annotations = trusts_annotations
        self.approves_destructive = approves_destructive
        checks, results = tool_input_guardrails or (), tool_output_guardrails or ()
        check_tool_guardrails(_OWNER, "tool_input_guardrails", checks, ToolInputGuardrail)
        check_tool_guardrails(_OWNER, "tool_output_guardrails", results, ToolOutputGuardrail)
        self.tool_input_guardrails = tuple(checks)
        self.tool_output_guardrails = tuple(results)
        self.tool_meta_resolver = tool_meta_resolver
        self._approvals: bool | dict[str, bool] | LocalMCPApprovalCallable
        self._approvals = approvals_of(require_approval)
        self._failure_error_function: FailureFormatter | Literal["default"] | None
        self._failure_error_function = failure_error_function

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """A readable name; tasks find the server by it, so it should stay the same."""

    @abc.abstractmethod
    async def connect(self) -> None:
        """Connect to the server. Tasks connect by themselves; this is for programs."""

    @abc.abstractmethod
    async def cleanup(self) -> None:
        """End the connection. It is made again when it is needed."""

    @abc.abstractmethod
    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase | None = None
    ) -> list[MCPTool]:
        """List the tools, filtered."""

    @abc.abstractmethod
    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool."""

    @abc.abstractmethod
    async def list_prompts(self) -> ListPromptsResult:
        """List the prompts."""

    @abc.abstractmethod
    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None
    ) -> GetPromptResult:
        """Return a prompt, filled with arguments."""

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """List a page of the resources.

        Args:
            cursor: Where the page before said that this one begins.

        Raises:
            NotImplementedError: This class of servers has none.
        """
        raise self._lacks("list_resources", cursor)

    async def list_resource_templates(
        self, cursor: str | None = None
    ) -> ListResourceTemplatesResult:
        """List a page of the templates of resources.

        Args:
            cursor: As for `list_resources`.

        Raises:
            NotImplementedError: This class of servers has none.
        """
        raise self._lacks("list_resource_templates", cursor)

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return the contents of a resource.

        Raises:
            NotImplementedError: This class of servers has none.
        """
        raise self._lacks("read_resource", uri)

    def _lacks(self, method: str, _argument: str | None) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} {self.name!r} has no {method}.")

    @property
    def cached_tools(self) -> list[MCPTool] | None:
        """The newest list of tools, unfiltered; None without one."""
        return None

    def __repr__(self) -> str:
        """Name the server."""
        return f"<{type(self).__name__} {self.name!r}>"

    async def __aenter__(self) -> Self:
        """Connect."""
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the connection."""
        await self.cleanup()

    async def offered(self) -> Sequence[ServedTool]:
        """List the tools that a task may use as they are now; a filter function is asked later.

        Raises:
            MCPConnectionError: The server cannot be reached now.
            Exception: What it answered.
        """
        tools = await self._all_tools()
        used = [tool for tool in tools if passes(self.tool_filter, tool.name)]
        return [
            ServedTool(server=self.name, name=tool.name, definition=definition_of(tool))
            for tool in used
        ]

    async def _all_tools(self) -> list[MCPTool]:
        """List the tools, unfiltered where the class can do that."""
        return await self.list_tools()

    def made(
        self, name: str, served: ServedTool, agent: AgentBase | None, config: MCPConfig
    ) -> ServerTool:
        """Make the tool that a task, or a program, knows by a name.

        Args:
            name: The name.
            served: The tool as the server has described it.
            agent: The agent that uses it.
            config: Settings of the agent.
        """
        return made_tool(self, name, served, agent, config)

    def needs_approval(self, tool: str) -> bool | LocalMCPApprovalCallable:
        """Whether calls of a tool need an approval, by `require_approval`."""
        found = self._approvals
        if isinstance(found, bool) or callable(found):
            return found
        return found.get(tool, False)

    def failure_text(self, config: MCPConfig) -> FailureFormatter | Literal["default"] | None:
        """Return what makes the model's text for failed calls."""
        if self._failure_error_function != UNSET:
            return self._failure_error_function
        if "failure_error_function" in config:
            return config["failure_error_function"]
        return "default"

    async def prepare(self) -> None:  # noqa: B027  optional
        """Connect before a call; nothing for a class that connects when it is called."""

    async def invoke(self, tool: ServerTool, ctx: ToolContext[Any, Any], arguments: str) -> Any:
        """Run a tool for a task.

        Args:
            tool: The tool.
            ctx: The call.
            arguments: The arguments as JSON text.

        Raises:
            UserError: The tool is gone, or has changed since the task began.
            OutcomeUnknownError: The connection was lost in a call that may not be repeated.
            MCPConnectionError: It was lost again and again.
            Exception: What the server answered.
        """
        values = tool.parse(arguments)
        meta = await self.meta_of(tool, ctx, values)
        result = await self.call_tool(tool.served.name, values, meta)
        return read_call_result(result, structured=self.use_structured_content)

    async def meta_of(
        self, tool: ServerTool, ctx: ToolContext[Any, Any], arguments: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return what is sent with the arguments: the resolver's, and the call's key.

        Raises:
            UserError: The resolver returned something else than a dict.
            Exception: What it raised.
        """
        meta: dict[str, Any] = {}
        if ctx.idempotency_key:
            meta["holdfast/idempotency-key"] = ctx.idempotency_key
        if self.tool_meta_resolver is not None:
            about = MCPToolMetaContext(ctx, self.name, tool.served.name, dict(arguments))
            given: object = await invoke(self.tool_meta_resolver, about)
            if not isinstance(given, dict | None):
                msg = (
                    f"A tool_meta_resolver must return a dict or None; it returned {shown(given)}."
                )
                raise UserError(msg)
            meta |= cast("dict[str, Any]", given or {})
        return meta or None
