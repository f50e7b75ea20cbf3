"""Finding a task by its id, or by the beginning of it."""

from __future__ import annotations

from temporalio.service import RPCError, RPCStatusCode

from holdfast.archive.names import key_in
from holdfast.archive.segments import has_record
from holdfast.cli.connection import Engine
from holdfast.engine.search_attributes import AGENT_TASK, TASKS, begins
from holdfast.errors import InvalidArgumentError, TaskNotFoundError
from holdfast.values.checks.ids import is_nested
from holdfast.values.text.shown import MOST_NAMED, instead, named

NEWEST = 200
"""Tasks among which the one is looked for that a wrong id may mean."""


async def find_task(engine: Engine, typed: str) -> str:
    """Return the id of the one task that an id or its beginning names, open or closed.

    Raises:
        TaskNotFoundError: No id is or begins like this.
        InvalidArgumentError: Several do; the text lists them.
    """
    if not typed.strip():
        msg = "Name a task by its id or the beginning of it; `holdfast tasks` lists them."
        raise InvalidArgumentError(msg)
    if await _is_task(engine, typed):
        return typed
    found = await _visible(engine, typed) or await _archived(engine, typed)
    if not found:
        raise TaskNotFoundError(typed, instead(typed, await _newest(engine)))
    if len(found) > 1:
        names = named(sorted(found))
        msg = f"{typed!r} is the beginning of more than one task id: {names}. Type more."
        raise InvalidArgumentError(msg)
    return found.pop()


async def _is_task(engine: Engine, task_id: str) -> bool:
    try:
        found = await engine.client.get_workflow_handle(task_id).describe()
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            raise
        return await has_record(engine.archive, task_id)
    return found.workflow_type == AGENT_TASK


async def _newest(engine: Engine) -> list[str]:
    """Return the ids of the newest tasks, without child tasks, to name one that was meant."""
    query = f"{TASKS} AND ParentWorkflowId IS NULL"
    newest = engine.client.list_workflows(query, page_size=NEWEST, limit=NEWEST)
    return [*dict.fromkeys([each.id async for each in newest])]


async def _visible(engine: Engine, beginning: str) -> set[str]:
    """Ask Temporal for ids; a task that has continued as new is there more than once.

    A child task matches only when no other task does: its id begins with its parent's.
    """
    query = f"{TASKS}{begins('WorkflowId', beginning)}"
    found: set[str] = set()
    for which in (" AND ParentWorkflowId IS NULL", ""):
        async for each in engine.client.list_workflows(query + which):
            found |= {each.id} if each.id.startswith(beginning) else set()
            if len(found) > MOST_NAMED:
                break
        if found:
            break
    return found


async def _archived(engine: Engine, beginning: str) -> set[str]:
    """Look among the closed tasks that Temporal has forgotten."""
    names = await engine.archive.alist_records("tasks")
    found = {each for each in map(key_in, names) if each.startswith(beginning)}
    return {task_id for task_id in found if not is_nested(task_id)} or found
