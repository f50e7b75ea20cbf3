"""MCPServer: a server whose tools agents use, under the names of the Agents SDK."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, cast

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.guardrails import check_guardrails
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import MCPConfig, ServerTool
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.options import FailureFormatter, ToolOptions, refuse_option
from holdfast.errors import UserError
from holdfast.mcp.calls import Inquiries, ServerCall
from holdfast.mcp.connection import Connection, asked, checked, listing, on_loop, pages, timed
from holdfast.mcp.results import read_call_result
from holdfast.mcp.tools import (
    LocalMCPApprovalCallable,
    MCPToolMetaContext,
    MCPToolMetaResolver,
    RequireApprovalSetting,
    ToolFilter,
    ToolFilterContext,
    approvals_of,
    check_tool_options,
    check_unchanged,
    definition_of,
    is_used,
    made_tool,
    passes,
)
from holdfast.task.data.head import ServedTool
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import (
        CallToolResult,
        ElicitRequestParams,
        ElicitResult,
        GetPromptResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ReadResourceResult,
    )
    from mcp.types import Tool as MCPTool

UNSET: Any = "default"

_OWNER = "an MCP server"


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
        use_structured_content: bool = False,
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
        check_guardrails(_OWNER, "tool_input_guardrails", checks, ToolInputGuardrail)
        check_guardrails(_OWNER, "tool_output_guardrails", results, ToolOutputGuardrail)
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

    async def __aexit__(self, *_: object) -> None:
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
                raise UserError(
                    f"A tool_meta_resolver must return a dict or None; it returned {shown(given)}."
                )
            meta |= cast("dict[str, Any]", given or {})
        return meta or None


# Servers that are asked by a session of MCP.

T = TypeVar("T")
ParamsT = TypeVar("ParamsT")


class ClientServer(MCPServer, Generic[ParamsT]):
    """A server that is reached by the client of the `mcp` package.

    It is connected by the process that runs a task, whatever connected before: in a worker process
    nothing need be called. The connection is kept, shared by all tasks and loops of the process,
    and made again when it was lost.

    Attributes:
        params: How it is started or reached.
        cache_tools_list: Whether those who list its tools get the list of before.
        client_session_timeout_seconds: Longest time of a request, and of a call that has no
            `timeout_seconds` in `tool_options`; None for no limit.
        max_retry_attempts: How often a request that failed is made again; -1 for without end. In a
            task, only calls that may be repeated are.
        max_list_pages: Most pages of a list of its tools or prompts; None for 1,000.
        protocol_mode: Which versions of the protocol are spoken.
    """

    def __init__(
        self,
        params: ParamsT,
        cache_tools_list: bool = False,
        name: str | None = None,
        client_session_timeout_seconds: float | None = 5,
        tool_filter: ToolFilter = None,
        use_structured_content: bool = False,
        max_retry_attempts: int = 0,
        retry_backoff_seconds_base: float = 1.0,
        message_handler: Any = None,
        require_approval: RequireApprovalSetting = None,
        failure_error_function: FailureFormatter | Literal["default"] | None = UNSET,
        tool_meta_resolver: MCPToolMetaResolver | None = None,
        custom_data_extractor: None = None,
        retry_backoff_seconds_max: float | None = None,
        *,
        tool_options: Mapping[str, ToolOptions] | None = None,
        trusts_annotations: bool = True,
        approves_destructive: bool = False,
        tool_input_guardrails: Sequence[ToolInputGuardrail] | None = None,
        tool_output_guardrails: Sequence[ToolOutputGuardrail] | None = None,
        max_list_pages: int | None = None,
        protocol_mode: Literal["auto", "legacy"] = "auto",
    ) -> None:
        """Describe the server; nothing is started or connected yet.

        Args:
            params: How it is started or reached.
            cache_tools_list: Whether its list of tools is asked for only once by those who list
                tools, until the server says that it has changed.
            name: A readable name, by which tasks find the server; by default made of
                the command or the URL.
            client_session_timeout_seconds: Longest time of a request or a call; None or 0 for no
                limit. A call that is cut off and may have had an effect is *unknown*.
            tool_filter: As for MCPServer, like all that are not named here.
            use_structured_content: See there.
            max_retry_attempts: How often a request that failed is made again; -1 for without end.
                In a task, only calls that may be repeated are.
            retry_backoff_seconds_base: Seconds before the second repetition; each next pause is
                twice as long.
            message_handler: Called with each notification of the server.
            require_approval: See there.
            failure_error_function: See there.
            tool_meta_resolver: See there.
            custom_data_extractor: Not served; None.
            retry_backoff_seconds_max: The longest such pause; 30 by default.
            tool_options: See there.
            trusts_annotations: See there.
            approves_destructive: See there.
            tool_input_guardrails: See there.
            tool_output_guardrails: See there.
            max_list_pages: Most pages of a list of its tools or prompts; None for 1,000.
            protocol_mode: "legacy" speaks the protocol of 2025 even to a server that knows that of
                2026: for one that asks in the middle of its calls.

        Raises:
            UserError: One of these cannot be used.
            InvalidArgumentError: A number is out of range.
        """
        self.params = params
        super().__init__(
            use_structured_content,
            require_approval,
            failure_error_function,
            tool_meta_resolver,
            custom_data_extractor,
            tool_options=tool_options,
            trusts_annotations=trusts_annotations,
            approves_destructive=approves_destructive,
            tool_input_guardrails=tool_input_guardrails,
            tool_output_guardrails=tool_output_guardrails,
        )
        self._name = name or self._default_name()
        self.tool_filter = tool_filter
        self.cache_tools_list = cache_tools_list
        seconds = checked(client_session_timeout_seconds=client_session_timeout_seconds)
        self.client_session_timeout_seconds = seconds or None
        self.max_retry_attempts = max_retry_attempts
        self.max_list_pages = checked(max_list_pages=max_list_pages)
        self.protocol_mode = protocol_mode
        self._handler = message_handler
        self._listed: list[MCPTool] | None = None
        self._is_stale = True
        self._inquiries = Inquiries()
        self._is_held = False
        self._connection = Connection(
            self._name,
            self._connector,
            self._client_options,
            first_pause=checked(retry_backoff_seconds_base=retry_backoff_seconds_base) or 0,
            longest_pause=checked(retry_backoff_seconds_max=retry_backoff_seconds_max),
        )

    def _default_name(self) -> str:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """A readable name."""
        return self._name

    def _connector(self) -> Any:
        raise NotImplementedError

    def _client_options(self) -> dict[str, Any]:
        self._is_stale = True
        self._inquiries = Inquiries()
        return {
            "message_handler": self._notified,
            "elicitation_callback": self._elicited,
            "mode": self.protocol_mode,
        }

    async def _elicited(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        return await self._inquiries.elicited(context, params)

    async def _notified(self, message: Any) -> None:
        """Note that the server has other tools, and hand the message to the user's handler."""
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self.invalidate_tools_cache()
        if self._handler is not None:
            await invoke(self._handler, message)

    def invalidate_tools_cache(self) -> None:
        """Ask the server for its tools when they are needed next."""
        self._is_stale = True

    async def _asked(self, request: Callable[[Client], Awaitable[T]]) -> T:
        limited = timed(request, self.client_session_timeout_seconds, self.name)
        return await on_loop(asked(self._connection, limited, repeats=self.max_retry_attempts))

    async def connect(self) -> None:
        """Connect now. Tasks connect by themselves.

        Raises:
            MCPConnectionError: The server cannot be reached now.
            UserError: It cannot be started as it is described.
        """
        self._is_held = True
        await on_loop(self._connected())

    async def _connected(self) -> None:
        await self._connection.client()

    async def cleanup(self) -> None:
        """End the connection, and the process of a stdio server."""
        self._is_held = False
        await on_loop(self._connection.close())

    @property
    def is_busy(self) -> bool:
        """Whether a call of a task is in progress."""
        return self._inquiries.is_busy

    async def let_go(self) -> None:
        """End the connection that tasks have opened, but none that the program has."""
        if not self._is_held:
            await self.cleanup()

    @property
    def cached_tools(self) -> list[MCPTool] | None:
        """The newest list of tools, unfiltered; None before the first."""
        return None if self._listed is None else [*self._listed]

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase | None = None
    ) -> list[MCPTool]:
        """List the tools, filtered.

        Args:
            run_context: The run's context; a filter function needs it.
            agent: The agent; likewise.

        Raises:
            UserError: A filter function was not given these.
            MCPConnectionError: The server cannot be reached now.
        """
        tools = [tool for tool in await self._all_tools() if passes(self.tool_filter, tool.name)]
        asks = self.tool_filter
        if not callable(asks):
            return tools
        if run_context is None or agent is None:
            raise UserError("run_context and agent are required for dynamic tool filtering")
        context = ToolFilterContext(run_context, agent, self.name)
        return [tool for tool in tools if await is_used(asks, context, tool)]

    async def _all_tools(self) -> list[MCPTool]:
        if self.cache_tools_list and not self._is_stale and self._listed is not None:
            return self._listed
        return await self._fetched()

    async def _fetched(self) -> list[MCPTool]:
        """Ask the server for all its tools."""
        self._is_stale = False
        found: list[MCPTool] = []

        async def fetch(client: Client) -> list[MCPTool]:
            found.clear()
            what, most = f"MCP server {self.name!r} lists its tools", self.max_list_pages
            async for page in pages(lambda at: client.list_tools(cursor=at), what, most):
                found.extend(page.tools)
            return found

        try:
            self._listed = await self._asked(fetch)
        except BaseException:
            self._is_stale = True
            raise
        return self._listed

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool, outside of a task; made again `max_retry_attempts` times if it fails.

        Raises:
            MCPConnectionError: The server cannot be reached, or was lost in the call.
            MCPError: What the server answered.
        """
        return await self._asked(
            lambda client: client.call_tool(tool_name, arguments, meta=cast("Any", meta))
        )

    async def list_prompts(self) -> ListPromptsResult:
        """List the prompts, of all pages.

        Raises:
            MCPConnectionError: The server cannot be reached now.
            MCPError: What the server answered, such as that it has none.
        """

        async def fetch(client: Client) -> ListPromptsResult:
            what = f"MCP server {self.name!r} lists its prompts"
            asks = pages(lambda at: client.list_prompts(cursor=at), what, self.max_list_pages)
            listed = [page async for page in asks]
            found = [prompt for page in listed for prompt in page.prompts]
            return listed[-1].model_copy(update={"prompts": found, "next_cursor": None})

        return await self._asked(fetch)

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None
    ) -> GetPromptResult:
        """Return a prompt, filled with arguments.

        Raises:
            MCPConnectionError: The server cannot be reached now.
            MCPError: What the server answered.
        """
        return await self._asked(lambda client: client.get_prompt(name, arguments))

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """List a page of the resources; see `MCPServer.list_resources`."""
        return await self._asked(lambda client: client.list_resources(cursor=cursor))

    async def list_resource_templates(
        self, cursor: str | None = None
    ) -> ListResourceTemplatesResult:
        """List a page of the templates; see `MCPServer.list_resource_templates`."""
        return await self._asked(lambda client: client.list_resource_templates(cursor=cursor))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return the contents of a resource.

        Raises:
            MCPConnectionError: The server cannot be reached now.
            MCPError: What the server answered.
        """
        return await self._asked(lambda client: client.read_resource(uri))

    async def offered(self) -> Sequence[ServedTool]:
        """List the tools that a task may use as they are now; see `MCPServer.offered`.

        Raises:
            MCPConnectionError: It cannot be reached now.
            UserError: It gave no list that can be read.
        """
        with listing(self.name):
            return await super().offered()

    async def prepare(self) -> None:
        """Connect before a call, and find out whether the server lives and what it offers now.

        Raises:
            MCPConnectionError: It cannot be reached now; the call has not been made.
            UserError: It gave no list that can be read; the call has not been made either.
        """
        with listing(self.name):
            await self._fetched()

    async def invoke(self, tool: ServerTool, ctx: ToolContext[Any, Any], arguments: str) -> Any:
        """Run a tool for a task; see `MCPServer.invoke`."""
        values = tool.parse(arguments)
        if self._listed is None or self._is_stale:
            await self.prepare()
        check_unchanged(tool.served, self._now(tool.served.name), self.name)
        meta = await self.meta_of(tool, ctx, values)

        async def ready() -> Client:
            """Return the client, which has listed the tools: else it would do so after the call."""
            client = await self._connection.client()
            if not self._is_stale:
                return client
            await self.prepare()
            check_unchanged(tool.served, self._now(tool.served.name), self.name)
            return await self._connection.client()

        made = ServerCall(
            connection=self._connection,
            ready=ready,
            inquiries=self._inquiries,
            tool=tool,
            arguments=values,
            meta=meta,
            answers=ctx.answers,
            resume=ctx.resume,
            repeats=self.max_retry_attempts,
            structured=self.use_structured_content,
        )
        result = await on_loop(made.result())
        return read_call_result(result, structured=self.use_structured_content)

    def _now(self, name: str) -> ServedTool | None:
        """Return a tool as the server describes it now; None when it has none, or a filter."""
        if not passes(self.tool_filter, name):
            return None
        found = (tool for tool in self._listed or () if tool.name == name)
        return next(
            (ServedTool(server=self.name, name=name, definition=definition_of(t)) for t in found),
            None,
        )
