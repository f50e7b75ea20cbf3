"""Times, lengths of time and data in the words of the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from holdfast.values.base import Json
from holdfast.values.messages import Usage
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import cut as cut_to
from holdfast.values.text.shown import time_shown

LONGEST = 4_000
"""Most characters of a text on a page; the audit and the transcript have the whole."""

cut = partial(cut_to, longest=LONGEST)


def clock(seconds: float) -> str:
    """Return a time in UTC; empty for none."""
    return time_shown(seconds) if seconds else ""


def span(seconds: float) -> str:
    """Return a length of time with two units at most, as `1 h 5 min`."""
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:  # noqa: PLR2004  tenths matter only for what is short
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, below, unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name}" + (f" {rest} {unit}" if rest else "")
    return f"{whole} s"


def spent(usage: Usage) -> str:
    """Return what model calls cost: tokens, and money where a price is known."""
    tokens = f"{usage.total_tokens:,} tokens" if usage.total_tokens else ""
    return dotted(tokens, usage.cost_shown if usage.priced else "")


def dotted(*parts: str) -> str:
    """Join what there is to say in one line."""
    return " · ".join(filter(None, parts))


def object_of(value: Json) -> dict[str, Json] | None:
    """Return data as a JSON object; None when it is not one."""
    return cast("dict[str, Json]", value) if isinstance(value, dict) else None


def without_secrets(data: Json, clean: Callable[[str], str] = redact) -> Json:
    """Return data with secrets replaced in all of its texts, those of names included."""
    if isinstance(data, str):
        return clean(data)
    if isinstance(data, dict):
        named = cast("dict[str, Json]", data)
        return {clean(name): without_secrets(value, clean) for name, value in named.items()}
    if isinstance(data, list):
        return [without_secrets(value, clean) for value in cast("Sequence[Json]", data)]
    return data
