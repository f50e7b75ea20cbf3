"""What came of a call of an agent as a tool, for the call that collects it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from temporalio import activity
from temporalio.service import RPCError

from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source
from holdfast.activities.failures import text_of
from holdfast.archive.segments import read_record
from holdfast.errors import EngineError
from holdfast.reading.reader import Reader
from holdfast.reading.recorded import read_recorded
from holdfast.reading.server_errors import to_error
from holdfast.task.data.failures import Failure
from holdfast.task.data.wire import ToolInput
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.code.context_data import KEY
from holdfast.values.steps import Task

if TYPE_CHECKING:
    from holdfast.agents.runs.results import RunResult


class ChildUnreadError(Exception):
    """What came of a call's task could not be read; the task itself is as it was.

    Attributes:
        cause: Why.
    """

    def __init__(self, cause: Exception) -> None:
        """Keep why."""
        self.cause = cause
        super().__init__(text_of(cause))


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
        from holdfast.reading.run_results import ANSWERED, run_result

        reader = Reader(activity.client(), source.archive)
        with _reading():
            task = await reader.task(child)
            if task.status not in ANSWERED:  # one that was ended early may have no more to read
                raise to_error(await _failure(source, task), task_id=child)
            recorded = await read_recorded(reader, child)
        task = recorded.task
        if KEY in task.extra_state:
            state[KEY] = merge_patch.plain(task.extra_state[KEY])
        return run_result(recorded, registry.agent(task.agent))

    return result


@contextmanager
def _reading() -> Generator[None]:
    """Tell trouble in reading a task from what came of it.

    Raises:
        ChildUnreadError: The task could not be read.
    """
    try:
        yield
    except (EngineError, RPCError) as error:
        raise ChildUnreadError(error) from error


async def _failure(source: Source, task: Task) -> Failure:
    """Say what ended a task that has no answer."""
    record = await read_record(source.archive, task.task_id)
    if record is not None and record.failure is not None:
        return record.failure
    kind, _, text = task.error.partition(": ")
    if text:
        return Failure(type=kind, message=text)
    return Failure(type="TaskAbandonedError", message=f"Task {task.task_id!r} was {task.status}.")
