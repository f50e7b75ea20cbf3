"""Items of a run, in the form of the OpenAI Agents SDK."""

from __future__ import annotations

import json
import uuid
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from holdfast.agents.agent_base import AgentBase, users_agent
from holdfast.agents.items.raw_items import member, plain, replayable
from holdfast.agents.items.tool_origin import ToolOrigin
from holdfast.agents.items.typed_items import Unread, left_unread, read_once
from holdfast.errors import UserError
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_text
from holdfast.values.runs.run_context import ToolKey

MCP_REQUEST = "mcp_approval_request"
AGENTS = ("agent", "source_agent", "target_agent")
"""Attributes of items that are agents."""


@dataclass
class RunItemBase:
    """The base of a run's items; the class and the `type` say of which kind one is.

    Attributes:
        agent: The agent that the item belongs to. In a process that does not have the agent, an
            Agent with its name alone. None after `release_agent`, once nothing else has the agent.
        raw_item: The item in the form of the Responses API, as the Agents SDK has it: what a model
            says is an object of `openai.types.responses` (ResponseOutputMessage,
            ResponseFunctionToolCall, ...), the rest a dict whose members are attributes as well
            (results of tools, handoffs, calls of shells and patches, compactions, input).
    """

    agent: AgentBase = field(repr=False)
    raw_item: Any

    def __post_init__(self) -> None:
        """Show the user's own agents; the name by which the task knows the item's is kept."""
        if isinstance(self.raw_item, Unread):
            self.__dict__["_unread"] = self.__dict__.pop("raw_item")
        self.__dict__["_member"] = getattr(self.agent, "name", "")
        for name in AGENTS:
            if name in self.__dict__:
                self.__dict__[name] = users_agent(self.__dict__[name])

    def to_input_item(self) -> dict[str, Json]:
        """Return the item as input for another run, without what is of output only.

        Raises:
            WrongTypeError: `raw_item` is neither a dict nor an object of the API.
        """
        return replayable(self._known)

    def shown_item(self) -> dict[str, Json]:
        """Return the item for readers, with what is of output only.

        Raises:
            WrongTypeError: As for `to_input_item`.
        """
        return plain(self._known)

    @property
    def _known(self) -> Any:
        """The raw item, as data if it has not been read yet."""
        unread: Unread | None = left_unread(self, "raw_item")
        return self.raw_item if unread is None else unread.item

    def mark(self) -> str:
        """Mark the item, unless it is, so that a copy of it can be known; return the mark."""
        mark: str = self.__dict__.setdefault("_mark", uuid.uuid4().hex)
        return mark

    def has_mark(self, mark: str) -> bool:
        """Whether it is the item of a mark, or a copy of that."""
        return bool(self.__dict__.get("_mark") == mark)

    def release_agent(self) -> None:
        """Keep the item's agents only as long as something else has them."""
        held = {name: self.__dict__.pop(name) for name in AGENTS if name in self.__dict__}
        self.__dict__["_released"] = {name: weakref.ref(agent) for name, agent in held.items()}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the raw item, which is made when it is read, or an agent that was released."""
            if name == "raw_item":
                return read_once(self, name)
            released = self.__dict__.get("_released", {})
            if name in released:
                return released[name]()
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)


def turn_keys(items: Sequence[RunItem]) -> list[str]:
    """Return a key for each item at the end of a step: the same as in another list that ends so.

    Its kind and call say which one it is, and its place among those of them, from the end.
    """
    seen: Counter[str] = Counter()
    keys: list[str] = []
    for item in reversed(items):
        kind = f"{item.type}:{as_text(item.to_input_item().get('call_id'))}"
        seen[kind] += 1
        keys.append(f"{kind}#{seen[kind]}")
    return keys[::-1]


@dataclass
class MessageOutputItem(RunItemBase):
    """A message of the model."""

    type: Literal["message_output_item"] = "message_output_item"


@dataclass
class ToolCallItem(RunItemBase):
    """A tool call of the model.

    Attributes:
        description: Description of the tool, if known.
        title: Short name of the tool for people, if known.
        tool_origin: Where the tool comes from, if this process has the agent that has it.
    """

    type: Literal["tool_call_item"] = "tool_call_item"
    description: str | None = None
    title: str | None = None
    tool_origin: ToolOrigin | None = None

    @property
    def tool_name(self) -> str | None:
        """Name of the tool, or None for a call without one."""
        found: str | None = member(self._known, "name")
        return found

    @property
    def call_id(self) -> str | None:
        """The model's id of the call."""
        found: str | None = member(self._known, "call_id", "id")
        return found


@dataclass
class ToolCallOutputItem(RunItemBase):
    """The result of a tool call.

    Attributes:
        output: The result for the model: a text, or a list of parts when there are images.
        tool_origin: Where the tool comes from, as for a ToolCallItem.
    """

    output: Any
    type: Literal["tool_call_output_item"] = "tool_call_output_item"
    tool_origin: ToolOrigin | None = None

    @property
    def call_id(self) -> str | None:
        """The model's id of the call."""
        found: str | None = member(self._known, "call_id", "id")
        return found


@dataclass
class HandoffCallItem(RunItemBase):
    """The model's call of a handoff."""

    type: Literal["handoff_call_item"] = "handoff_call_item"

    @property
    def call_id(self) -> str | None:
        """The model's id of the call."""
        found: str | None = member(self._known, "call_id", "id")
        return found


