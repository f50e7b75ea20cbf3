"""Messages as items for people and programs: as the API writes them, each with the provider's id.

Pure. What a model is sent is `to_response_items`; `from_response_items` reads these as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.models.openai.item_checks import FAKE_ID, kind_of
from holdfast.models.openai.item_contents import whole_item, without_status
from holdfast.models.openai.items import CALLS, Item, kept_items, to_response_items
from holdfast.values.messages import Message


def made_items(message: Message) -> list[Item]:
    """Write a message as items that a run has made.

    A provider that gives no ids has those of the Agents SDK. A result does not say whether it is a
    failure.

    Raises:
        InvalidArgumentError: As for `to_response_items`.
    """
    if message.role != "assistant":
        return [whole_item(without_status(item)) for item in to_response_items([message])]
    is_named = message.item_ids or any("id" in item for item in message.items)
    needed = ("message", "reasoning") if is_named else ("message", "reasoning", "function_call")
    return [
        whole_item(item, shown_id or (FAKE_ID if kind_of(item) in needed else ""))
        for item, shown_id in _named(message)
    ]


def shown_items(messages: Iterable[Message]) -> list[Item]:
    """Write messages as an input list that shows them: what was given as a text stays one.

    Raises:
        InvalidArgumentError: As for `to_response_items`.
    """
    return [item for message in messages for item in _shown(message)]


def _shown(message: Message) -> Iterator[Item]:
    if message.role != "assistant":
        yield from map(whole_item, to_response_items([message]))
        return
    for item, shown_id in _named(message):
        is_answer = shown_id or "id" in item or kind_of(item) != "message"
        yield whole_item(item, shown_id) if is_answer else item


def _named(message: Message) -> Iterator[tuple[Item, str]]:
    """Yield a message's items, each with the id that models are not sent; empty for none."""
    said, *called = message.item_ids or ("",)
    left = iter(called)
    for item in kept_items(message):
        kind = kind_of(item)
        if kind == "message":
            yield item, said
        elif kind == "reasoning" and FAKE_ID in message.item_ids:
            yield item, FAKE_ID
        else:
            yield item, next(left, "") if kind in CALLS else ""
