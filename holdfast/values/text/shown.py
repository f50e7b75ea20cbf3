"""How an error shows a value that was given, and what pydantic says of one that does not fit."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime
from difflib import get_close_matches

from pydantic import ValidationError

from holdfast.values.text.redact import holds_secret, redact

LONGEST_SHOWN = 80
"""Characters of a value that an error shows, unless it says otherwise."""

MOST_NAMED = 10
"""Names that an error lists."""


def named(names: Iterable[str]) -> str:
    """Return names for a sentence; "none" without any, and "..." for those beyond ten."""
    known = [*names]
    return ", ".join([*known[:MOST_NAMED], *["..."][: len(known) > MOST_NAMED]]) or "none"


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """Return a question, after a space, that suggests the nearest name; empty if none is near."""
    near = get_close_matches(wrong, [*names], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def instead(wrong: str, names: Iterable[str]) -> str:
    """Return a sentence, after a space, with the nearest name or all names; empty without any."""
    known = [*names]
    return did_you_mean(wrong, known) or (f" There are: {named(known)}." if known else "")


def shown(given: object, longest: int = LONGEST_SHOWN) -> str:
    """Return the beginning of a value's `repr`, as text that can be printed and sent.

    A value that is nested too deep for `repr`, or whose own `__repr__` raises, is shown by its
    type: an error about a value must not be replaced by an error of showing it.

    Args:
        given: The value.
        longest: Most characters of its `repr`.
    """
    if isinstance(given, str):
        return repr(given[:longest]) + ("..." if len(given) > longest else "")
    try:
        text = repr(given)[:longest]
    except Exception:  # noqa: BLE001  the __repr__ of a user's class may raise anything
        return f"<{type(given).__name__} that cannot be shown>"
    return text.encode("utf-8", "backslashreplace").decode() + _unawaited(given)


def type_shown(given: object) -> str:
    """Return the name of a value's type, for an error about it."""
    return f"{type(given).__name__}{_unawaited(given)}"


def _unawaited(given: object) -> str:
    return " (did you forget await?)" if isinstance(given, Awaitable) else ""


def time_shown(seconds: float) -> str:
    """Return a time, in seconds since 1970, as people read it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def age(seconds: float) -> str:
    """Return how old something is, in its largest unit, which changes rarely."""
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{int(max(seconds, 0))} s"


def misfit(owner: str, error: ValidationError) -> str:
    """Say which argument does not fit, and what would.

    Args:
        owner: The class that was given it.
        error: What its check said; the first value that does not fit counts.
    """
    found = error.errors(include_url=False)
    first = found[0]
    # Of a union each member says why not, in a place of its own.
    same = [each for each in found if each["input"] is first["input"]]
    place = first["loc"] if len(same) == 1 else first["loc"][:1]
    said = dict.fromkeys(_in_mid_sentence(each["msg"]) for each in same)
    name = ".".join(map(str, place))
    if first["type"] == "missing":
        return f"{owner} needs {name}, and it was not given."
    value = redact(shown(first["input"]))
    if any(holds_secret(str(part)) for part in first["loc"]):
        value = f"a value that is not shown ({type(first['input']).__name__})"
    given = f"{name}={value}" if name else value
    return f"{owner} cannot use {given}: {' or '.join(said)}."


def _in_mid_sentence(text: str) -> str:
    text = text.removeprefix("Value error, ").rstrip(".")
    return f"{text[:1].lower()}{text[1:]}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 step`, `2 steps`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def shortened(text: str, limit: int = 160) -> str:
    """Cut a text for one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def cut(text: str, longest: int) -> str:
    """Return a text, or its beginning and its length."""
    return text if len(text) <= longest else f"{text[:longest]}… [{len(text)} characters]"


def pretty(value: object) -> str:
    """Return data for people: a text as it is, anything else as indented JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False)


def brief(value: object, limit: int = 120) -> str:
    """Return data in one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, limit)
