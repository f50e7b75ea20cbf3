"""MCPUtil: what the Agents SDK offers for tools of servers that are listed by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import MCPConfig, check_names, served_tools
from holdfast.agents.tools.options import FailureFormatter, is_offered
from holdfast.agents.tools.tool import Tool
from holdfast.mcp.server import MCPServer
from holdfast.mcp.tools import definition_of
from holdfast.task.data.head import ServedTool
from holdfast.values.runs.run_context import RunContextWrapper

if TYPE_CHECKING:
    from mcp.types import Tool as MCPTool


class MCPUtil:
    """Makes tools of servers by hand, for `Agent(tools=...)`. `Agent(mcp_servers=...)` is simpler.

    A task finds such a tool in the process that made it, or in one that makes it likewise.
    """

    @staticmethod
    async def get_all_function_tools(
        servers: Sequence[MCPServer],
        convert_schemas_to_strict: bool,
        run_context: RunContextWrapper[Any],
        agent: AgentBase,
        failure_error_function: FailureFormatter | Literal["default"] | None = "default",
        include_server_in_tool_names: bool = False,
        reserved_tool_names: Collection[str] | None = None,
    ) -> list[Tool]:
        """List the tools of servers, filtered, as tools for agents.

        Args:
            servers: The servers.
            convert_schemas_to_strict: Whether schemas are made strict, where they can be.
            run_context: The run's context, for filter functions.
            agent: The agent, likewise.
            failure_error_function: Makes the model's text for failed calls of servers without one
                of their own.
            include_server_in_tool_names: Whether tools are named `mcp_<server>__<tool>`.
            reserved_tool_names: Names that no tool may have.

        Raises:
            UserError: Two tools have one name.
            MCPConnectionError: A server cannot be reached now.
        """
        config = _config(convert_schemas_to_strict, failure_error_function)
        config["include_server_in_tool_names"] = include_server_in_tool_names
        found = await served_tools(agent, servers, config)
        tools = [tool for tool in found if await is_offered(tool.is_enabled, run_context, agent)]
        taken = dict.fromkeys(reserved_tool_names or (), "a reserved name")
        check_names(agent.name, tools, taken)
        return [*tools]

    @staticmethod
    async def get_function_tools(
        server: MCPServer,
        convert_schemas_to_strict: bool,
        run_context: RunContextWrapper[Any],
        agent: AgentBase,
        failure_error_function: FailureFormatter | Literal["default"] | None = "default",
        include_server_in_tool_names: bool = False,
        reserved_tool_names: Collection[str] | None = None,
    ) -> list[Tool]:
        """List the tools of one server; see `get_all_function_tools`."""
        return await MCPUtil.get_all_function_tools(
            [server],
            convert_schemas_to_strict,
            run_context,
            agent,
            failure_error_function,
            include_server_in_tool_names,
            reserved_tool_names,
        )

    @staticmethod
    def to_function_tool(
        tool: MCPTool,
        server: MCPServer,
        convert_schemas_to_strict: bool,
        agent: AgentBase | None = None,
        failure_error_function: FailureFormatter | Literal["default"] | None = "default",
        tool_name_override: str | None = None,
    ) -> Tool:
        """Make a tool for agents of a server's tool; see `get_all_function_tools`."""
        config = _config(convert_schemas_to_strict, failure_error_function)
        served = ServedTool(server=server.name, name=tool.name, definition=definition_of(tool))
        return server.made(tool_name_override or tool.name, served, agent, config)

    @staticmethod
    async def invoke_mcp_tool(
        server: MCPServer, tool: MCPTool, context: RunContextWrapper[Any], input_json: str
    ) -> Any:
        """Call a tool outside of a task, and return its result as tools return it.

        Raises:
            UserError: The context is not that of a tool call.
            Exception: As for `MCPServer.invoke`.
        """
        if not isinstance(context, ToolContext):
            context = ToolContext(context.context, tool_name=tool.name, tool_arguments=input_json)
        made: Any = MCPUtil.to_function_tool(tool, server, convert_schemas_to_strict=False)
        return await made.run(context, input_json)


def _config(
    strict: bool,
    failure_text: FailureFormatter | Literal["default"] | None,
) -> MCPConfig:
    """Return the settings of an agent that say this."""
    config: MCPConfig = {"convert_schemas_to_strict": strict}
    if failure_text != "default":
        config["failure_error_function"] = failure_text
    return config
