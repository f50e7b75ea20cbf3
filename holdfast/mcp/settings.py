"""Settings of MCP servers: how each is started or reached, which tools, which approvals."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, cast

from typing_extensions import TypedDict

from holdfast.errors import InvalidArgumentError, UserError, WrongTypeError
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
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


def checked_timeout(seconds: float | None) -> float | None:
    """Return a timeout; None when there is no limit, which 0 also says.

    Raises:
        WrongTypeError: It is not a number.
        InvalidArgumentError: It is below 0, or not finite.
    """
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(cast("object", seconds), int | float):
        raise WrongTypeError(
            f"client_session_timeout_seconds={shown(seconds)} must be a number of seconds or None."
        )
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidArgumentError(
            f"client_session_timeout_seconds={seconds} must be finite and at least 0; 0 means no"
            " limit."
        )
    return seconds or None
