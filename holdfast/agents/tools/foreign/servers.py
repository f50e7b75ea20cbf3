"""Tool servers: what an agent needs of an MCP server, whose tools are found at run time."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError
from typing_extensions import TypedDict

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.arguments import ToolArgumentsError, object_of
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.llama_index import tool_name
from holdfast.agents.tools.options import FailureFormatter
from holdfast.agents.tools.tool import Tool
from holdfast.errors import UserError
from holdfast.task.data.calls import Asks, Wait
from holdfast.task.data.head import ServedTool
from holdfast.values.base import Json, digest
from holdfast.values.text.logs import log

if TYPE_CHECKING:
    from mcp.types import ToolAnnotations

LONGEST_NAME = 64


class QuestionAskedError(Exception):
    """A tool wants to know something of a person before its call can be completed.

    Attributes:
        asks: The questions; the call is made again with the answers. Or a wait.
        after: What the attempt came to without them.
    """

    def __init__(self, asks: Asks, after: Any = "") -> None:
        """Take the questions."""
        self.asks: Asks | Wait = asks
        self.after = after
        super().__init__("; ".join(each.message for each in asks.questions))


class MCPConfig(TypedDict, total=False):
    """The settings of an agent's MCP servers.

    Attributes:
        convert_schemas_to_strict: Whether schemas are made strict, where they can be.
        failure_error_function: Makes the model's text for failed calls of servers without one of
            their own; None lets errors end the run.
        include_server_in_tool_names: Whether tools are offered as `mcp_<server>__<tool>`.
    """

    convert_schemas_to_strict: bool
    failure_error_function: FailureFormatter | None
    include_server_in_tool_names: bool


class ToolServer(Protocol):
    """A server of tools. Every MCPServer is one."""

    @property
    def name(self) -> str:
        """A readable name."""
        ...

    async def offered(self) -> Sequence[ServedTool]:
        """List its tools as they are now; `server` of each is its own name."""
        ...

    def made(
        self, name: str, served: ServedTool, agent: AgentBase | None, config: MCPConfig
    ) -> ServerTool:
        """Make the tool that a task knows by a name, without asking the server."""
        ...

    async def prepare(self) -> None:
        """Connect, unless it is connected; called before a tool is run."""
        ...

    async def invoke(self, tool: ServerTool, ctx: ToolContext[Any, Any], arguments: str) -> Any:
        """Run a tool."""
        ...


@dataclass(eq=False, repr=False)
class PreparedTool(Tool[..., Any]):
    """A tool that must be prepared before a call of it is run."""

    async def prepare(
        self, ctx: ToolContext[Any], token: Callable[[], Awaitable[str]], tenant: str, /
    ) -> None:
        """Prepare a call of a tenant; with its token, others may give it an outcome later."""
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class ServerTool(PreparedTool):
    """A tool that a server runs.

    Attributes:
        server: The server.
        served: The tool as the server described it.
    """

    _: KW_ONLY
    server: ToolServer
    served: ServedTool

    @property
    def title(self) -> str:
        """Short name for people that the server gives it, or empty."""
        return title_of(self.served.definition)

    @property
    def mcp_annotations(self) -> ToolAnnotations | None:
        """What the server says of the tool's effect: hints, which it need not keep to.

        A hint that the server leaves out is None, whatever MCP takes for its default. Hints that
        MCP does not have are logged and left out altogether.
        """
        from mcp.types import ToolAnnotations

        said = self.served.definition.get("annotations")
        try:
            return None if said is None else ToolAnnotations.model_validate(said)
        except ValidationError as error:
            server, tool = self.served.server, self.served.name
            log.warning("MCP server %r: hints of tool %r are left out: %s", server, tool, error)
            return None

    def parse(self, arguments: str) -> dict[str, Any]:
        """Return the arguments, if the required ones are there; the server checks the rest.

        Raises:
            ToolArgumentsError: They are no JSON object, or one is missing.
        """
        values = object_of(self.name, arguments)
        required: Any = self.served.definition.get("inputSchema", {}).get("required") or ()
        missing = [name for name in required if name not in values]
        if missing:
            problems = tuple(f"{name}: required, but missing" for name in missing)
            raise ToolArgumentsError(self.name, problems, arguments)
        return values

    async def prepare(self, *_: object) -> None:
        """Connect the server.

        Raises:
            MCPConnectionError: It cannot be reached now.
        """
        await self.server.prepare()

    async def run(self, ctx: ToolContext, arguments: str) -> Any:
        """Run the tool at its server.

        Raises:
            ToolArgumentsError: The arguments do not fit; the server was not asked.
            Exception: See `MCPServer.invoke`.
        """
        self.parse(arguments)
        return await self.server.invoke(self, ctx, arguments)


def title_of(definition: Mapping[str, Json]) -> str:
    """Return the title that a server gives a tool, or empty."""
    return str(definition.get("title") or definition.get("annotations", {}).get("title") or "")


def server_keys(servers: Sequence[ToolServer]) -> dict[str, ToolServer]:
    """Name an agent's servers: a name that several have is numbered from the second on."""
    found: dict[str, ToolServer] = {}
    for server in servers:
        same = sum(other.name == server.name for other in found.values())
        found[f"{server.name}#{same + 1}" if same else server.name] = server
    return found


