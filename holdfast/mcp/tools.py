"""Tools of MCP servers as tools of agents: effect, approval, schema, and whether they changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, cast

from typing_extensions import TypedDict

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import MCPConfig, ServerTool, ToolServer, title_of
from holdfast.agents.tools.functions.schema import is_same_shape, strict_schema
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.options import Asked, FailureFormatter, ToolOptions, answer_of
from holdfast.errors import DeclarationError, UserError
from holdfast.task.data.head import ServedTool
from holdfast.values.base import Json
from holdfast.values.checks.gate import safe_text
from holdfast.values.code.user_calls import invoke, naming, yes_or_no
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from mcp.types import Tool as MCPTool

    from holdfast.agents.agent_base import AgentBase


class HttpClientFactory(Protocol):
    """Makes the HTTP client of a server: an `httpx2.AsyncClient`."""

    def __call__(
        self, headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
    ) -> Any:
        """Make a client."""
        ...


class MCPServerStdioParams(TypedDict):
    """How a server is started as a process of the worker's machine.

    Attributes:
        command: The program.
        args: Its arguments.
        env: Environment variables, besides the few that are passed on from this process.
        cwd: Its working directory.
        encoding: Encoding of its input and output; "utf-8" by default.
        encoding_error_handler: What is done about bytes that do not fit it.
    """

    command: str
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    cwd: NotRequired[str | Path]
    encoding: NotRequired[str]
    encoding_error_handler: NotRequired[Literal["strict", "ignore", "replace"]]


class MCPServerSseParams(TypedDict):
    """How a server is reached over HTTP with server-sent events.

    Attributes:
        url: Its address.
        headers: Headers of each request.
        timeout: Seconds for a request; 5 by default.
        sse_read_timeout: Seconds without an event after which the connection counts as lost.
        httpx_client_factory: Makes the HTTP client.
        auth: An `httpx2.Auth`.
    """

    url: str
    headers: NotRequired[dict[str, str]]
    timeout: NotRequired[float]
    sse_read_timeout: NotRequired[float]
    httpx_client_factory: NotRequired[HttpClientFactory]
    auth: NotRequired[Any]


class MCPServerStreamableHttpParams(MCPServerSseParams):
    """How a server is reached over streamable HTTP.

    Attributes:
        terminate_on_close: Whether the session is ended at the server as well; it is by default.
    """

    terminate_on_close: NotRequired[bool]


class ToolFilterStatic(TypedDict, total=False):
    """Which tools of a server are used.

    Attributes:
        allowed_tool_names: Only these.
        blocked_tool_names: All but these.
    """

    allowed_tool_names: list[str]
    blocked_tool_names: list[str]


@dataclass
class ToolFilterContext:
    """What a tool filter knows of the turn for which it is asked.

    Attributes:
        run_context: The run's context.
        agent: The agent whose turn it is.
        server_name: Name of the server.
    """

    run_context: RunContextWrapper[Any]
    agent: AgentBase
    server_name: str


if TYPE_CHECKING:
    ToolFilterCallable = Callable[[ToolFilterContext, MCPTool], bool | Awaitable[bool]]
    """Decides whether an agent sees a tool of a server."""
    LocalMCPApprovalCallable = Callable[
        [RunContextWrapper[Any], AgentBase, MCPTool],
        bool | ApprovalRule | Awaitable[bool | ApprovalRule],
    ]
    """Decides whether a call of a server's tool needs a person's approval."""
else:
    ToolFilterCallable = Callable[..., Any]
    """Decides whether an agent sees a tool of a server."""
    LocalMCPApprovalCallable = Callable[..., Any]
    """Decides whether a call of a server's tool needs a person's approval."""

ToolFilter = ToolFilterCallable | ToolFilterStatic | None
"""A function (context, tool), asked for each tool in each turn, or lists of names."""


def create_static_tool_filter(
    allowed_tool_names: list[str] | None = None, blocked_tool_names: list[str] | None = None
) -> ToolFilterStatic | None:
    """Make a filter of lists of names; None when there is no list.

    Args:
        allowed_tool_names: The only tools that are used.
        blocked_tool_names: Tools that are not used.
    """
    made: ToolFilterStatic = {}
    if allowed_tool_names is not None:
        made["allowed_tool_names"] = allowed_tool_names
    if blocked_tool_names is not None:
        made["blocked_tool_names"] = blocked_tool_names
    return made or None


def passes(tool_filter: ToolFilter, name: str) -> bool:
    """Whether lists of names let a tool pass; a function is asked in each turn instead."""
    if tool_filter is None or callable(tool_filter):
        return True
    allowed = tool_filter.get("allowed_tool_names")
    blocked = tool_filter.get("blocked_tool_names", ())
    return (allowed is None or name in allowed) and name not in blocked


@dataclass
class MCPToolMetaContext:
    """The call for which a `tool_meta_resolver` is asked.

    Attributes:
        run_context: The call's context.
        server_name: Name of the server.
        tool_name: Name of the tool at the server.
        arguments: The arguments.
    """

    run_context: RunContextWrapper[Any]
    server_name: str
    tool_name: str
    arguments: dict[str, Any] | None


MCPToolMetaResolver = Callable[
    [MCPToolMetaContext], dict[str, Any] | Awaitable[dict[str, Any] | None] | None
]
"""Returns what is sent with the arguments of a call, as MCP's `_meta`; None for nothing."""

