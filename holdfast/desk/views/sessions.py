"""Sessions: conversations, each turn with the task that made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.desk.views.words import cut
from holdfast.values.messages import Message, shown
from holdfast.values.text.redact import redact


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message of a turn."""

    role: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a session.

    Attributes:
        task_id: The task that committed it; empty when a program appended it.
        said: Its messages, without ones of tools and empty ones.
    """

    task_id: str
    said: tuple[Said, ...] = ()


def turn_of(task: str, messages: Sequence[Message]) -> Turn:
    """Return a turn as the page shows it.

    Args:
        task: Id of the task that committed it; a name of a program's own begins with `-`.
        messages: The turn's messages, whole.
    """
    said = [
        Said(role=message.role, text=redact(cut(shown(message.content))))
        for message in messages
        if message.role in ("user", "assistant", "system")
    ]
    return Turn(
        task_id="" if task.startswith("-") else task,
        said=tuple(each for each in said if each.text.strip()),
    )
