"""How an error shows a value that somebody has given: briefly, and whatever the value is."""

from __future__ import annotations

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
    return text.encode("utf-8", "backslashreplace").decode()


def time_shown(seconds: float) -> str:
    """Return a time, in seconds since 1970, as people read it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
