"""Garbage collection, put off while many values are made that will live on."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Collector:
    """The collector of this process, which several threads may want to wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_on = False

    @contextmanager
    def put_off(self) -> Generator[None]:
        """Collect nothing in this block, nor in those that other threads are in by then."""
        with self._lock:
            if not self._users:
                self._was_on = gc.isenabled()
                gc.disable()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and self._was_on:
                    gc.enable()


uncollected = _Collector().put_off
"""A context in which no cyclic garbage is collected, for code that does not wait.

The collector runs each time that some hundred objects were made, and looks at many of those before
them again: of the time that the record of a long task takes to be read, that is more than half.
Objects without a reference are freed as ever.
"""
