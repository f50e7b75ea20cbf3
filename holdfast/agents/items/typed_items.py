"""Items of results as the Agents SDK has them: objects of `openai.types.responses`.

They are made when they are first read: the package takes most of a second to import, and a long
run has thousands of items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, get_args

from holdfast.agents.items.raw_items import RawItem
from holdfast.models.openai.item_checks import FAKE_ID
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_text

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
        msg = f"{type(owner).__name__!r} object has no attribute {name!r}"
        raise AttributeError(msg)
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
