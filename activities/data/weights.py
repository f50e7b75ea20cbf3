"""Rough sizes of what a worker process remembers of its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.task.data.records import JournalEntry
from holdfast.values.base import canonical
from holdfast.values.messages import Blob, Message, Part, TextPart, ToolCall


def weight(message: Message) -> int:
    """Return the rough size of a message in bytes: texts, images, calls and provider items."""
    match message.content:
        case str(text):
            content = len(text)
        case Blob():
            content = 100
        case parts:
            content = sum(_part_weight(part) for part in parts)
    items = len(canonical(list(message.items))) if message.items else 0
    return 200 + content + items + sum(call_weight(call) for call in message.calls)


def _part_weight(part: Part) -> int:
    return len(part.text) if isinstance(part, TextPart) else len(part.url) + 200


def call_weight(call: ToolCall) -> int:
    """Return the rough size of a call in bytes."""
    return 100 + len(call.arguments)


def entry_weight(entry: JournalEntry) -> int:
    """Return the rough size of an answered call in bytes."""
    size = 200 + sum(call_weight(call) for call in entry.calls)
    if entry.answer is not None:
        size += weight(entry.answer.message)
    if entry.memo is not None:
        size += len(canonical(entry.memo.output))
    for call, outcome in zip(entry.calls, entry.outcomes, strict=False):
        size += weight(outcome.message(call)) + len(canonical(outcome.patch))
    return size


WEIGHTS: dict[str, Callable[[Any], int]] = {
    "calls": lambda calls: sum(map(call_weight, calls)),
    "journal": lambda journal: sum(map(entry_weight, journal)),
    "outputs": lambda output: len(canonical(output)),
    "paid": lambda paid: entry_weight(paid.entry),
}
"""Part of a memory that keeps the newest of several to the rough size of one, in bytes."""
