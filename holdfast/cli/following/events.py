"""The events of a ledger in words: who asked, decided, undid, forked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from holdfast.cli.output import shortened
from holdfast.task.data.records import Entry, EventRecord
from holdfast.values.base import Json

RED = frozenset({"failed", "refused", "undo_failed"})
SAID = ("arguments", "result", "note", "text", "input", "step")
"""What a command's body may say, apart from its reason."""


def event_line(event: EventRecord) -> tuple[str, str]:
    """Return an event in one line, and its style."""
    body = event.body
    match event.kind:
        case "asked":
            what = f"{body.get('tool', '')} {body.get('arguments', '')}".strip()
            words = f"asked {body.get('id', '')} {body.get('kind', '')} {what}"
        case "command" | "refused":
            words = _command(event)
        case "undone":
            steps = ", ".join(map(str, body.get("steps", ())))
            words = f"undone{_by(event)} steps {steps}"
            for name in ("undone", "remains", "check"):
                if texts := body.get(name):
                    words += f"; {name}: {'; '.join(map(str, texts))}"
        case "effect_undone" | "undo_failed":
            words = f"{event.kind.replace('_', ' ')}{_by(event)} {body.get('effect', '')}"
        case "forked":
            words = (
                f"forked{_by(event)} from {body.get('from', '')} after step {body.get('at', '')}"
            )
        case "expired" | "withdrawn":
            words = f"{event.kind} {body.get('id', '')} {body.get('tool', '')}"
        case "probed":
            happened = "happened" if body.get("happened") else "did not happen"
            words = f"probed {body.get('tool', '')}: it {happened}"
        case kind:
            status = str(body.get("status") or "")
            words = " ".join(part for part in (kind, status) if part) + _by(event)
    text = f"{words.rstrip()}: {event.text}" if event.text else words.rstrip()
    return text, "red" if event.kind in RED else "dim"


def forked_from(entries: Sequence[Entry]) -> dict[str, Json] | None:
    """Return where a task comes from: the nearest one, when that was a fork too."""
    marks = [e.event for e in entries if e.event is not None and e.event.kind == "forked"]
    if not marks:
        return None
    return {"task_id": marks[-1].body.get("from"), "n": marks[-1].body.get("at")}


def _command(event: EventRecord) -> str:
    verb = str(event.body.get("verb", ""))
    given = _object(event.body.get("arguments"))
    words = [event.kind, f"{verb.replace('_', '-')}{_by(event)}", str(given.get("approval", ""))]
    words += [f"{name}={shortened(str(given[name]))}" for name in SAID if given.get(name)]
    return " ".join(word for word in words if word)


def _by(event: EventRecord) -> str:
    return f" by {event.by}" if event.by else ""


def _object(value: Json) -> dict[str, Json]:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}
