"""The world outside of the tasks: what tools really did, counted where no task can reach it.

Every worker process and every client process appends lines to files of the campaign; a line is
written with one system call and synced, so that a kill in the next moment cannot take it back.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]
CallPlace = tuple[str, str]
"""Task id and the model's id of a call, which the fake API gives only once."""


@dataclass(frozen=True)
class World:
    """The lines of a campaign.

    Attributes:
        home: Directory of the campaign.
    """

    home: Path

    def lines(self, *kinds: str) -> list[Line]:
        """Return the lines of these kinds, oldest first; all of them without a kind."""
        file = self.home / "events.jsonl"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may still be written
        found: list[Line] = [json.loads(line) for line in lines]
        return [line for line in found if not kinds or line["event"] in kinds]

    def may_happen(self, call: CallPlace) -> bool:
        """Whether a call took effect, or is still inside a process that lives or is frozen."""
        return any(
            line["event"] == "effect" or is_alive(line["pid"])
            for line in self.lines("start", "effect")
            if place_of(line) == call
        )

    def is_taken_back(self, call: CallPlace) -> bool | None:
        """Whether an undo of a call took effect; None while a process may still do it."""
        lines = [line for line in self.lines("cancelling", "cancel") if place_of(line) == call]
        if any(line["event"] == "cancel" for line in lines):
            return True
        return None if any(is_alive(line["pid"]) for line in lines) else False


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; a stopped one lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def place_of(line: Line) -> CallPlace:
    """Return the call that a line is of."""
    return line["task"], line["call"]


def counts(lines: list[Line], event: str) -> Counter[CallPlace]:
    """Count the lines of one kind by their calls."""
    return Counter(place_of(line) for line in lines if line["event"] == event)
