"""Steering tasks: pause, resume, abandon. Durable also while no worker process is up."""

from __future__ import annotations

from holdfast.client.base import RunnerBase, TaskLike, id_of
from holdfast.wire import Receipt


class TaskControl(RunnerBase):
    """The steering part of AgentRunner."""

    async def pause(self, task: TaskLike, reason: str = "", by: str = "") -> Receipt:
        """Let no further step begin.

        Raises:
            CommandRefusedError: The task is closing.
        """
        return await self._tasks.command(id_of(task), "pause", by=by, body={"reason": reason})

    async def resume(self, task: TaskLike, by: str = "") -> Receipt:
        """Let steps begin again.

        Raises:
            CommandRefusedError: The task is not paused.
        """
        return await self._tasks.command(id_of(task), "resume", by=by)

    async def abandon(self, task: TaskLike, reason: str, by: str = "") -> Receipt:
        """End a task without an answer: running calls are cancelled, its session gets nothing.

        Raises:
            CommandRefusedError: The task is closing.
            TaskClosedError: The task is closed.
        """
        return await self._tasks.command(id_of(task), "abandon", by=by, body={"reason": reason})