Policy = Literal["always", "never"]


class RequireApprovalToolList(TypedDict, total=False):
    """Names of tools, as a part of `require_approval`."""

    tool_names: list[str]


class RequireApprovalObject(TypedDict, total=False):
    """Which tools need an approval for each call, and which need none."""

    always: RequireApprovalToolList
    never: RequireApprovalToolList


RequireApprovalSetting = (
    Policy | RequireApprovalObject | dict[str, Policy] | LocalMCPApprovalCallable | bool | None
)
"""Which calls need an approval: all, none, by the tool's name, or a function (run_context, agent,
tool)."""


def approvals_of(setting: Any) -> bool | dict[str, bool] | LocalMCPApprovalCallable:
    """Read a `require_approval`.

    Returns:
        Whether all calls need one, or tool name to whether its calls do, or the function.

    Raises:
        UserError: It cannot be read.
    """
    if setting is None or isinstance(setting, bool):
        return bool(setting)
    if isinstance(setting, str):
        return _needed(setting)
    if isinstance(setting, dict):
        given = cast("dict[str, Any]", setting)
        values: list[object] = list(given.values())
        is_lists = bool(values) and all(isinstance(each, dict) for each in values)
        if not is_lists:
            return {name: _needed(policy) for name, policy in given.items()}
        if not given.keys() <= {"always", "never"}:
            raise _unreadable(given)
        found = dict.fromkeys(_names(given, "always"), True)
        return found | dict.fromkeys(_names(given, "never"), False)
    if callable(setting):
        return cast("LocalMCPApprovalCallable", setting)
    raise _unreadable(setting)


def _needed(policy: object) -> bool:
    if policy not in ("always", "never"):
        raise _unreadable(policy)
    return policy == "always"


def _names(given: dict[str, Any], policy: str) -> list[str]:
    names: Any = given.get(policy, {}).get("tool_names", [])
    if not isinstance(names, list) or not all(
        isinstance(name, str) for name in cast("list[object]", names)
    ):
        raise _unreadable(given)
    return cast("list[str]", names)


def _unreadable(given: object) -> UserError:
    return UserError(
        f"require_approval={shown(given)} cannot be read. Give 'always', 'never', True, False,"
        " {'tool name': 'always' or 'never'}, {'always': {'tool_names': [...]}, 'never':"
        " {'tool_names': [...]}}, or a function (run_context, agent, tool)."
    )


_BY_SERVER = frozenset(
    {
        "name",
        "name_override",
        "description",
        "description_override",
        "docstring_style",
        "use_docstring_info",
        "strict",
        "strict_mode",
        "output_type",
    }
)
"""Options of `@tool` that a server's tool has from its server."""


class ServerSettings(ToolServer, Protocol):
    """What is set for all tools of a server; see MCPServer."""

    @property
    def tool_options(self) -> Mapping[str, dict[str, Any]]:
        """Options of tools by name."""
        ...

    @property
    def trusts_annotations(self) -> bool:
        """Whether the effect of a tool is what the server says."""
        ...

    @property
    def approves_destructive(self) -> bool:
        """Whether destructive calls need an approval."""
        ...

    @property
    def tool_input_guardrails(self) -> Sequence[ToolInputGuardrail]:
        """Checks of the calls of all tools."""
        ...

    @property
    def tool_output_guardrails(self) -> Sequence[ToolOutputGuardrail]:
        """Checks of the results of all tools."""
        ...

    @property
    def tool_filter(self) -> ToolFilter:
        """Which tools are used."""
        ...

    def needs_approval(self, tool: str) -> bool | LocalMCPApprovalCallable:
        """Whether calls of a tool need an approval."""
        ...

    def failure_text(self, config: MCPConfig) -> FailureFormatter | Literal["default"] | None:
        """Return what makes the model's text for failed calls."""
        ...


