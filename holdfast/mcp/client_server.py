"""ClientServer: an MCP server that is reached by the client of the `mcp` package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import ServerTool
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.hooks import FailureFormatter
from holdfast.agents.tools.options import ToolOptions
from holdfast.errors import UserError
from holdfast.mcp.calls import Inquiries, ServerCall
from holdfast.mcp.connection import Connection, asked, checked_pages, listing, on_loop, pages, timed
from holdfast.mcp.results import read_call_result
from holdfast.mcp.server import UNSET, MCPServer
from holdfast.mcp.settings import (
    MCPToolMetaResolver,
    RequireApprovalSetting,
    ToolFilter,
    ToolFilterContext,
    checked_timeout,
    passes,
)
from holdfast.mcp.tools import check_unchanged, definition_of, is_used
from holdfast.task.data.agent_snapshot import ServedTool
from holdfast.values.code.user_calls import invoke
from holdfast.values.runs.run_context import RunContextWrapper

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
        self.client_session_timeout_seconds = checked_timeout(client_session_timeout_seconds)
        self.max_retry_attempts = max_retry_attempts
        self.max_list_pages = checked_pages(max_list_pages)
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
            first_pause=retry_backoff_seconds_base,
            longest_pause=retry_backoff_seconds_max,
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
