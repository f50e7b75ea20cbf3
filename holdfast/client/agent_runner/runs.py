"""Running tasks: one step, all that are ready, or to the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Literal, cast

from holdfast.client.agent_runner.base import Images, RunnerBase, TaskLike, id_of, new_id
from holdfast.client.agent_runner.creation import Attempts, TaskCreation, check_request
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.turns import Turn
from holdfast.client.streamed import Open, Streamed
from holdfast.errors import InvalidArgumentError, TaskClosedError
from holdfast.models.choices import MessageLike, ToolChoice, choice_of, messages_of
from holdfast.reading.step_events import EventHandler, print_event
from holdfast.reading.streams.follower import Follower, told
from holdfast.reading.streams.reader import StreamEvent, StreamReader
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.head import RunRules
from holdfast.values.base import Json
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import check_name, check_new_id
from holdfast.values.runs.status import CLOSED, OnBusy, TaskStatus
from holdfast.values.settings import Budget
from holdfast.values.steps import AgentResponse, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown


class TaskRuns(TaskCreation):
    """The part of AgentRunner that runs steps and finalizes tasks."""

    async def run_on(self, task: TaskLike) -> None:
        """Run a task to its end or to where a person must decide; a closed task stays closed.

        Raises:
            TaskNotFoundError: No task has this id.
            StepFailedError: A step failed.
            AgentsException: The task has ended with a verdict, now or before.
            NoWorkerError: No worker process serves the task; it waits.
        """
        self._called_from_here(id_of(task))
        await self._tasks.run_on(id_of(task))

    async def run_step(
        self,
        task: TaskLike,
        input: str | None = None,
        step: TaskStep | str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        restart: Literal["step"] | None = None,
        request_id: str | None = None,
        images: Images = (),
    ) -> TaskStepOutput:
        """Run the next step and return its output; a step that waits for a person returns too.

        Args:
            task: The task.
            input: New user input for the step. Of a task that has its answer, the input of one more
                step: a follow-up question, with the conversation before it. Undoing that step
                brings the earlier answer back.
            step: The queued step to run, instead of the first.
            tool_choice: "auto", "none", "required", a tool's name or dict; for this step.
            restart: "step" discards the journal of a failed step and starts it again.
            request_id: Names this request: sent again with the same id, one step is run.
            images: Images of the new input; without one they join the input that the step has.

        Raises:
            InvalidArgumentError: Both input and step are given, or one of the arguments is of a
                wrong type.
            NoUpcomingStepsError: No step is left.
            StepFailedError: The step failed; it stays first in the queue.
            AgentsException: The task has ended with a verdict.
            NoWorkerError: No worker process serves the task; it waits. The error names the request:
                asked again with that request_id, nothing is run twice.
            ConnectError: The server could not be reached.
        """
        if restart is not None:
            check_arguments(TaskRuns.run_step, restart=restart)
        task_id = id_of(task)
        asked = await self.step_request(task_id, input, step, tool_choice, images)
        asked = asked.model_copy(update={"restart": restart == "step"})
        return await self.run_request(task_id, asked, request_id)

    async def step_request(
        self,
        task_id: str,
        input: str | None,
        step: TaskStep | str | None,
        tool_choice: ToolChoice | None,
        images: Images,
    ) -> RunRequest:
        """Make the request to run a step.

        Raises:
            InvalidArgumentError: Both input and step are given, or one of the arguments is of a
                wrong type.
        """
        if input is not None and step is not None:
            raise InvalidArgumentError("Cannot specify both `step` and `input`")
        if not isinstance(cast("object", step), TaskStep | str | None):
            raise InvalidArgumentError(f"step must be TaskStep: {type(step).__name__}")
        text, stored, parts = await self._input(input, images, task=task_id)
        return RunRequest(
            input=text,
            stored=stored,
            images=parts,
            step=(step.step_id if isinstance(step, TaskStep) else step) or "",
            tool_choice="" if tool_choice is None else choice_of(tool_choice),
        )

    async def run_request(
        self, task_id: str, asked: RunRequest, request_id: str | None
    ) -> TaskStepOutput:
        """Run the step that `step_request` has described, and return its output."""
        async with self._notifying(task_id, afresh=True):
            self._called_from_here(task_id)
            reply = await self._tasks.run(task_id, asked, request_id)
        if request_id is not None and reply.status == "waiting":  # it may be decided by now
            return await self._read.waiting(task_id, reply.n, or_done=True)
        return await self._reply(task_id, reply.n, reply.status)

    def _notifying(
        self, task_id: str, on_event: EventHandler | None = None, *, afresh: bool
    ) -> AbstractAsyncContextManager[None]:
        """Send a task's events to a handler, and with `verbose` to the terminal, meanwhile."""
        if on_event is None and not self._verbose:
            return nullcontext()
        handlers: list[EventHandler] = [] if on_event is None else [on_event]
        handlers += [print_event] if self._verbose else []
        return told(Follower(self._read, self.response, task_id), handlers, afresh=afresh)

    async def run_steps_in_queue(
        self,
        task: TaskLike,
        *,
        tool_choice: ToolChoice | None = None,
        request_id: str | None = None,
    ) -> list[TaskStepOutput]:
        """Run all steps that are ready, at the same time, and return their outputs.

        Steps that become ready meanwhile, such as those linked to one of these, are left to the
        next call. When a step fails, the others run to their end and are among the completed steps;
        the failed one stays first, and is tried again by the next call or alone by `run_step`.

        Args:
            task: The task.
            tool_choice: "auto", "none", "required", a tool's name or dict; for each step.
            request_id: Names this request: sent again with the same id, the steps are run once.

        Returns:
            The outputs in the order of the queue, also of steps that wait for a person.

        Raises:
            NoUpcomingStepsError: No step is left.
            StalledTaskError: No step is ready.
            StepFailedError: A step failed.
            AgentsException: The task has ended with a verdict.
            NoWorkerError: No worker process serves the task; it waits.
        """
        task_id = id_of(task)
        self._called_from_here(task_id)
        asked = RunRequest(round=True, tool_choice=choice_of(tool_choice))
        reply = await self._tasks.run(task_id, asked, request_id)
        if not reply.round:
            return [await self._reply(task_id, reply.n, reply.status)]
        if reply.status == "paused":
            done = [await self._read.step(task_id, n) for n in reply.round if n]
            return [*done, await self._reply(task_id, reply.n, reply.status)]
        waiting = iter(await self._read.all_waiting(task_id) if 0 in reply.round else ())
        outputs = [
            await self._read.step(task_id, n) if n else next(waiting, None) for n in reply.round
        ]
        return [output for output in outputs if output is not None]

    async def run_task(self, task: TaskLike) -> TaskStepOutput:
        """Run steps to the last one; return its output, or the output that waits for a person.

        The task continues on its own: when this process dies, calling again with the task's id
        waits for the same answer.

        Raises:
            StepFailedError: A step failed.
            StalledTaskError: A step was not the last and queued no next one.
            AgentsException: The task has ended with a verdict.
            NoWorkerError: No worker process serves the task; it waits.
        """
        async with self._notifying(id_of(task), afresh=True):
            return await self._run_task(id_of(task))

    async def _run_task(self, task_id: str) -> TaskStepOutput:
        self._called_from_here(task_id)
        reply = await self._tasks.run(task_id, RunRequest(all=True))
        return await self._reply(task_id, reply.n, reply.status)

    async def finalize_response(self, task: TaskLike) -> AgentResponse:
        """Commit an answered task to its session, close it, and return the answer.

        Called again, it returns the same and commits nothing.

        Raises:
            InvalidArgumentError: The last completed step is not the last of the task.
            TaskClosedError: The task was abandoned or has failed before, or was ended with
                Temporal's own tools.
            TaskAbandonedError: It was abandoned meanwhile.
            NoWorkerError: No worker process serves the task; it waits.
        """
        task_id = id_of(task)
        try:
            await self._tasks.finalize(task_id)
        except TaskClosedError:
            record = await self._read.records.read(task_id)
            if record is None or record.failure is not None:
                raise
        return await self.response(task_id)

    async def chat(
        self,
        message: str,
        session: str | Session | None = None,
        chat_history: Sequence[MessageLike] | None = None,
        tool_choice: ToolChoice | None = None,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        extra_state: Mapping[str, Json] | None = None,
        budget: Budget | None = None,
        images: Images = (),
        on_event: EventHandler | None = None,
        streams: bool = False,
        max_output_attempts: Attempts = 3,
        started: Callable[[], None] | None = None,
        exist_ok: bool = False,
        on_busy: OnBusy = "queue",
    ) -> AgentResponse:
        """Create a task, run it to its end and finalize it.

        Args:
            message: The request.
            session: Session that remembers the conversation; the runner's default_session, if it
                has one and none is given.
            chat_history: Replaces the session's history before the task starts, once all other
                arguments are checked. Messages, or items of the Responses API.
            tool_choice: Tool choice of the first step.
            agent: As for create_task, like those after it.
            task_id: Id of the task.
            extra_state: Shared state of the task.
            budget: Limits.
            images: Images of the request.
            on_event: Called with each event of the task, see `step_events`; async or not. What it
                raises is logged, and the task goes on.
            streams: As for create_task.
            max_output_attempts: As for create_task.
            started: Called once the task is created.
            exist_ok: As for create_task: the existing task is run to its end, and the session is
                left as it is.
            on_busy: What to do while another task of the session has the floor, as for create_task.
                "merge" returns the response of that task.

        Raises:
            SessionBusyError: Another task has the floor: nothing was created, or that task rests,
                and this one waits for its turn.
            InvalidArgumentError: chat_history is given without a session, or as for create_task;
                the session is as it was.
            TaskExistsError: There is a task of this id; the session is as it was.
            StepFailedError: A step failed; fix the cause and run the task on by its id.
        """
        session = self._default_session if session is None else session
        if chat_history is not None and session is None:
            msg = "chat_history replaces the history of a session: name one with session=..."
            raise InvalidArgumentError(msg)
        check_arguments(
            TaskRuns.chat,
            budget=budget,
            streams=streams,
            max_output_attempts=max_output_attempts,
            started=started,
            exist_ok=exist_ok,
            on_busy=on_busy,
        )
        if on_event is not None and not callable(cast("object", on_event)):
            msg = f"on_event must be a function of an event; it was {shown(on_event)}."
            raise InvalidArgumentError(msg)
        history = None if chat_history is None else messages_of(chat_history)
        if task_id is not None:
            check_new_id(task_id)
        check_request(message)
        rules = RunRules(streams=streams, output_attempts=max_output_attempts)
        head = self._head(agent, session, tool_choice, rules)
        new = task_id or new_id(head.agent)
        given = await self._task_input(
            head, message, images, task=new, budget=budget, state=extra_state
        )
        if history is not None and session is not None:
            if task_id is not None and not exist_ok:
                await self._tasks.refuse_known(task_id)
            if task_id is None or not exist_ok or not await self._tasks.is_known(task_id):
                await self.session(session).replace(history)
        turn: Turn | None = None
        if session is not None:
            given, turn = self._in_line(given, new, session, on_busy)
            if merged := await turn.claim("" if images else message):
                return await self._answer(merged, on_event)

        async def answer() -> AgentResponse:
            task = await self._start(new, given, message, exist_ok=exist_ok)
            if task.status in CLOSED:
                await self._tasks.closed(new)
                return await self.response(new)
            if started is not None:
                started()
            # Not automatic: such a task may have failed before run_task comes, which would retry.
            return await self._answer(new, on_event)

        return await (answer() if turn is None else turn.follow(answer()))

    async def _answer(self, task_id: str, on_event: EventHandler | None) -> AgentResponse:
        """Run a task to its end, or to where a person must decide, and finalize it."""
        async with self._notifying(task_id, on_event, afresh=False):
            output = await self._run_task(task_id)
            if output.status == "waiting":
                return AgentResponse(response="", task_id=task_id, status="waiting")
            return await self.finalize_response(task_id)

    async def _reply(self, task_id: str, n: int, status: str) -> TaskStepOutput:
        if status == "paused":
            why = f"paused by {(await self._read.task(task_id)).paused}; resume the task first"
            return TaskStepOutput(
                status="waiting", task_step=TaskStep(task_id=task_id), waiting_for=(why,)
            )
        if status == "waiting":
            return await self._read.waiting(task_id, n)
        return await self._read.step(task_id, n)


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
            asked = await self.step_request(task_id, input, step, tool_choice, images)
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
        self, task: TaskLike, *, offset: int = 0, until: Literal["closed", "waiting"] = "closed"
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
    return StreamReader(runner.reader, task_id, offset=offset)
