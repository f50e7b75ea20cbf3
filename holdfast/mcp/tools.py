"""Tools of MCP servers as tools of agents: effect, approval, schema, and whether they changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from holdfast.agents.agent_base import AgentBase
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import MCPConfig, ServerTool, ToolServer, title_of
from holdfast.agents.tools.functions.schema import is_same_shape, strict_schema
from holdfast.agents.tools.guardrails import ToolInputGuardrail, ToolOutputGuardrail
from holdfast.agents.tools.options import Asked, FailureFormatter, ToolOptions, answer_of
from holdfast.errors import DeclarationError, UserError
from holdfast.mcp.settings import (
    LocalMCPApprovalCallable,
    ToolFilter,
    ToolFilterCallable,
    ToolFilterContext,
)
from holdfast.task.data.agent_snapshot import ServedTool
from holdfast.values.base import Json
from holdfast.values.code.user_calls import invoke, naming, yes_or_no
from holdfast.values.messages import clean
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

if TYPE_CHECKING:
    from mcp.types import Tool as MCPTool

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

LONGEST_TEXT = 2000


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
            msg = (
                f"tool_options of {name!r} cannot hold {', '.join(sorted(wrong))}: name, texts and"
                " schema come from the server, and the rest are options of @tool."
            )
            raise DeclarationError(msg)
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
    return clean(redact(str(error)))[:LONGEST_TEXT] or type(error).__name__


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
