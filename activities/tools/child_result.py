"""Results of child tasks, for the calls of agents as tools that they belong to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from temporalio import activity
from temporalio.service import RPCError

from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source
from holdfast.activities.failures import clean_message
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
    """The result of a child task could not be read; the child itself is as it was.

    Attributes:
        cause: Why.
    """

    def __init__(self, cause: Exception) -> None:
        """Keep why."""
        self.cause = cause
        super().__init__(clean_message(cause))


def nested_result(
    registry: Registry, source: Source, given: ToolInput, state: dict[str, Json]
) -> Callable[[], Awaitable[RunResult]] | None:
    """Return a function that reads the result of a call's child task, if the call has one.

    Args:
        registry: The agents of this process.
        source: The source of task data.
        given: The call.
        state: The state that the call may change: it gets the child's context.
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
                raise to_error(await _failure(reader, task), task_id=child)
            recorded = await read_recorded(reader, child)
        task = recorded.task
        if KEY in task.extra_state:
            state[KEY] = merge_patch.plain(task.extra_state[KEY])
        return run_result(recorded, registry.agent(task.agent))

    return result


@contextmanager
def _reading() -> Generator[None]:
    """Distinguish trouble in reading a child task from a failure of the child.

    Raises:
        ChildUnreadError: The task could not be read.
    """
    try:
        yield
    except (EngineError, RPCError) as error:
        raise ChildUnreadError(error) from error


async def _failure(reader: Reader, task: Task) -> Failure:
    """Return why a task that is closed has no answer."""
    failure = await reader.failure(task.task_id)
    if failure is not None:
        return failure
    return Failure(type="TaskAbandonedError", message=f"Task {task.task_id!r} was {task.status}.")
