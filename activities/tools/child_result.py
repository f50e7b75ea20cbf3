"""Results of child tasks, for the calls of agents as tools that they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.service import RPCError

from holdfast.activities.data.registry import Registry
from holdfast.activities.data.source import Source
from holdfast.activities.failures import clean_message
from holdfast.agents.runs.teams import team_of
from holdfast.errors import EngineError, TaskNotFoundError
from holdfast.reading.queries import to_error
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import read_recorded
from holdfast.task.data.failures import Failure
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.code.context_data import KEY
from holdfast.values.code.user_calls import invoke
from holdfast.values.steps import Task

if TYPE_CHECKING:
    from holdfast.agents.hooks import RunHooksBase
    from holdfast.agents.runs.results import RunResult
    from holdfast.reading.streams.reader import StreamEvent


class ChildUnreadError(Exception):
    """The result of a child task could not be read; the child itself is as it was.

    Attributes:
        cause: Why.
    """

    def __init__(self, cause: Exception) -> None:
        """Keep why."""
        self.cause = cause
        super().__init__(clean_message(cause))


@dataclass(frozen=True, eq=False, repr=False)
class ChildRun:
    """The child task of a call, once it has ended.

    Attributes:
        child: Its id.
        registry: The agents of this process.
        source: The source of task data.
        state: The state that the call may change: it gets the child's context.
    """

    child: str
    registry: Registry
    source: Source
    state: dict[str, Json]

    async def __call__(self) -> RunResult:
        """Return its result.

        Raises:
            ChildUnreadError: It could not be read.
            HoldfastError: The error that ended it.
        """
        from holdfast.reading.runs.run_results import ANSWERED, run_result

        reader = self._reader
        with _reading():
            try:
                task = await reader.task(self.child)
            except TaskNotFoundError:  # there will never be more to read
                text = f"Task {self.child!r} was deleted. It is not known what it did."
                raise to_error(_abandoned(text), task_id=self.child) from None
            if task.status not in ANSWERED:  # one that was ended early may have no more to read
                raise to_error(await _failure(reader, task), task_id=self.child)
            recorded = await read_recorded(reader, self.child)
        task = recorded.task
        if KEY in task.extra_state:
            self.state[KEY] = merge_patch.plain(task.extra_state[KEY])
        return run_result(recorded, self.registry.agent(task.agent))

    async def events(self) -> AsyncGenerator[StreamEvent]:
        """Yield its events, oldest first.

        Raises:
            ChildUnreadError: They could not be read.
        """
        from holdfast.reading.streams.reader import StreamReader

        team = team_of(self.registry.agent((await self._reader.task(self.child)).agent))
        stream, over = StreamReader(self._reader, self.child, team=team), asyncio.Event()
        over.set()
        with _reading():
            async for batch in stream.batches(over):
                for event in batch:
                    yield event

    async def call_hooks(self, hooks: RunHooksBase[Any, Any], context: Any) -> None:
        """Call hooks with what it did.

        Raises:
            ChildUnreadError: It could not be read.
            Exception: Whatever a hook raises.
        """
        from holdfast.reading.run_hooks import HookFailed, HookNotifier

        try:
            with _reading():
                task = await self._reader.task(self.child)
                notifier = HookNotifier(
                    hooks,
                    self._reader,
                    self.child,
                    call=invoke,
                    team=team_of(self.registry.agent(task.agent)),
                    context=context,
                    given=task.input,
                )
                await notifier.look()
        except HookFailed as failed:  # outside of _reading: what a hook raises is its own
            raise (failed if failed.__cause__ is None else failed.__cause__) from None

    @property
    def _reader(self) -> Reader:
        return Reader(activity.client(), self.source.archive)


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
    why = f": {task.error}" if task.error else "."
    return _abandoned(f"Task {task.task_id!r} was ended with Temporal's own tools{why}")


def _abandoned(text: str) -> Failure:
    return Failure(type="TaskAbandonedError", message=text)
