"""What a ledger notes besides steps, in words: who asked, decided, undid, forked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from holdfast.cli.output import shortened
from holdfast.task.data.records import EventRecord
from holdfast.task.happenings import CallUndone, Happening, Noted, StepsUndone
from holdfast.values.base import Json

BAD = dict.fromkeys(("damaged", "failed", "undo_failed"), "failed") | {"refused": "refused"}
"""State of events that say that something went wrong, by their kind."""

DETAILS = ("arguments", "result", "note", "text", "input", "step", "names")
"""Fields of a command's body that are shown, apart from its reason."""


def event_line(noted: Noted) -> str:
    """Return an event in one line."""
    words, text = _words(noted).rstrip(), noted.event.text
    return f"{words}: {text}" if text else words


def _words(noted: Noted) -> str:
    # Undos are read from their own happenings; of the other kinds the body is what the task or a
    # person wrote into the ledger, and is shown as it is.
    event, body = noted.event, noted.event.body
    match noted:
        case StepsUndone(steps=steps):
            words = f"undone{_by(event)} steps {', '.join(steps)}"
            for name in ("undone", "remains", "check"):
                if texts := body.get(name):
                    words += f"; {name}: {'; '.join(map(str, texts))}"
            return words
        case CallUndone():
            return f"effect undone{_by(event)} {body.get('effect', '')}"
        case _:
            pass
    match event.kind:
        case "command" | "refused":
            return _command(event)
        case "undo_failed":
            return f"undo failed{_by(event)} {body.get('effect', '')}"
        case "forked":
            return f"forked{_by(event)} from {body.get('from', '')} after step {body.get('at', '')}"
        case "expired" | "withdrawn":
            return f"{event.kind} {body.get('id', '')} {body.get('tool', '')}"
        case "probed":
            happened = "happened" if body.get("happened") else "did not happen"
            return f"probed {body.get('tool', '')}: it {happened}"
        case kind:
            status = str(body.get("status") or "")
            return " ".join(part for part in (kind, status) if part) + _by(event)


def forked_from(found: Iterable[Happening]) -> dict[str, Json] | None:
    """Return the task and step that a task was forked from; the nearest, of a fork of a fork."""
    events = [each.event for each in found if isinstance(each, Noted)]
    marks = [event.body for event in events if event.kind == "forked"]
    return {"task_id": marks[-1].get("from"), "n": marks[-1].get("at")} if marks else None


def _command(event: EventRecord) -> str:
    verb = str(event.body.get("verb", ""))
    given = _object(event.body.get("arguments"))
    words = [f"{verb.replace('_', '-')}{_by(event)}".strip(), str(given.get("approval", ""))]
    words += ["refused:", event.text] if event.kind == "refused" else []
    words += [f"{name}={shortened(str(given[name]))}" for name in DETAILS if given.get(name)]
    return " ".join(word for word in words if word)


def _by(event: EventRecord) -> str:
    return f" by {event.by}" if event.by else ""


def _object(value: Json) -> dict[str, Json]:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}
