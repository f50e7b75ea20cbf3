"""Messages, and which of them hold more than a text: found out once, not at each model call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Self

from holdfast.values.messages import Message


@dataclass(frozen=True)
class Conversation:
    """Messages that are read again and again.

    Attributes:
        messages: The messages, oldest first.
        not_text: Positions of those whose content is more than a text, in order.
    """

    messages: tuple[Message, ...] = ()
    not_text: tuple[int, ...] = ()

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        """Look at each of these messages."""
        return cls(tuple(messages), tuple(places_not_text(messages)))

    def places_in(self, messages: tuple[Message, ...]) -> list[int]:
        """Return where messages that may begin with these hold more than a text, in order."""
        known = len(self.messages)
        if not _is_same(messages[:known], self.messages):
            return places_not_text(messages)
        return [*self.not_text, *(known + k for k in places_not_text(messages[known:]))]


def _is_same(left: tuple[Message, ...], right: tuple[Message, ...]) -> bool:
    """Whether these are the same objects; to compare copies takes longer than to look at each."""
    return left is right or (len(left) == len(right) and all(map(is_, left, right)))


def places_not_text(messages: Sequence[Message]) -> list[int]:
    """Return the positions of the messages whose content is more than a text, in order."""
    return [k for k, each in enumerate(messages) if not isinstance(each.content, str)]
