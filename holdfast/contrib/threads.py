"""Tasks by which an agent answers in threads: what the doors for other protocols share.

A thread is a session of one person. A message of theirs begins a task, the same one each time it is
sent.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any
from urllib.parse import quote

from holdfast.desk.api.access import Access
from holdfast.desk.identity.tokens import Identity
from holdfast.errors import SessionBusyError
from holdfast.values.steps import Task


def thread(visitor: Identity, id: str) -> str:
    """Return the name of the session of a person's thread."""
    return f"{quote(visitor.name, safe='')}/{id}"


def names_digest(*names: str) -> str:
    """Return a part of a task's id that is made of names."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:24]


async def begin(asked: Access, text: str, *, agent: str, thread_id: str, **more: Any) -> str:
    """Begin the task of a message, unless it has begun; return its id.

    Args:
        asked: The request.
        text: The message.
        agent: Name of the agent.
        thread_id: The thread.
        more: Further arguments of `create_task`.

    Raises:
        SessionBusyError: The thread has a task that has not ended.
    """
    by = await asked.may("create", agent)
    create = partial(
        asked.runner.create_task,
        text,
        agent=agent,
        session=thread(asked.visitor, thread_id),
        on_busy="refuse",
        step_mode="automatic",
        streams=True,
        exist_ok=True,
        by=by,
        **more,
    )
    try:
        return (await create()).task_id
    except SessionBusyError as error:  # by a task that was not followed to its end?
        if (await settled(asked, error.task_id)).status != "finished":
            raise
        return (await create()).task_id


async def settled(asked: Access, task_id: str) -> Task:
    """Return a task; one that has its answer is closed before, if the sender may do that."""
    task = await asked.runner.get_task(task_id)
    if task.status != "answered" or not await asked.allows("finalize", task_id):
        return task
    await asked.runner.finalize_response(task_id)
    return await asked.runner.get_task(task_id)
