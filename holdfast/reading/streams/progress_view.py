"""A view of a task while it runs: updated in place in a notebook, lines of text elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.reading.step_events import (
    ApprovalDecided,
    ChatEnd,
    ChatStart,
    StepEnd,
    StepEvent,
    StepFailed,
    StepStart,
    StepUndone,
    Waiting,
    event_text,
    print_event,
)
from holdfast.values.text.html import grid, table


class Progress:
    """Shows a task while it runs: a handler of its events.

    In a notebook it is a table, which is where it was made and is updated in place. Elsewhere
    it prints a line for each event, as `verbose=True` does.

        runner.chat("Find me a hotel", on_event=Progress())

    It may be called with the events of `step_events` as well.
    """

    def __init__(self) -> None:
        """Show nothing yet."""
        self._title, self._status, self._error = "Task", "not begun", ""
        self._steps: dict[str, dict[str, str]] = {}
        self._view = _display(self)

    def __call__(self, event: StepEvent) -> None:
        """Take an event, and show it."""
        self._take(event)
        if self._view is None:
            print_event(event)
        else:
            self._view.update(self)

    def _take(self, event: StepEvent) -> None:
        step_id, state = getattr(event, "step_id", ""), ""
        match event:
            case ChatStart():
                self._title, self._status = f"Task {event.task_id}: {event.input}", "running"
            case ChatEnd():
                self._status, self._error = event.status, event.error
            case StepStart() | ApprovalDecided():
                state = self._status = "running"
            case Waiting():
                state = self._status = "waiting"
            case StepFailed():
                state, self._status, self._error = "failed", "needs attention", event.error
            case StepEnd():
                state = "done"
                self._status = "answered" if event.output.is_last else self._status
            case StepUndone():
                self._status = "running"
                for undone in event.steps:
                    self._steps.setdefault(undone, {})["state"] = "undone"
            case _:
                pass
        if step_id:
            row = self._steps.setdefault(step_id, {"step": step_id, "state": "running"})
            words = event_text(event).strip().removeprefix(f"{step_id} ").lstrip("> ")
            row |= {"state": state or row["state"], "newest": words or row.get("newest", "")}

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        facts = {"status": self._status, "error": self._error}
        return table(self._title, facts) + (grid([*self._steps.values()]) if self._steps else "")


def _display(shown: object) -> Any:
    """Show an object in the present cell of a notebook; None where there is no notebook.

    Returns:
        What updates it. IPython is never imported: a notebook has it.
    """
    ipython: Any = sys.modules.get("IPython")
    # A terminal of IPython has no kernel, and cannot update what it has printed.
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    return ipython.display.display(shown, display_id=True)
