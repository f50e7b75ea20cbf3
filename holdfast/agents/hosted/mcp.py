"""MCP servers that the provider calls itself, and approvals of their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from holdfast.agents.hosted.tools import HostedTool, checked_config, plain_data
from holdfast.agents.items.run_items import RawItem
from holdfast.errors import UserError, WrongTypeError
from holdfast.models.openai.hosted_items import APPROVED, BARE_REJECTION, approval_request
from holdfast.task.data.agent_snapshot import ToolPolicy, server_key
from holdfast.task.data.calls import Outcome
from holdfast.values.base import Json
from holdfast.values.checks.ids import check_name
from holdfast.values.code.user_calls import invoke, naming
from holdfast.values.messages import ToolCall, clean
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from openai.types.responses.tool_param import Mcp
else:  # for typing.get_type_hints: the package takes long to load
    Mcp = Any


@dataclass
class MCPToolApprovalRequest:
    """A request of the provider for an approval.

    Attributes:
        ctx_wrapper: The run's context.
        data: The request: `id`, `server_label`, `name` and `arguments` (JSON text).
    """

    ctx_wrapper: RunContextWrapper[Any]
    data: RawItem


class MCPToolApprovalFunctionResult(TypedDict):
    """What an approval function decides.

    Attributes:
        approve: Whether the provider may run the call.
        reason: Why not, for the model.
    """

    approve: bool
    reason: NotRequired[str]


MCPToolApprovalFunction = Callable[
    [MCPToolApprovalRequest],
    "MCPToolApprovalFunctionResult | Awaitable[MCPToolApprovalFunctionResult | None] | None",
]
"""Decides on a request for an approval; returns None to have a person decide."""


@dataclass
class HostedMCPTool(HostedTool):
    """Lets the model call the tools of an MCP server, which the provider lists and runs.

    Where the server's configuration requires an approval, the provider asks for it before a call;
    a person decides, as about any call that needs approval, unless `on_approval_request` does.

    Attributes:
        tool_config: The server as the Responses API has it: `server_label`, `server_url` or
            `connector_id`, `require_approval`, ... What is secret in it (`authorization`,
            `headers`) is sent and never recorded.
        on_approval_request: Decides on requests for an approval, in a worker process; None, or an
            answer of None, has a person decide.
        effect: "read" if calls of the server change nothing; else an undo reports calls that were
            made as effects that remain.
        approval: Who decides, if not anybody.

    Raises:
        UserError: The configuration is not data of the API, or has no label.
    """

    tool_config: Mcp = field(repr=False)
    on_approval_request: MCPToolApprovalFunction | None = None
    _: KW_ONLY
    effect: Literal["read", "irreversible"] = "irreversible"
    approval: ApprovalRule | None = None

    def __post_init__(self) -> None:
        """Check the configuration."""
        data = checked_config(self, self.tool_config)
        check_name("server_label of HostedMCPTool", data.get("server_label"))
        if data.get("type", "mcp") != "mcp":
            msg = f"HostedMCPTool(tool_config=...) has type {data['type']!r}; it must be 'mcp'."
            raise UserError(msg)
        decide: object = self.on_approval_request
        if decide is not None and not callable(decide):
            msg = f"on_approval_request must be a function (request); it was {shown(decide)}."
            raise WrongTypeError(msg)
        if self.effect not in ("read", "irreversible"):
            msg = (
                "HostedMCPTool(effect=...) is 'read' or 'irreversible': the provider has no undo;"
                f" it was {shown(self.effect)}."
            )
            raise UserError(msg)

    @property
    def name(self) -> str:
        """Type of the tool."""
        return "hosted_mcp"

    @property
    def label(self) -> str:
        """Label of the server."""
        return str(plain_data(self.tool_config)["server_label"])

    @property
    def definition(self) -> dict[str, Json]:
        """The server as the Responses API has it, secrets included."""
        return {"type": "mcp", **plain_data(self.tool_config)}

    @property
    def key(self) -> str:
        """Name of its rules among the policies of an agent."""
        return server_key(self.label)

    def policy(self) -> ToolPolicy:
        """Describe as data how a task treats requests for an approval."""
        rule = self.approval
        return ToolPolicy(
            effect=self.effect,
            needs_approval="yes",
            approval=rule,
            approval_seconds=(rule.expires_seconds or 0) if rule is not None else 0,
        )


def servers_of(tools: Sequence[object]) -> tuple[HostedMCPTool, ...]:
    """Return the MCP servers among tools.

    Raises:
        UserError: Two of them have one label.
    """
    found = [tool for tool in tools if isinstance(tool, HostedMCPTool)]
    labels = [server.label for server in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        msg = (
            f"More than one HostedMCPTool has the label {', '.join(map(repr, twice))}. A request"
            " for an approval names its server by the label: give each its own."
        )
        raise UserError(msg)
    return tuple(found)


async def decided_by_code(
    server: HostedMCPTool, call: ToolCall, context: RunContextWrapper[Any]
) -> Outcome | None:
    """Ask a server's own function about a request; None when a person must decide.

    Raises:
        UserError: The function returned something else than a decision.
        Exception: Whatever it raised.
    """
    decide = server.on_approval_request
    if decide is None:
        return None
    asked = MCPToolApprovalRequest(context, RawItem(approval_request(call)))
    with naming(f"on_approval_request of MCP server {server.label!r}", decide):
        said: object = await invoke(decide, asked)
    if said is None:
        return None
    answered: object = said
    given = dict(cast("Mapping[str, Json]", said)) if isinstance(said, Mapping) else {}
    approve, reason = given.get("approve"), given.get("reason") or ""
    if not isinstance(approve, bool) or not isinstance(reason, str):
        msg = (
            f"on_approval_request of MCP server {server.label!r} must return"
            ' {"approve": bool, "reason": str} or None; it returned'
            f" {shown(answered)}."
        )
        raise UserError(msg)
    if approve:
        return Outcome(content=APPROVED, attempts=0)
    text = clean(reason) or BARE_REJECTION
    return Outcome(content=text, is_error=True, status="failed", attempts=0)
