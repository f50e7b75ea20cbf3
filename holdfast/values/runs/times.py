"""Times as models and people write them: how long, or when."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal

Overlap = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "allow_all"]
"""What happens to a task whose time comes while the one before is open."""

_SPANS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
SPAN = re.compile(r"(\d{1,6}) ?(s|min|h|d|w)")


def span_in(text: str) -> timedelta | None:
    """Return how long "30 min", "2 h" or "1 d" is; None for another text."""
    parts = SPAN.fullmatch(text.strip())
    return timedelta(**{_SPANS[parts[2]]: int(parts[1])}) if parts else None


def time_in(text: str, *, now: float) -> float:
    """Return a time, in seconds since the epoch, that a text names: a span from now, or ISO 8601.

    Raises:
        ValueError: It names none, or leaves out the time zone.
    """
    span = span_in(text)
    if span is not None:
        return now + span.total_seconds()
    found = datetime.fromisoformat(text.strip())
    if found.tzinfo is None:
        raise ValueError("a time without a time zone is a different time for each reader")
    return found.timestamp()
