"""What the tasks of a list have cost: each task is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.cli.commands.open_questions import READ_SECONDS
from holdfast.client.agent_runner.base import id_of
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import InvalidArgumentError, NoWorkerError, QueryFailedError, TaskNotFoundError
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.messages import Usage


async def costs_of(runner: AgentRunner, tasks: Sequence[str]) -> dict[str, Usage | None]:
    """Read what tasks have cost; None for one that cannot be read, as without a worker process."""

    async def read(task: str) -> Usage | None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                return (await runner.reader.task(id_of(task))).usage
        except (NoWorkerError, QueryFailedError, TaskNotFoundError, TimeoutError):
            return None
        except InvalidArgumentError:  # an id that only Temporal's own tools can give
            return None

    return dict(zip(tasks, await some_at_once(read, tasks), strict=True))
