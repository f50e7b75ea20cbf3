"""Work beside the main loop of a task, which nobody awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    """Runs work beside the main loop, which raises what it raises.

    An exception in a task that nobody awaits is only logged, and what the task does would silently
    be missing from then on. Raised by the main loop, it fails the workflow task: the server repeats
    that until the code is mended, and nothing is lost.
    """

    def __init__(self) -> None:
        """Begin with no work."""
        self._tasks: list[asyncio.Task[None]] = []
        self._error: BaseException | None = None

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin work that ends by itself."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._over)
        return task

    def keep(self, *works: Coroutine[Any, Any, None]) -> None:
        """Begin work that goes on until `cancel`."""
        self._tasks += map(self.begin, works)

    def cancel(self) -> None:
        """Cancel the work that goes on until then."""
        for task in self._tasks:
            task.cancel()

    def check(self) -> None:
        """Raise what any of the work has raised.

        Raises:
            RuntimeError: It did. A FailureError as it is would end the workflow.
        """
        if self._error is not None:
            msg = f"Work beside the main loop of the task failed: {self._error!r}"
            raise RuntimeError(msg) from self._error

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._error = self._error or task.exception()
