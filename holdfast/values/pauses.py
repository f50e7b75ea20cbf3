"""Growing pauses between attempts.

Nothing here reads a clock or is random: workflow code has the same pauses when it is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count


def pauses(
    first: float, longest: float, factor: float = 2.0, total: float | None = None
) -> Iterator[float]:
    """Return the pauses between attempts, in seconds: `pause_of` attempt 0, 1, 2 and so on.

    Args:
        first: The pause after the first attempt.
        longest: No pause is longer.
        factor: How many times as long as the one before each pause is.
        total: No pause follows once their sum has reached this; None means pauses without end.

    Raises:
        ValueError: The arguments make no growing pauses.
    """
    _check(first, longest, factor)
    if total is not None and not total >= 0:
        raise ValueError(f"total={total!r} is below 0. Give None for pauses without end.")
    return _each(first, longest, factor, total)


def pause_of(attempt: int, first: float, longest: float, factor: float = 2.0) -> float:
    """Return the pause after an attempt, in seconds: `first * factor**attempt`, or `longest`.

    Args:
        attempt: Number of the attempt, from 0.
        first: The pause after attempt 0.
        longest: No pause is longer.
        factor: How many times as long as the one before each pause is.

    Raises:
        ValueError: The arguments make no growing pauses, or `attempt` is below 0.
    """
    _check(first, longest, factor)
    if attempt < 0:
        raise ValueError(f"attempt={attempt!r} is below 0. Attempts count from 0.")
    try:
        return min(first * factor**attempt, longest)
    except OverflowError:  # the power has no float: far above any longest pause
        return longest


def _check(first: float, longest: float, factor: float) -> None:
    """Check that attempts are never made without a pause, and pauses do not shrink.

    A number that is not one compares as false, so it is refused as well.
    """
    if not (first > 0 and longest > 0):
        msg = f"first={first!r} and longest={longest!r} must be above 0: attempts need a pause."
        raise ValueError(msg)
    if not factor >= 1:
        raise ValueError(f"factor={factor!r} is below 1. Pauses grow; 1 keeps them equal.")


def _each(first: float, longest: float, factor: float, total: float | None) -> Iterator[float]:
    spent = 0.0
    for attempt in count():
        if total is not None and spent >= total:
            return
        pause = pause_of(attempt, first, longest, factor)
        yield pause
        spent += pause
