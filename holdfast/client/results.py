"""What a run gives back: RunResult with its items, as users of the OpenAI Agents SDK know them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from holdfast.messages import Message, Usage
from holdfast.models.items import to_response_items
from holdfast.values import Json

T = TypeVar("T")

ItemType = Literal[
    "message_output_item",
    "tool_call_item",
    "tool_call_output_item",
    "handoff_call_item",
    "handoff_output_item",
    "input_item",
]
_ITEM_TYPES: dict[str, ItemType] = {
    "function_call": "tool_call_item",
    "function_call_output": "tool_call_output_item",
}


@dataclass(frozen=True)
class RunItem:
    """Something that happened in a run.

    Attributes:
        type: What it is.
        raw_item: The item in the form of the Responses API.
        agent: Name of the agent that made it.
    """

    type: ItemType
    raw_item: dict[str, Json]
    agent: str

    def to_input_item(self) -> dict[str, Json]:
        """Return the item as input for another run."""
        return self.raw_item


@dataclass(frozen=True)
class RunData:
    """What a run had produced when an error ended it.

    Attributes:
        input: What the run was given.
        new_items: What it made, oldest first.
        last_agent: Name of the agent that ran last.
        usage: Cost of the run.
        task_id: The run's task; its ledger stays readable.
    """

    input: str | list[dict[str, Json]]
    new_items: list[RunItem]
    last_agent: str
    usage: Usage
    task_id: str


@dataclass(frozen=True)
class RunResult(RunData):
    """A finished run.

    Attributes:
        final_output: The answer; None while a person must decide.
        waiting_for: What the run waits for, one text per open point; empty when it is finished.
    """

    final_output: Any = field(default=None, kw_only=True)
    waiting_for: tuple[str, ...] = field(default=(), kw_only=True)

    def to_input_list(self) -> list[dict[str, Json]]:
        """Return input and new items as the input of a following run."""
        given = self.input
        start = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        return [*start, *(item.to_input_item() for item in self.new_items)]

    def final_output_as(self, cls: type[T], raise_if_incorrect_type: bool = False) -> T:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Return the answer, typed.

        Args:
            cls: The type that the answer should have.
            raise_if_incorrect_type: Whether to check it.

        Raises:
            TypeError: The answer is checked and has another type.
        """
        if raise_if_incorrect_type and not isinstance(self.final_output, cls):
            msg = f"Final output is not of type {cls.__name__}"
            raise TypeError(msg)
        output: T = self.final_output
        return output


def run_items(messages: list[Message], agent: str) -> list[RunItem]:
    """Make the items of a run out of the messages that it added."""
    return [
        RunItem(type=_item_type(item), raw_item=item, agent=agent)
        for item in to_response_items(messages)
    ]


def _item_type(item: dict[str, Json]) -> ItemType:
    kind = str(item.get("type", "message"))
    if kind == "message":
        return "message_output_item" if item.get("role") == "assistant" else "input_item"
    return _ITEM_TYPES.get(kind, "message_output_item")
