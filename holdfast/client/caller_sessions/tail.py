"""How much of a turn a session holds, from its items before and after. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.values.base import Json, canonical, digest

TAIL = 99
"""Number of a session's newest items by which the place of a turn is known again."""

FEW = 10
"""A place after fewer items is too easily found twice in a conversation that goes on."""

UNSTABLE = ("id", "status", "provider_data")
"""Fields that a session may add to an item or leave out."""

Item = dict[str, Json]


class Tail(NamedTuple):
    """The newest items of a session at one time.

    Attributes:
        marks: Their marks, oldest first, at most `TAIL`.
        is_whole: Whether these were all of its items.
    """

    marks: tuple[str, ...]
    is_whole: bool

    @property
    def is_enough(self) -> bool:
        """Whether a turn after them is found again."""
        return self.is_whole or len(self.marks) >= FEW


def tail_of(items: Sequence[Item], limit: int | None) -> Tail:
    """Return the tail of a session that was read.

    Args:
        items: What it gave.
        limit: The number of items that it was asked for; None for all.
    """
    has_all = limit is None or len(items) < limit
    return Tail(marks(items[-TAIL:]), is_whole=has_all and len(items) <= TAIL)


def marks(items: Iterable[Item]) -> tuple[str, ...]:
    """Return a digest of each item, the same for an item as it was given and as it is stored."""
    return tuple(digest(canonical(_plain(item)))[:16] for item in items)


def _plain(item: Item) -> Item:
    kept = {key: v for key, v in item.items() if key not in UNSTABLE and v is not None}
    if kept.get("type") == "message":
        del kept["type"]
    return kept


def stored_count(
    before: Sequence[str], now: Sequence[str], turn: Sequence[str], *, is_whole: bool
) -> int | None:
    """Count how many items of a turn a session holds, from the turn's first one on.

    Args:
        before: Marks of the newest items that the session had before the turn was written.
        now: Marks of all items that it has now.
        turn: Marks of the turn.
        is_whole: Whether `before` has all items of that time.

    Returns:
        The count; None when it cannot be told: the old items are gone, others have written
        meanwhile and the turn is not among theirs, or a conversation that repeats itself looks the
        same with the turn and without.
    """
    size = len(before)
    ends = [size] if is_whole else range(size, len(now) + 1)
    found = {
        _count(now[end:], turn)
        for end in ends
        if end <= len(now) and tuple(now[end - size : end]) == tuple(before)
    }
    return found.pop() if len(found) == 1 else None


def _count(added: Sequence[str], turn: Sequence[str]) -> int | None:
    """Count what was added of a turn; None when something else was added."""
    size = len(turn)
    if any(tuple(added[k : k + size]) == tuple(turn) for k in range(len(added) - size + 1)):
        return size
    return len(added) if tuple(turn[: len(added)]) == tuple(added) else None