@dataclass
class HandoffOutputItem(RunItemBase):
    """The task was handed over.

    Attributes:
        source_agent: The agent that handed it over.
        target_agent: The agent that it was handed to.
    """

    source_agent: AgentBase = field(repr=False)
    target_agent: AgentBase = field(repr=False)
    type: Literal["handoff_output_item"] = "handoff_output_item"


@dataclass
class ReasoningItem(RunItemBase):
    """Reasoning of the model."""

    type: Literal["reasoning_item"] = "reasoning_item"


@dataclass(eq=False)
class ToolApprovalItem(RunItemBase):
    """A tool call that waits for a reviewer's decision. It is never sent to a model.

    Attributes:
        tool_name: Name of the tool; that of the call by default.
        tool_namespace: Namespace of the tool; that of the call by default.
        approval_id: Id of the approval, for `AgentRunner.approve` and the command line as well;
            empty in an item made by hand.
        digest: Digest of the call: a decision holds for this call only.
    """

    tool_name: str | None = None
    type: Literal["tool_approval_item"] = "tool_approval_item"
    tool_namespace: str | None = None
    approval_id: str = field(default="", kw_only=True)
    digest: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        """Read the names from the call."""
        super().__post_init__()
        if self.tool_name is None:
            self.tool_name = member(self._known, "name", "tool_name")
        if self.tool_namespace is None:
            self.tool_namespace = member(self._known, "namespace")

    def __eq__(self, other: object) -> bool:
        """Whether it is this very item: two calls may be alike."""
        return self is other

    def __hash__(self) -> int:
        """Hash by identity."""
        return object.__hash__(self)

    @property
    def name(self) -> str | None:
        """Name of the tool."""
        return self.tool_name

    @property
    def tool_key(self) -> ToolKey:
        """Identity of the tool, for decisions on all its calls."""
        raw: Any = self._known
        request: Any = raw if member(raw, "type") == MCP_REQUEST else member(raw, "provider_data")
        if request is None or member(request, "type") != MCP_REQUEST:
            return self.qualified_name or ""
        return member(request, "server_label") or "", self.tool_name or ""

    @property
    def qualified_name(self) -> str | None:
        """Name of the tool with its namespace, for people."""
        inside = self.tool_namespace not in (None, "", self.tool_name)
        return f"{self.tool_namespace}.{self.tool_name}" if inside else self.tool_name

    @property
    def arguments(self) -> str | None:
        """The arguments, as the model wrote them; None when the call has none."""
        given = member(self._known, "arguments", "params", "input")
        if given is None or isinstance(given, str):
            return given
        return json.dumps(given, default=str)

    @property
    def call_id(self) -> str | None:
        """The model's id of the call."""
        found: str | None = member(self._known, "call_id", "id")
        return found

    def to_input_item(self) -> dict[str, Json]:
        """Refuse: the call itself is an item of its own.

        Raises:
            UserError: Always.
        """
        msg = (
            "A ToolApprovalItem is not input for a model: leave it out; its call is a ToolCallItem."
        )
        raise UserError(msg)


@dataclass
class InputItem(RunItemBase):
    """Input that the model got during the run: later user input, feedback, a note of the task."""

    type: Literal["input_item"] = "input_item"


@dataclass
class MCPListToolsItem(RunItemBase):
    """The provider has listed the tools of an MCP server."""

    type: Literal["mcp_list_tools_item"] = "mcp_list_tools_item"


@dataclass
class MCPApprovalRequestItem(RunItemBase):
    """The provider asks whether a tool of an MCP server may be run."""

    type: Literal["mcp_approval_request_item"] = "mcp_approval_request_item"


@dataclass
class MCPApprovalResponseItem(RunItemBase):
    """The answer to an MCPApprovalRequestItem."""

    type: Literal["mcp_approval_response_item"] = "mcp_approval_response_item"


@dataclass
class ToolSearchCallItem(RunItemBase):
    """The model searches for tools at the provider."""

    type: Literal["tool_search_call_item"] = "tool_search_call_item"


@dataclass
class ToolSearchOutputItem(RunItemBase):
    """Tools that a search has found."""

    type: Literal["tool_search_output_item"] = "tool_search_output_item"


@dataclass
class CompactionItem(RunItemBase):
    """The provider has folded the conversation before it."""

    type: Literal["compaction_item"] = "compaction_item"


def member_of(item: RunItemBase) -> str:
    """Return the name by which the item's task knows its agent."""
    return str(item.__dict__.get("_member", ""))


OF_PROVIDER: Mapping[str, type[RunItemBase]] = {
    "mcp_list_tools": MCPListToolsItem,
    "mcp_approval_request": MCPApprovalRequestItem,
    "mcp_approval_response": MCPApprovalResponseItem,
    "tool_search_call": ToolSearchCallItem,
    "tool_search_output": ToolSearchOutputItem,
    "compaction": CompactionItem,
}
"""Types of items that the provider's own tools make, and their classes."""

RunItem = (
    MessageOutputItem
    | ToolCallItem
    | ToolCallOutputItem
    | HandoffCallItem
    | HandoffOutputItem
    | ReasoningItem
    | ToolApprovalItem
    | InputItem
    | MCPListToolsItem
    | MCPApprovalRequestItem
    | MCPApprovalResponseItem
    | ToolSearchCallItem
    | ToolSearchOutputItem
    | CompactionItem
)
"""An item of a run."""
