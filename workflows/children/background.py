"""Work next to the main loop of a task, and what becomes of its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError

T = TypeVar("T")


class Background:
    """Runs work next to the main loop, and keeps the first error that no one takes.

    Only an activity's failure is a decision: it is in the history, so a replay sees it as well. Any
    other error may be this process's alone. If it decided about a command, a replay would decide
    otherwise, and the task could never go on. `AgentTask.run` raises it: the workflow task fails,
    and the server repeats it, in another process or once the code is mended. Nothing is lost.
    """

    def __init__(self) -> None:
        """Begin with no work."""
        self._tasks: list[asyncio.Task[None]] = []
        self._error: BaseException | None = None

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin work that takes the failures of its activities itself."""
        task = asyncio.create_task(work)
        task.add_done_callback(self.over)
        return task

    def keep(self, *works: Coroutine[Any, Any, None]) -> None:
        """Begin work that goes on until `cancel`."""
        self._tasks += map(self.begin, works)

    def cancel(self) -> None:
        """Cancel the work that goes on until then."""
        for task in self._tasks:
            task.cancel()

    @property
    def has_failed(self) -> bool:
        """Whether any of the work has raised what no one takes."""
        return self._error is not None

    def check(self) -> None:
        """Raise what any of the work has raised.

        Raises:
            RuntimeError: It did. A FailureError as it is would end the workflow.
        """
        if self._error is not None:
            msg = f"The task's workflow code failed: {self._error!r}"
            raise RuntimeError(msg) from self._error

    def over(self, task: asyncio.Task[Any]) -> None:
        """Keep the error of work that has ended."""
        if self._error is None and not task.cancelled():
            self._error = task.exception()

    def over_but_for_failures(self, task: asyncio.Task[Any]) -> None:
        """Keep its error, unless it is an activity's failure: anyone who awaits it takes that."""
        if not task.cancelled() and not isinstance(task.exception(), FailureError):
            self.over(task)


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin work of a task whose caller takes its result, and the failures of its activities."""
    task = asyncio.create_task(work)
    task.add_done_callback(workflow.instance().core.background.over_but_for_failures)
    return task
