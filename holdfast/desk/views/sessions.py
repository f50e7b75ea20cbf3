"""Sessions: conversations, each turn with the task that made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.desk.views.words import cut
from holdfast.values.checks.ids import MADE, app_of, session_id
from holdfast.values.messages import Message, shown
from holdfast.values.text.redact import redact

_BETWEEN = f"{MADE}session{MADE}"


@dataclass(frozen=True, kw_only=True)
class SessionName:
    """A session of a list.

    Attributes:
        name: Its name.
        begun: When it was begun, or reset, seconds since the epoch.
    """

    name: str
    begun: float


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
        said: Its messages, without those of tools and those that say nothing.
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


def name_of(workflow_id: str) -> str:
    """Return the name that people use of a session."""
    return workflow_id.partition(_BETWEEN)[2]


def app_in(workflow_id: str, queue: str) -> str:
    """Return the app of a session."""
    app = workflow_id.partition(_BETWEEN)[0]
    return app if session_id(app, name_of(workflow_id)) == workflow_id else app_of(queue)
