"""The part of AgentRunner that streams steps, chats and tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Literal

from holdfast.client.agent_runner.base import Images, RunnerBase, TaskLike, id_of, new_id
from holdfast.client.agent_runner.runs import TaskRuns
from holdfast.client.streamed import Open, Streamed
from holdfast.models.choices import ToolChoice
from holdfast.reading.reader import Reader
from holdfast.reading.streams.events import StreamEvent
from holdfast.reading.streams.reader import StreamReader
from holdfast.values.checks.arguments import check_arguments
from holdfast.values.checks.ids import check_name, check_new_id
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import AgentResponse, TaskStep, TaskStepOutput

_OPEN_ENDS: tuple[TaskStatus, ...] = ("answered", "waiting", "paused", "needs_attention")


class TaskStreaming(TaskRuns):
    """The part of AgentRunner that streams events; see `docs/streaming.md`."""

    def stream_step(
        self,
        task: TaskLike,
        input: str | None = None,
        step: TaskStep | str | None = None,
        *,
        offset: int | None = None,
        tool_choice: ToolChoice | None = None,
        request_id: str | None = None,
        images: Images = (),
    ) -> Streamed[TaskStepOutput]:
        """Run the next step as `run_step` does, and stream its events.

        It returns at once, and the step runs whether or not the stream is read:
        `async for event in stream`, then `await stream.result()`.

        Args:
            task: The task.
            input: As for run_step, like step and those after offset.
            step: The queued step to run.
            offset: Begin after the event of this offset, to resume an interrupted reader; None
                begins with the step that is run.
            tool_choice: Tool choice of the step.
            request_id: Names this request: sent again with the same id, one step is run.
            images: Images of the new input.
        """
        check_arguments(TaskStreaming.stream_step, offset=offset)
        task_id = id_of(task)

        async def work(opened: Callable[[Open], None]) -> TaskStepOutput:
            asked = await self.step_request(input, step, tool_choice, images)
            reader = _reader(self, task_id, offset=offset or 0)
            if offset is None:
                await reader.skip()
            begun = reader.offset
            opened(lambda at: _reader(self, task_id, offset=begun if at is None else at))
            asked = asked.model_copy(update={"stream": True})
            return await self.run_request(task_id, asked, request_id)

        return Streamed(task_id, work)

    def stream_chat(
        self, message: str, *args: Any, task_id: str | None = None, **options: Any
    ) -> Streamed[AgentResponse]:
        """Do what `chat` does, and stream its events; `await stream.result()` is the response.

        Args:
            message: The request.
            args: As for chat.
            task_id: Id of the task.
            options: As for chat.
        """
        named = task_id
        if named is None:
            named = new_id(check_name("agent", options.get("agent") or self.agent))
        check_new_id(named)

        async def work(opened: Callable[[Open], None]) -> AgentResponse:
            def started() -> None:
                opened(lambda at: _reader(self, named, offset=at or 0))

            options.update(task_id=named, streams=True, started=started)
            return await self.chat(message, *args, **options)

        return Streamed(named, work)

    async def stream_events(
        self,
        task: TaskLike,
        *,
        offset: int = 0,
        until: Literal["closed", "waiting"] = "closed",
    ) -> AsyncGenerator[StreamEvent]:
        """Stream the events of a task that this or another process runs.

        Answers come token by token if the task was created or is run with streaming
        (`streams=True`, `stream_step` and the like); else each comes whole. Breaking off does
        nothing to the task.

        Args:
            task: The task, running or closed.
            offset: Go on after the event of this offset; 0 begins at the task's beginning.
            until: "closed": to end when the task is closed; one that has its answer is open until
                it is finalized. "waiting": to end as well, when it has its answer or waits for a
                person.

        Raises:
            TaskNotFoundError: No task has this id.
            NoWorkerError: It is open and no worker process is up to answer. Go on after the last
                offset once there is one.
            ConnectError: The server could not be reached; likewise.
        """
        check_arguments(TaskStreaming.stream_events, offset=offset, until=until)
        reader = _reader(self, id_of(task), offset=offset)
        ends = _OPEN_ENDS if until == "waiting" else ()
        async with aclosing(reader.batches(ends=ends)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event


def _reader(runner: RunnerBase, task_id: str, *, offset: int = 0) -> StreamReader:
    return StreamReader(Reader(runner.client, runner.archive), task_id, offset=offset)
