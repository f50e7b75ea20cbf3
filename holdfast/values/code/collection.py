"""Garbage collection, put off while many values are made that will live on."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

LONGEST_SECONDS = 1.0
"""How long after the first of several overlapping blocks another one may still join them."""


class _Collector:
    """The collector of this process, which blocks of several threads put off together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_on = False
        self._since = 0.0

    @contextmanager
    def put_off(self) -> Generator[None]:
        """Collect nothing in this process until the last of these blocks is left.

        One that comes late does not join, so that threads with many of them, one after the other,
        do not keep the garbage of others for good.
        """
        with self._lock:
            joins = not self._users or time.monotonic() < self._since + LONGEST_SECONDS
            if not self._users:
                self._was_on, self._since = gc.isenabled(), time.monotonic()
                gc.disable()
            self._users += joins
        try:
            yield
        finally:
            with self._lock:
                self._users -= joins
                if joins and not self._users and self._was_on:
                    gc.enable()


uncollected = _Collector().put_off
"""A context in which no cyclic garbage is collected, for code that makes many values that live on.

The collector runs each time that some hundred objects were made, and looks at many of those before
them again: that is more than half of the time that reading a long record takes. Objects without a
reference are freed as ever. The code must not wait: nothing is collected for others meanwhile.
"""
