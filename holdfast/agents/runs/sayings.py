"""What items say, as messages: to find the item of a run that an item of an input is."""

from __future__ import annotations

from holdfast.agents.items.run_items import RunItem, ToolApprovalItem
from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.items import from_response_items
from holdfast.values.base import Json
from holdfast.values.messages import Message


def is_said_by(item: dict[str, Json], by: RunItem) -> bool:
    """Whether an item of an input says what an item of a run does."""
    said = said_in(item)
    return said is not None and said == said_by(by)


def said_by(item: RunItem) -> list[Message] | None:
    """Return what an item of a run says, as messages; None if it is not in any input alone."""
    return None if isinstance(item, ToolApprovalItem) else said_in(item.to_input_item())


def said_in(item: dict[str, Json]) -> list[Message] | None:
    """Return what an item of an input says, as messages; None if it cannot be read alone."""
    try:
        said = from_response_items([item])
    except InvalidArgumentError:
        return None
    return [each.model_copy(update={"item_ids": ()}) for each in said]  # filters may drop them
