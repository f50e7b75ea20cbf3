"""Messages of a model as items of its answer, with the ids that only readers are shown."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.models.openai.item_checks import kind_of
from holdfast.models.openai.items import Item, to_response_items
from holdfast.values.messages import Message


class OutputItem(NamedTuple):
    """An item of an answer.

    Attributes:
        item: The item, as a model is sent it in later turns.
        id: The provider's id of it, if that is not sent with it; else empty.
    """

    item: Item
    id: str = ""


def to_output_items(message: Message) -> list[OutputItem]:
    """Write a message as the items of an answer.

    Raises:
        InvalidArgumentError: As for `to_response_items`.
    """
    items = to_response_items([message])
    calls_from = len(items) - len(message.calls)
    ids = dict(enumerate(message.item_ids, calls_from - 1))
    if calls_from and kind_of(items[calls_from - 1]) != "message":
        ids.pop(calls_from - 1, None)
    return [OutputItem(item, ids.get(at, "")) for at, item in enumerate(items)]
