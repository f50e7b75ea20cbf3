"""The page of sessions: conversations, each turn linked to its task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nicegui import ui

from holdfast.archive.segments import turns
from holdfast.desk.pages import parts
from holdfast.desk.pages.feed import read_sessions
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.parts import CARD, LINE, PANEL, QUIET
from holdfast.desk.views.words import cut
from holdfast.errors import TaskNotFoundError
from holdfast.reading.visibility import SessionName
from holdfast.values.messages import Message, shown
from holdfast.values.text.redact import redact

# Sessions: conversations, each turn with the task that made it.


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


MOST = 200
"""Newest turns that are shown."""

READ_SECONDS = 8.0


class Sessions:
    """The list of sessions in one browser, or one session."""

    def __init__(self, frame: Frame, name: str) -> None:
        """Draw it.

        Args:
            frame: The frame of the page.
            name: Name of the session; empty for the list.
        """
        self._frame, self._name = frame, name
        if name:
            parts.link("All sessions", "/sessions", "text-sm")
        parts.heading(redact(name) or "Sessions", level=1).classes("break-words")
        self._body = parts.Part("flex w-full flex-col gap-4")
        ui.timer(TICK_SECONDS * 2, lambda: frame.look(self._look))

    async def _look(self) -> None:
        await (self._look_at_one() if self._name else self._look_at_all())

    async def _look_at_all(self) -> None:
        found = await read_sessions(self._frame.desk.runner)
        self._body.show(found, lambda: _draw_names(found))

    async def _look_at_one(self) -> None:
        runner = self._frame.desk.runner
        session = runner.session(self._name)
        try:
            async with asyncio.timeout(READ_SECONDS):
                state = await runner.reader.session(session.id)
        except TaskNotFoundError:
            missing = partial(parts.empty, "search_off", "There is no such session", self._name)
            self._body.show(None, missing)
            return
        key = (state.digest, state.line)
        if self._body.shows(key):
            return
        commits = (await turns(runner.archive, state))[-MOST:]
        read = partial(runner.reader.turn, legible=True)
        shown = [turn_of(commit.task, await read(commit.sha256)) for commit in commits]
        try:
            cost = (await session.usage()).in_words
        except TaskNotFoundError as error:
            cost = f"not known: {error}"
        self._body.show(key, lambda: _draw_turns(shown, cost, state.line))


def _draw_names(found: list[SessionName]) -> None:
    if not found:
        parts.empty("forum", "No sessions yet", "A task with a session begins one.")
        return
    with ui.element("ul").props('aria-label="Sessions"').classes(PANEL):
        for each in found:
            with ui.element("li").classes(f"{LINE} flex items-center gap-4 px-4 py-3"):
                to = parts.url("/sessions", {"name": each.name})
                parts.link(redact(each.name), to, "min-w-0 break-words")
                parts.moment(each.begun, f"text-sm {QUIET}")


def _draw_turns(shown: list[Turn], cost: str, line: Sequence[str]) -> None:
    parts.facts([("Cost", cost), ("In line", ", ".join(map(redact, line)))])
    for turn in shown:
        _draw_turn(turn)


def _draw_turn(turn: Turn) -> None:
    with ui.element("section").classes(f"{CARD} flex flex-col gap-3"):
        for said in turn.said:
            with ui.element("div").classes("grid w-full gap-x-4 sm:grid-cols-[6rem_minmax(0,1fr)]"):
                parts.text("span", said.role, f"text-xs font-medium {QUIET}")
                parts.prose(said.text)
        if turn.task_id:
            parts.link("The task of this turn", parts.task_url(turn.task_id), "text-sm")
        else:
            parts.quiet("Added by a program.")