def check_tool_options(given: Mapping[str, ToolOptions]) -> dict[str, dict[str, Any]]:
    """Return options of tools by name, in the names of Tool's attributes.

    Raises:
        DeclarationError: A server's tool cannot have one of them.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, options in given.items():
        own = dict(cast("Mapping[str, Any]", options))
        if "timeout" in own:
            own.setdefault("timeout_seconds", own.pop("timeout"))
        wrong = own.keys() & _BY_SERVER or own.keys() - ToolOptions.__annotations__.keys()
        if wrong:
            raise DeclarationError(
                f"tool_options of {name!r} cannot hold {', '.join(sorted(wrong))}: name, texts and"
                " schema come from the server, and the rest are options of @tool."
            )
        found[name] = own
    return found


def definition_of(tool: MCPTool) -> dict[str, Json]:
    """Return a tool as its server described it, as JSON data."""
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)


def made_tool(
    server: ServerSettings,
    name: str,
    served: ServedTool,
    agent: AgentBase | None,
    config: MCPConfig,
) -> ServerTool:
    """Make a tool; see `MCPServer.made`."""
    definition = served.definition
    options = _options(server, served, agent)
    options.setdefault("failure_error_function", server.failure_text(config))
    if options["failure_error_function"] == "default":
        options["failure_error_function"] = error_text
    schema: dict[str, Json] = {"properties": {}, **definition.get("inputSchema", {})}
    is_strict = False
    if config.get("convert_schemas_to_strict", False):
        try:
            schema, is_strict = strict_schema(schema, what=f"tool {name!r}"), True
        except UserError as error:
            log.info("The schema of MCP tool %r stays as it is: %s", name, error)
    return ServerTool(
        name=name,
        description=str(definition.get("description") or title_of(definition)),
        params_json_schema=schema,
        strict_json_schema=is_strict,
        server=server,
        served=served,
        **options,
    )


def _options(server: ServerSettings, served: ServedTool, agent: AgentBase | None) -> dict[str, Any]:
    """Return the options of a tool: the user's, else what the server says."""
    own = server.tool_options.get(served.name, {})
    hints: dict[str, Json] = served.definition.get("annotations", {})
    reads = hints.get("readOnlyHint") is True
    options: dict[str, Any] = {}
    if server.trusts_annotations:
        if reads and not own.get("undo"):
            options["effect"] = "read"
        elif hints.get("idempotentHint") is True:
            options["idempotent"] = True
    if "needs_approval" not in own:
        options["needs_approval"] = _approval(server, served, agent)
        if server.approves_destructive and hints.get("destructiveHint") is True and not reads:
            options["needs_approval"] = True
    if callable(server.tool_filter):
        options["is_enabled"] = _filtered(server, server.tool_filter, served)
    seconds = getattr(server, "client_session_timeout_seconds", None)
    guardrails = {
        "tool_input_guardrails": server.tool_input_guardrails,
        "tool_output_guardrails": server.tool_output_guardrails,
    }
    guards = {name: [*checks, *(own.get(name) or ())] for name, checks in guardrails.items()}
    return {"timeout_seconds": seconds or None, **options, **own, **guards}


def _approval(server: ServerSettings, served: ServedTool, agent: AgentBase | None) -> Any:
    """Return a tool's `needs_approval`."""
    found = server.needs_approval(served.name)
    if isinstance(found, bool):
        return found
    what = f"require_approval of MCP server {server.name!r}"

    async def asks(ctx: ToolContext[Any, Any], _arguments: dict[str, Any], _call_id: str) -> Asked:
        caller = ctx.agent if ctx.agent is not None else agent
        with naming(what, found):
            return answer_of(found, await invoke(found, ctx, caller, tool_of(served)))

    return asks


def _filtered(server: ServerSettings, asked: ToolFilterCallable, served: ServedTool) -> Any:
    async def is_enabled(ctx: Any, agent: Any) -> bool:
        about = ToolFilterContext(run_context=ctx, agent=agent, server_name=server.name)
        return await is_used(asked, about, tool_of(served))

    return is_enabled


async def is_used(asked: ToolFilterCallable, context: ToolFilterContext, tool: MCPTool) -> bool:
    """Ask a filter function; as in the Agents SDK, a tool for which it fails is left out."""
    try:
        return yes_or_no(asked, await invoke(asked, context, tool))
    except Exception:
        log.exception("The tool_filter failed for tool %r, which is left out", tool.name)
        return False


def tool_of(served: ServedTool) -> MCPTool:
    """Return a tool as the `mcp` package has it."""
    from mcp.types import Tool as MCPTool

    return MCPTool.model_validate(served.definition)


def error_text(_ctx: Any, error: Exception) -> str:
    """Return the model's text for a call that failed: what the server, or the connection, says."""
    return safe_text(str(error)) or type(error).__name__


def check_unchanged(began: ServedTool, now: ServedTool | None, server: str) -> None:
    """Refuse a call of a tool that is not the one that the model was told of.

    Texts may have changed; they are logged.

    Args:
        began: The tool when the task began.
        now: The tool now; None when the server does not list it any more.
        server: Name of the server.

    Raises:
        UserError: It is gone, or has other parameters or annotations.
    """
    what = f"Tool {began.name!r} of MCP server {server!r}"
    rest = "The call was not made. A fork of the task begins with the tools as they are now."
    if now is None:
        raise UserError(f"{what} is gone since this task began. {rest}")
    first, newest = began.definition, now.definition
    found: list[str] = []
    if not is_same_shape(first.get("inputSchema", {}), newest.get("inputSchema", {})):
        found.append("its parameters")
    if _hints(first) != _hints(newest):
        found.append("what the server says of its effect")
    if found:
        raise UserError(f"{what} has changed since this task began: {' and '.join(found)}. {rest}")
    if first.get("description") != newest.get("description"):
        log.info("%s is described in other words since the task began", what)


def _hints(definition: Mapping[str, Json]) -> dict[str, Json]:
    hints: dict[str, Json] = definition.get("annotations", {})
    return {name: value for name, value in hints.items() if name != "title"}
