"""Items of a run, in the form of the OpenAI Agents SDK.

Items in the form of the Responses API are dicts. Objects of `openai.types.responses` are made when
they are first read: the package takes most of a second to import, and a long run has thousands of
items.
"""

from __future__ import annotations

import json
import uuid
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from holdfast.agents.agent_base import AgentBase, users_agent
from holdfast.errors import UserError, WrongTypeError
from holdfast.models.openai.item_contents import FAKE_ID
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_text, is_array, is_object
from holdfast.values.runs.run_context import ToolKey
from holdfast.values.text.shown import shown

OUTPUT_ONLY = "created_by"
"""Member of items of a provider that it does not take back as input."""


class RawItem(dict[str, Any]):  # noqa: PLW1641  it may change, as any dict
    """An item in the form of the Responses API; its members can be read as attributes as well."""

    def __getattr__(self, name: str) -> Any:
        """Return a member."""
        try:
            return _readable(self[name])
        except KeyError:
            msg = f"This item has {', '.join(map(repr, self))}; there is no {name!r} in it."
            raise AttributeError(msg) from None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same item, also as an object of `openai.types.responses`."""
        if isinstance(other, Mapping):
            return super().__eq__(cast("Mapping[str, Any]", other))
        return hasattr(other, "model_dump") and _without_none(self) == _without_none(plain(other))

    def __ne__(self, other: object) -> bool:
        """Whether it is another item."""
        return not self == other


def plain(raw: Any) -> dict[str, Json]:
    """Return an item as a dict.

    Args:
        raw: A mapping, or a pydantic object as `openai.types.responses` has them.

    Raises:
        WrongTypeError: It is neither.
    """
    if isinstance(raw, Mapping):
        return dict(cast("Mapping[str, Json]", raw))
    dump = getattr(raw, "model_dump", None)
    if dump is None or isinstance(raw, type):
        msg = (
            "An item is a dict in the form of the Responses API, or an object of"
            f" openai.types.responses; it was {shown(raw)}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        )
        raise WrongTypeError(msg)
    # Parts of a streamed answer that was not validated may have members of any type.
    made: dict[str, Json] = dump(by_alias=True, exclude_unset=True, warnings=False)
    return made


def member(raw: Any, *names: str) -> Any:
    """Return the first of an item's members that is neither missing nor empty, or None."""
    for name in names:
        found = _get(raw, name)
        if found is not None and found != "":
            return found
    return None


def _get(raw: Any, name: str) -> Any:
    if isinstance(raw, Mapping):
        return cast("Mapping[str, Any]", raw).get(name)
    return getattr(raw, name, None)


def replayable(raw: Any) -> dict[str, Json]:
    """Return an item of an answer as input for another call, without what is of output only.

    Raises:
        WrongTypeError: It is not an item.
    """
    item = plain(raw)
    item.pop(OUTPUT_ONLY, None)
    if item.get("type") == "shell_call_output" and is_array(item.get("output")):
        item["output"] = [
            {key: value for key, value in part.items() if key != OUTPUT_ONLY}
            if is_object(part)
            else part
            for part in item["output"]
        ]
    return item


