"""How an error shows a value that someone has given: briefly, and whatever the value is."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime
from difflib import get_close_matches

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
