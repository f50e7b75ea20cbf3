"""Clocks: one that goes on while the machine is suspended, and the server's next to this one's."""

from __future__ import annotations

import math
import sys
import time

CLOCKS_SECONDS = 300.0
"""How long a difference between the clocks is remembered, at least."""


def now() -> float:
    """Return seconds of a clock that goes on while the machine is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = time.CLOCK_MONOTONIC  # the one of time.monotonic() stops there
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Clocks:
    """For how long activities were in transit from the server to this process.

    Of the differences between this machine's time and the server's time of the start, the least one
    of the last minutes is the difference of the two clocks.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._least, self._least_before = math.inf, math.inf
        self._end = 0.0

    def delay(self, started: float, here: float) -> float | None:
        """Return for how long an activity was on its way; None when it is the first one.

        Args:
            started: When the server started it, by the server's clock.
            here: The time, by this machine's clock.
        """
        if now() > self._end:
            self._least_before, self._least = self._least, math.inf
            self._end = now() + CLOCKS_SECONDS
        least, difference = min(self._least, self._least_before), here - started
        self._least = min(self._least, difference)
        return None if least == math.inf else max(difference - least, 0.0)
