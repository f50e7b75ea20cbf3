"""How an error shows a value that somebody has given: briefly, and whatever the value is."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime

LONGEST_SHOWN = 80
"""Characters of a value that an error shows, unless it says otherwise."""


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
