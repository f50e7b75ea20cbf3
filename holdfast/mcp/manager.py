"""MCPServerManager: connects several servers of a program, and says which of them failed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import MCPConfig, check_names, served_tools
from holdfast.agents.tools.options import FailureFormatter, is_offered
from holdfast.agents.tools.tool import Tool
from holdfast.mcp.server import MCPServer
from holdfast.mcp.tools import definition_of
from holdfast.task.data.head import ServedTool
from holdfast.values.checks.gate import SecondsOrNone, check_fields
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.logs import log

if TYPE_CHECKING:
    from mcp.types import Tool as MCPTool


@dataclass(eq=False, repr=False)
class MCPServerManager:
    """Connects servers together, and ends their connections together.

    Tasks do not need one: a worker process connects the servers of its agents.

    Attributes:
        connect_timeout_seconds: Longest time for each server to connect; None or 0 for no limit.
        cleanup_timeout_seconds: Longest time for each to end.
        drop_failed_servers: Whether `active_servers` leaves out servers that did not connect.
        strict: Whether a server that does not connect raises.
        suppress_cancelled_error: Whether a server that cancels its connection only counts as
            failed.
        connect_in_parallel: Whether all servers are connected at the same time.
    """

    servers: InitVar[Iterable[MCPServer]]
    _: KW_ONLY
    connect_timeout_seconds: SecondsOrNone = 10.0
    cleanup_timeout_seconds: SecondsOrNone = 10.0
    drop_failed_servers: bool = True
    strict: bool = False
    suppress_cancelled_error: bool = True
    connect_in_parallel: bool = False

    def __post_init__(self, servers: Iterable[MCPServer]) -> None:
        """Take the servers; nothing is connected yet."""
        times = ("connect_timeout_seconds", "cleanup_timeout_seconds")
        check_fields(MCPServerManager, self, times)
        self._servers = list(dict.fromkeys(servers))
        self._connected: dict[MCPServer, None] = {}
        self._errors: dict[MCPServer, BaseException] = {}

    @property
    def active_servers(self) -> list[MCPServer]:
        """The servers that are connected; all of them, if failed ones are not dropped."""
        kept = self._connected if self.drop_failed_servers else self._servers
        return [server for server in self._servers if server in kept]

    @property
    def all_servers(self) -> list[MCPServer]:
        """All servers."""
        return [*self._servers]

    @property
    def failed_servers(self) -> list[MCPServer]:
        """The servers that did not connect."""
        return [server for server in self._servers if server in self._errors]

    @property
    def errors(self) -> dict[MCPServer, BaseException]:
        """Why they did not."""
        return {**self._errors}

    async def __aenter__(self) -> Self:
        """Connect all servers."""
        await self.connect_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all connections."""
        await self.cleanup_all()

    async def connect_all(self) -> list[MCPServer]:
        """Connect all servers; return the connected ones.

        Raises:
            Exception: What went wrong first, when the manager is strict.
        """
        return await self._connect(self._servers)

    async def reconnect(self, *, failed_only: bool = True) -> list[MCPServer]:
        """Connect servers again; return the connected ones.

        Args:
            failed_only: Whether to connect only servers that did not connect.

        Raises:
            Exception: What went wrong first, when the manager is strict.
        """
        if failed_only:
            return await self._connect(self.failed_servers)
        await self.cleanup_all()
        return await self._connect(self._servers)

    async def cleanup_all(self) -> None:
        """End all connections; what goes wrong is logged."""
        for server in reversed(self._servers):
            try:
                async with asyncio.timeout(self.cleanup_timeout_seconds or None):
                    await server.cleanup()
            except Exception:
                log.exception("MCP server %r could not be ended", server.name)
        self._connected.clear()

    async def _connect(self, servers: list[MCPServer]) -> list[MCPServer]:
        if self.connect_in_parallel:
            await asyncio.gather(*map(self._try, servers))
        else:
            for server in servers:
                await self._try(server)
        first = next((self._errors[each] for each in servers if each in self._errors), None)
        if self.strict and first is not None:
            await self.cleanup_all()
            raise first
        return self.active_servers

    async def _try(self, server: MCPServer) -> None:
        self._errors.pop(server, None)
        self._connected.pop(server, None)
        try:
            async with asyncio.timeout(self.connect_timeout_seconds or None):
                await server.connect()
        except asyncio.CancelledError as error:
            ours = asyncio.current_task()
            if not self.suppress_cancelled_error or (ours is not None and ours.cancelling()):
                raise
            self._errors[server] = error
        except Exception as error:  # noqa: BLE001  kept in `errors`
            log.warning("MCP server %r did not connect: %s", server.name, error)
            self._errors[server] = error
        else:
            self._connected[server] = None


# MCPUtil: what the Agents SDK offers for tools of servers that are listed by hand.


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


def _config(strict: bool, failure_text: FailureFormatter | Literal["default"] | None) -> MCPConfig:
    """Return the settings of an agent that say this."""
    config: MCPConfig = {"convert_schemas_to_strict": strict}
    if failure_text != "default":
        config["failure_error_function"] = failure_text
    return config
