"""Offsets of stream events: places in the life of a task, in the order of its ledger."""

from __future__ import annotations

from typing import NamedTuple

_PLACE_BITS = 24
_ATTEMPT_BITS = 10

LAST_ATTEMPT = (1 << _ATTEMPT_BITS) - 1
"""Stands behind every attempt to get an answer: what comes of it."""

MOST_PLACES = (1 << _PLACE_BITS) - 1


class Offset(NamedTuple):
    """A place in the life of a task.

    Attributes:
        mark: Number of the newest mark.
        attempt: Attempts to get answers since then.
        place: Place in what the newest attempt said.
    """

    mark: int
    attempt: int = 0
    place: int = 0

    def __int__(self) -> int:
        """Return it as one number; below 2 ** 53 for half a million marks."""
        attempt = min(self.attempt, LAST_ATTEMPT)
        place = min(self.place, MOST_PLACES)
        return (self.mark << _ATTEMPT_BITS | attempt) << _PLACE_BITS | place


def mark_of(offset: int) -> int:
    """Return the mark of a place that is given as one number."""
    return offset >> (_ATTEMPT_BITS + _PLACE_BITS)
