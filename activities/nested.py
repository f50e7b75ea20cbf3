"""What came of a call of an agent as a tool, for the call that collects it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from temporalio import activity

from holdfast import merge_patch
from holdfast.activities.registry import Registry
from holdfast.activities.source import Source
from holdfast.client.failures import to_error
from holdfast.client.reading import Reader
from holdfast.client.recorded import read_recorded
from holdfast.context_object import KEY
from holdfast.records import Failure
from holdfast.segments import read_record
from holdfast.steps import Task
from holdfast.values import Json
from holdfast.wire import ToolInput

if TYPE_CHECKING:
    from holdfast.client.results import RunResult


def nested_result(
    registry: Registry, source: Source, given: ToolInput, state: dict[str, Json]
) -> Callable[[], Awaitable[RunResult]] | None:
    """Return what gives the result of a call's task, if the call is one.

    Args:
        registry: The agents of this process.
        source: The source of task data.
        given: The call.
        state: The state that the call may change: the context gets what its task made of it.
    """
    if not given.child:
        return None
    child = given.child

    async def result() -> RunResult:
        from holdfast.client.run_reading import run_result

        recorded = await read_recorded(Reader(activity.client(), source.archive), child)
        task = recorded.task
        if task.status not in ("answered", "finished"):
            raise to_error(await _failure(source, task), task_id=child)
        if KEY in task.extra_state:
            state[KEY] = merge_patch.plain(task.extra_state[KEY])
        return run_result(recorded, registry.agent(task.agent))

    return result


async def _failure(source: Source, task: Task) -> Failure:
    """Say what ended a task that has no answer."""
    record = await read_record(source.archive, task.task_id)
    if record is not None and record.failure is not None:
        return record.failure
    kind, _, text = task.error.partition(": ")
    if text:
        return Failure(type=kind, message=text)
    return Failure(type="TaskAbandonedError", message=f"Task {task.task_id!r} was {task.status}.")
