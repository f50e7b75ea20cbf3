"""Items of a run, in the form of the OpenAI Agents SDK."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from holdfast.agents.agent_base import AgentBase
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import is_array, is_object

ItemType = Literal[
    "message_output_item",
    "tool_call_item",
    "tool_call_output_item",
    "handoff_call_item",
    "handoff_output_item",
    "reasoning_item",
    "tool_approval_item",
    "input_item",
]


class RawItem(dict[str, Any]):
    """An item in the form of the Responses API; its members can be read as attributes, too."""

    def __getattr__(self, name: str) -> Any:
        """Return a member."""
        try:
            return _readable(self[name])
        except KeyError:
            msg = f"This item has {', '.join(map(repr, self))}; there is no {name!r} in it."
            raise AttributeError(msg) from None


@dataclass(frozen=True)
class RunItem:
    """An item of a run; its class and its `type` say of which kind.

    Attributes:
        agent: The agent that the item belongs to. In a process that does not have the agent, an
            Agent with its name alone.
        raw_item: The item in the form of the Responses API.
    """

    agent: AgentBase = field(repr=False)
    raw_item: RawItem
    type: ClassVar[ItemType] = "input_item"

    def to_input_item(self) -> dict[str, Json]:
        """Return the item as input for another run."""
        return dict(self.raw_item)


@dataclass(frozen=True)
class MessageOutputItem(RunItem):
    """A message of the model."""

    type: ClassVar[ItemType] = "message_output_item"

    def to_input_item(self) -> dict[str, Json]:
        """Return the message as input for another run: a plain text in its shortest form."""
        content: list[Any] = self.raw_item["content"]
        short = self.raw_item.keys() == {"type", "role", "content"} and len(content) == 1
        if short and content[0].keys() == {"type", "text"}:
            return {"role": "assistant", "content": content[0]["text"]}
        return dict(self.raw_item)


@dataclass(frozen=True)
class ToolCallItem(RunItem):
    """A tool call of the model."""

    type: ClassVar[ItemType] = "tool_call_item"

    @property
    def tool_name(self) -> str:
        """Name of the tool."""
        return str(self.raw_item.get("name", self.raw_item.get("type", "")))

    @property
    def call_id(self) -> str:
        """The model's id of the call."""
        return str(self.raw_item.get("call_id", self.raw_item.get("id", "")))


@dataclass(frozen=True)
class ToolCallOutputItem(RunItem):
    """The result of a tool call.

    Attributes:
        output: The result for the model: a text, or a list of parts when there are images.
    """

    output: Any
    type: ClassVar[ItemType] = "tool_call_output_item"

    @property
    def call_id(self) -> str:
        """The model's id of the call."""
        return str(self.raw_item.get("call_id", ""))


@dataclass(frozen=True)
class HandoffCallItem(RunItem):
    """The model's call of a handoff."""

    type: ClassVar[ItemType] = "handoff_call_item"

    @property
    def call_id(self) -> str:
        """The model's id of the call."""
        return str(self.raw_item.get("call_id", ""))


@dataclass(frozen=True)
class HandoffOutputItem(RunItem):
    """The task was handed over.

    Attributes:
        source_agent: The agent that handed it over.
        target_agent: The agent that it was handed to.
    """

    source_agent: AgentBase = field(repr=False)
    target_agent: AgentBase = field(repr=False)
    type: ClassVar[ItemType] = "handoff_output_item"


@dataclass(frozen=True)
class ReasoningItem(RunItem):
    """Reasoning of the model."""

    type: ClassVar[ItemType] = "reasoning_item"


@dataclass(frozen=True)
class ToolApprovalItem(RunItem):
    """A tool call that waits for a reviewer's decision. It is never sent to a model.

    Attributes:
        approval_id: Id of the approval, for `AgentRunner.approve` and the command line, too.
        digest: Digest of the call: a decision holds for this call only.
    """

    approval_id: str
    digest: str = ""
    type: ClassVar[ItemType] = "tool_approval_item"

    @property
    def name(self) -> str:
        """Name of the tool."""
        return str(self.raw_item.get("name", ""))

    @property
    def tool_name(self) -> str:
        """Name of the tool."""
        return self.name

    @property
    def arguments(self) -> str:
        """The arguments, as the model wrote them."""
        return str(self.raw_item.get("arguments", ""))

    @property
    def call_id(self) -> str:
        """The model's id of the call."""
        return str(self.raw_item.get("call_id", ""))


@dataclass(frozen=True)
class InputItem(RunItem):
    """Input that the model got during the run: later user input, feedback, a note of the task."""


def _readable(value: Any) -> Any:
    if is_object(value):
        return RawItem(value)
    return [_readable(each) for each in value] if is_array(value) else value
