"""What the protocols of conversations share: a person's thread as a session, a task at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.values.steps import Task

if TYPE_CHECKING:
    from holdfast.desk.identity.tokens import Identity


def thread(visitor: Identity, id: str) -> str:
    """Return the name of the session of a person's thread."""
    return f"{quote(visitor.name, safe='')}/{id}"


async def settled(runner: AgentRunner, task_id: str) -> Task:
    """Return a task; one that has its answer is closed before."""
    task = await runner.get_task(task_id)
    if task.status == "answered":
        await runner.finalize_response(task_id)
        task = await runner.get_task(task_id)
    return task
