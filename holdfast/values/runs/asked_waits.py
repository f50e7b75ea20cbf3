"""The `Retry-After` header: how long the provider of a model asks to wait before the next call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the seconds that the provider asks to wait, or None.

    Args:
        headers: Response headers; `retry-after-ms`, or `retry-after` in seconds or as HTTP date.
        now: Present time in seconds since 1970; None reads the clock.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(0.0, seconds) if isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - (time.time() if now is None else now))
    except (ValueError, OverflowError, TypeError, IndexError):  # whatever stands there
        return None