def check_names(agent: str, tools: Sequence[ServerTool], taken: Mapping[str, str]) -> None:
    """Refuse names of servers' tools that the model could not tell apart.

    Args:
        agent: Name of the agent.
        tools: The tools.
        taken: Names of its other tools and its handoffs, and what each is.

    Raises:
        UserError: A name is there twice.
    """
    keys = Counter((tool.served.server, tool.served.name) for tool in tools)
    for (server, name), often in keys.items():
        if often > 1:  # no call of it could say which one it is for
            msg = f"MCP server {server!r} of agent {agent!r} lists {often} tools named {name!r}."
            remedy = (
                "Give them names of their own at the server, or leave all of them out with"
                f" tool_filter=create_static_tool_filter(blocked_tool_names=[{name!r}])."
            )
            raise UserError(msg, remedy=remedy)
    names = Counter(tool.name for tool in tools)
    twice = sorted(name for name, often in names.items() if often > 1 or name in taken)
    if not twice:
        return
    msg = (
        f"Agent {agent!r} has more than one tool or handoff named {', '.join(map(repr, twice))},"
        " one of them from an MCP server. The model could not tell them apart."
    )
    remedy = (
        "Set mcp_config={'include_server_in_tool_names': True}, or leave one of them out with"
        " tool_filter=."
    )
    raise UserError(msg, remedy=remedy)


def prefixed_name(server: str, tool: str, *, hashed: bool = False) -> str:
    """Return the name of a tool with that of its server, of at most 64 characters.

    Args:
        server: Name of the server.
        tool: Name of the tool at the server.
        hashed: Whether it must differ from the same name of another server and tool.
    """
    name = f"mcp_{_safe(server) or 'server'}__{_safe(tool) or 'tool'}"
    if len(name) <= LONGEST_NAME and not hashed:
        return name
    end = "_" + digest(f"{server}\0{tool}".encode())[:8]
    return name[: LONGEST_NAME - len(end)].rstrip("_-") + end


def _safe(part: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", part).strip("_-")


def public_names(keys: Sequence[tuple[str, str]], *, prefixed: bool) -> list[str]:
    """Return the names under which the model knows servers' tools.

    Args:
        keys: Name of the server and name of the tool, of each.
        prefixed: Whether the name of the server is a part of it.
    """
    if not prefixed:
        return [tool_name(tool) for _, tool in keys]
    first = [prefixed_name(*key) for key in keys]
    return [
        prefixed_name(*key, hashed=first.count(name) > 1)
        for key, name in zip(keys, first, strict=True)
    ]


async def served_tools(
    agent: AgentBase, servers: Sequence[ToolServer], config: MCPConfig
) -> list[ServerTool]:
    """List the tools of an agent's servers as they are now.

    Raises:
        MCPConnectionError: A server cannot be reached now.
        Exception: What a server answered.
    """
    keys = server_keys(servers)
    lists = await asyncio.gather(*(server.offered() for server in keys.values()))
    found = [
        each.model_copy(update={"server": key})
        for key, tools in zip(keys, lists, strict=True)
        for each in tools
    ]
    names = public_names(
        [(each.server, each.name) for each in found],
        prefixed=config.get("include_server_in_tool_names", False),
    )
    return [
        keys[each.server].made(name, each, agent, config)
        for name, each in zip(names, found, strict=True)
    ]
