"""Which tool calls undos tell of, and what became of their effects."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.reading.audit.event import AuditEvent
from holdfast.task.happenings import CallUndone
from holdfast.task.undo import UNDONE


class CallPlace(NamedTuple):
    """Where a tool call is told.

    Attributes:
        at: Position of its event.
        key: Names its place in the task, as undos do.
        n: Ordinal of its step; 0 of one that has none.
        task: The task that the call was, or empty.
    """

    at: int
    key: str
    n: int
    task: str


class Undos:
    """Finds the calls that undos tell of: of completed steps before the undo, of others after it.

    A step that is run anew makes calls at the places of those that it made before, so a place names
    a call of the step as it is at that time.
    """

    def __init__(self) -> None:
        """Begin with no call and no undo."""
        self._done: dict[str, CallPlace] = {}
        self._waiting: dict[str, str] = {}

    def call(self, place: CallPlace, events: list[AuditEvent]) -> None:
        """Take note of a call that is told, and tell what an undo before did of it."""
        for key in filter(None, (place.key, place.task)):
            if key in self._waiting:
                _mark_undone(events, place.at, self._waiting.pop(key))
            if place.n:
                self._done[key] = place

    def taken_back(self, undone: CallUndone, events: list[AuditEvent]) -> None:
        """Tell of a call that its effect was taken back."""
        by = undone.event.by
        if undone.place in self._done:
            _mark_undone(events, self._done[undone.place].at, by)
        else:
            self._waiting[undone.place] = by

    def left(self, n: int, events: list[AuditEvent]) -> None:
        """Tell of the calls of completed steps, from an ordinal on, that an undo has left them."""
        for place in self._done.values():
            if place.n >= n and not events[place.at].undo:
                self.remains(place.at, events)
        self._done = {key: place for key, place in self._done.items() if place.n < n}

    def remains(self, at: int, events: list[AuditEvent]) -> None:
        """Tell of a call that was left whether it has, or may have, an effect that remains."""
        event = events[at]
        if event.effect != "read" and event.status in ("done", "unknown") and _ran(event):
            events[at] = event.model_copy(update={"undo": "remains"})


def _ran(event: AuditEvent) -> bool:
    """Whether a call was made; of one that is unknown nobody knows, so it counts."""
    return event.status == "unknown" or event.attempts > 0


def _mark_undone(events: list[AuditEvent], at: int, by: str) -> None:
    events[at] = events[at].model_copy(update={"undo": UNDONE, "undone_by": by})