def dumped(value: Any) -> Json:
    """Copy data so that `json.dumps` takes them: objects become dicts, other iterables lists."""
    if isinstance(value, Mapping):
        return {key: dumped(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return dumped(plain(value))
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [dumped(each) for each in value]  # pyright: ignore[reportUnknownVariableType]  anything is copied
    return value


def _without_none(value: Any) -> Any:
    """Leave out members that are None: the API has them, and they say nothing."""
    if is_object(value):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if is_array(value) else value


def _readable(value: Any) -> Any:
    if is_object(value):
        return RawItem(value)
    return [_readable(each) for each in value] if is_array(value) else value


AS_DICTS = frozenset({"shell_call", "apply_patch_call", "compaction", "mcp_approval_response"})
"""Types of items of a provider that are dicts in the Agents SDK's items of a run."""

_IMPLIED: Mapping[str, dict[str, Json]] = {
    "message": {"id": FAKE_ID, "status": "completed"},
    "reasoning": {"id": FAKE_ID},
}
"""Type of an item to members that its class needs, where the item lacks them."""


class Unread(NamedTuple):
    """A raw item that has not been read yet.

    Attributes:
        item: The item as the API writes it.
    """

    item: dict[str, Json]

    def read(self, name: str) -> dict[str, Any]:
        """Return the raw item as the member of this name."""
        return {name: typed(self.item)}


class UnreadList(list[Unread]):
    """The raw items of an answer that has not been read yet."""

    def read(self, name: str) -> dict[str, Any]:
        """Return the raw items as the member of this name."""
        return {name: [typed(each.item) for each in self]}


class UnreadMembers(ABC):
    """What some members of an object are made of, all of them when one is first read."""

    @abstractmethod
    def read(self, name: str) -> dict[str, Any]:
        """Return these members by name; one of them is asked for by this name."""


def left_unread(owner: Any, name: str) -> Any:
    """Return what a member must be made of; None once it is there, made or set by hand.

    Args:
        owner: Has what is not read yet as `_unread`.
        name: The member.
    """
    members: dict[str, Any] = owner.__dict__
    return None if name in members else members.get("_unread")


def read_once(owner: Any, name: str) -> Any:
    """Return a member that is made when it is first read, the same to all threads.

    What else is made of the same is kept as well, unless it was set by hand.

    Raises:
        AttributeError: The owner has neither the member nor what it is made of.
    """
    members: dict[str, Any] = owner.__dict__
    unread = left_unread(owner, name)
    if unread is not None:
        for each, made in unread.read(name).items():
            members.setdefault(each, made)
        members.pop("_unread", None)
    if name not in members:  # else another thread has made it since it was looked for
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    return members[name]


def raw_of(item: dict[str, Json]) -> RawItem | Unread:
    """Return the raw item of a run's item: what the Agents SDK has as a dict is one."""
    return RawItem(item) if as_text(item.get("type")) in AS_DICTS else Unread(item)


def typed(item: dict[str, Json]) -> Any:
    """Return an item of an answer as an object of `openai.types.responses`.

    What its class needs next to the item is not among the members that are set, so that
    `model_dump(exclude_unset=True)` is the item. One of a type that the package does not know is a
    RawItem.
    """
    kind = str(item.get("type"))
    made = _classes().get(kind)
    if made is None or (kind == "message" and item.get("role") != "assistant"):
        return RawItem(item)
    implied = _IMPLIED.get(kind, {})
    found = made.construct(**{**implied, **item})
    found.model_fields_set.difference_update(implied.keys() - item.keys())
    return found


@cache
def _classes() -> dict[str, Any]:
    """Return the classes of items by their types."""
    from openai.types.responses import ResponseOutputItem

    classes = get_args(get_args(ResponseOutputItem)[0])
    kinds = ((get_args(each.model_fields["type"].annotation), each) for each in classes)
    return {kind: each for names, each in kinds for kind in names}


class ToolOriginType(str, Enum):  # noqa: UP042  str() of a member is as in the Agents SDK
    """Kinds of sources of tools."""

    FUNCTION = "function"
    MCP = "mcp"
    AGENT_AS_TOOL = "agent_as_tool"


@dataclass(frozen=True)
class ToolOrigin:
    """Where the tool of an item comes from.

    Attributes:
        type: Kind of source.
        mcp_server_name: The server of a tool of an MCP server.
        agent_name: The agent that is called as a tool.
        agent_tool_name: Name of that tool.
    """

    type: ToolOriginType
    mcp_server_name: str | None = None
    agent_name: str | None = None
    agent_tool_name: str | None = None

    def to_json_dict(self) -> dict[str, str]:
        """Return the fields that are set, as JSON data."""
        names = {name: value for name, value in vars(self).items() if name != "type"}
        return {"type": self.type.value} | {k: v for k, v in names.items() if v is not None}

    @classmethod
    def from_json_dict(cls, data: Any) -> ToolOrigin | None:
        """Read the data of `to_json_dict`; None if they are no such data."""
        if not isinstance(data, Mapping):
            return None
        given = cast("Mapping[str, Any]", data)
        try:
            kind = ToolOriginType(given.get("type"))
        except ValueError:
            return None
        texts = ("mcp_server_name", "agent_name", "agent_tool_name")
        known = {name: given[name] for name in texts if isinstance(given.get(name), str)}
        return cls(kind, **known)


MCP_REQUEST = "mcp_approval_request"
AGENTS = ("agent", "source_agent", "target_agent")
"""Attributes of items that are agents."""


@dataclass
class RunItemBase:
    """The base of a run's items; the class and the `type` tell the kind of an item.

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
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


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


class _OfCall(RunItemBase):
    """An item that is about a call."""

    @property
    def call_id(self) -> str | None:
        """The model's id of the call."""
        found: str | None = member(self._known, "call_id", "id")
        return found


@dataclass
class ToolCallItem(_OfCall):
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


@dataclass
class ToolCallOutputItem(_OfCall):
    """The result of a tool call.

    Attributes:
        output: The result for the model: a text, or a list of parts when there are images.
        tool_origin: Where the tool comes from, as for a ToolCallItem.
    """

    output: Any
    type: Literal["tool_call_output_item"] = "tool_call_output_item"
    tool_origin: ToolOrigin | None = None


@dataclass
class HandoffCallItem(_OfCall):
    """The model's call of a handoff."""

    type: Literal["handoff_call_item"] = "handoff_call_item"


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
class ToolApprovalItem(_OfCall):
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

    def to_input_item(self) -> dict[str, Json]:
        """Refuse: the call itself is an item of its own.

        Raises:
            UserError: Always.
        """
        raise UserError(
            "A ToolApprovalItem is not input for a model: leave it out; its call is a ToolCallItem."
        )


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
