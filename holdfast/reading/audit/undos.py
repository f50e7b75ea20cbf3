"""Undos in the audit: the tool calls that they concern, and whether their effects remain."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.reading.audit.event import AuditEvent
from holdfast.task.happenings import CallUndone
from holdfast.task.undo import UNDONE


class CallPlace(NamedTuple):
    """A tool call in the audit.

    Attributes:
        at: Position of its event.
        key: Names its place in the task, as undos do.
        n: Ordinal of its step; 0 of one that has none.
        task: Id of the call's child task, or empty.
    """

    at: int
    key: str
    n: int
    task: str


class Undos:
    """Finds the calls that undos concern: of completed steps before the undo, of others after it.

    A step that runs again makes calls at the places of those that it made before, so a place names
    a call of the step as it is at that time.
    """

    def __init__(self) -> None:
        """Begin with no call and no undo."""
        self._done: dict[str, CallPlace] = {}
        self._waiting: dict[str, str] = {}

    def call(self, place: CallPlace, events: list[AuditEvent]) -> None:
        """Remember a call, and mark its event if an undo before it took its effect back."""
        for key in filter(None, (place.key, place.task)):
            if key in self._waiting:
                _mark_undone(events, place.at, self._waiting.pop(key))
            if place.n:
                self._done[key] = place

    def taken_back(self, undone: CallUndone, events: list[AuditEvent]) -> None:
        """Mark a call's event: its effect was taken back."""
        by = undone.event.by
        if undone.place in self._done:
            _mark_undone(events, self._done[undone.place].at, by)
        else:
            self._waiting[undone.place] = by

    def left(self, n: int, events: list[AuditEvent]) -> None:
        """Mark the calls of completed steps, from an ordinal on, that an undo has left."""
        for place in self._done.values():
            if place.n >= n and not events[place.at].undo:
                self.remains(place.at, events)
        self._done = {key: place for key, place in self._done.items() if place.n < n}

    def remains(self, at: int, events: list[AuditEvent]) -> None:
        """Mark a call that an undo has left if it has, or may have, an effect that remains."""
        event = events[at]
        if event.effect != "read" and event.status in ("done", "unknown") and _ran(event):
            events[at] = event.model_copy(update={"undo": "remains"})


def _ran(event: AuditEvent) -> bool:
    """Whether a call was made; one of unknown outcome counts, because it may have been."""
    return event.status == "unknown" or event.attempts > 0


def _mark_undone(events: list[AuditEvent], at: int, by: str) -> None:
    events[at] = events[at].model_copy(update={"undo": UNDONE, "undone_by": by})
