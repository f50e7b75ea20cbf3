"""Watches tasks whose end the server does not report to this one, at a slow pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from holdfast.task.data.children import ENDED

FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(hours=1)
"""The pauses between two looks: each is twice as long as the one before. An end is noticed after as
long again as was waited, at the latest after an hour."""

ONE_LOOK = timedelta(minutes=1)


class Watch:
    """Notices that tasks have ended which could not say so: by Temporal's own tools.

    One activity looks; an attempt that finds no end fails, and the server makes the next one after
    a pause. So however long it waits, it adds three events to the history, and takes up no worker.
    """

    def __init__(
        self, wanted: Callable[[], frozenset[str]], tell: Callable[[str, str], None]
    ) -> None:
        """Watch other tasks for a task.

        Args:
            wanted: Returns the ids of those whose end must be noticed now.
            tell: Called with the id of one that has ended, and how. It is not wanted afterwards.
        """
        self._wanted = wanted
        self._tell = tell

    async def run(self) -> None:
        """Watch until it is cancelled."""
        while True:
            await workflow.wait_condition(lambda: bool(self._wanted()))
            await self._look(self._wanted())

    async def _look(self, watched: frozenset[str]) -> None:
        """Wait until one of some tasks has ended, none is wanted any more, or another one is."""
        looking = workflow.start_activity(
            ENDED,
            sorted(watched),
            result_type=dict[str, str],
            start_to_close_timeout=ONE_LOOK,
            retry_policy=RetryPolicy(initial_interval=FIRST_PAUSE, maximum_interval=LONGEST_PAUSE),
            summary=f"{len(watched)} tasks",
        )
        looking.add_done_callback(_retrieve)
        # A task that joins those watched needs a new activity: the input of this one is fixed.
        await workflow.wait_condition(lambda: looking.done() or not self._is_for(watched))
        if not looking.done():
            looking.cancel()
            return
        for task, how in sorted(looking.result().items()):
            self._tell(task, how)

    def _is_for(self, watched: frozenset[str]) -> bool:
        wanted = self._wanted()
        return bool(wanted) and wanted <= watched


def _retrieve(done: asyncio.Task[Any]) -> None:
    if not done.cancelled():
        done.exception()  # else asyncio warns that it was never retrieved
