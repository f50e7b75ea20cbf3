"""AgentRunner: the step API. A handle without state; any process may hold one for any task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

from holdfast import gate, merge_patch, variables
from holdfast.argument_checks import check_arguments
from holdfast.client.base import Images, TaskLike, id_of, new_id
from holdfast.client.choices import MessageLike, ToolChoice, choice_of, messages_of
from holdfast.client.control import TaskControl
from holdfast.client.reads import TaskReading
from holdfast.client.sessions import Session
from holdfast.client.stream_calls import TaskStreaming
from holdfast.client.timetravel import TimeTravel
from holdfast.contents import refer_all
from holdfast.errors import InvalidArgumentError, TaskClosedError
from holdfast.events import EventHandler
from holdfast.ids import check_name, check_new_id
from holdfast.messages import Message
from holdfast.plumbing import without_plumbing
from holdfast.segments import read_record, write_messages
from holdfast.settings import Budget, ModelSettings
from holdfast.shown import shown
from holdfast.state import TaskInput
from holdfast.steps import AgentResponse, Task, TaskStep, TaskStepOutput
from holdfast.task_head import AGENTS_SDK, RunRules, TaskHead
from holdfast.values import Json
from holdfast.wire import RunRequest

StepMode = Literal["manual", "automatic"]


@without_plumbing
class AgentRunner(TaskStreaming, TaskReading, TaskControl, TimeTravel):
    """Creates tasks, runs their steps, and steers them.

    Make one with `AgentRunner.local(...)` or `await AgentRunner.connect(...)`, and use it in an
    `async with` block, or call `start` and `close`.

    Attributes:
        app: Name of the app; "default" when none was given.
        agent: Agent that new tasks get by default.
    """

    async def create_task(
        self,
        input: str,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        session: str | Session | None = None,
        extra_state: Mapping[str, Json] | None = None,
        budget: Budget | None = None,
        tool_choice: ToolChoice | None = None,
        step_mode: StepMode = "manual",
        images: Images = (),
        streams: bool = False,
    ) -> Task:
        """Create a task; it is durable once this returns, also when no worker process is up.

        Args:
            input: The request; empty only beside images.
            agent: Name of the agent, when it is not the runner's.
            task_id: Id of the task; made up by default.
            session: Session whose history the model sees, and that finalize commits to.
            extra_state: Shared state of the task, JSON data.
            budget: Limits.
            tool_choice: "auto", "none", "required", a tool's name or dict; for the first step.
            step_mode: "manual": a step runs when asked for. "automatic": all run by themselves.
            images: Images of the request.
            streams: Whether models tell their answers while they make them, to whoever reads
                `stream_events` of the task.

        Raises:
            InvalidArgumentError: The input is empty, extra_state is given twice or is not JSON, or
                the embedded engine has no such agent.
            TaskExistsError: There is a task of this id.
        """
        if task_id is not None:
            check_new_id(task_id)
        given = await self._task_input(
            input,
            agent=agent,
            session=session,
            extra_state=extra_state,
            budget=budget,
            tool_choice=tool_choice,
            step_mode=step_mode,
            images=images,
            streams=streams,
        )
        return await self._start(task_id or new_id(given.head.agent), given, input)

    async def _task_input(
        self,
        input: str,
        *,
        agent: str | None,
        session: str | Session | None,
        extra_state: Mapping[str, Json] | None,
        budget: Budget | None,
        tool_choice: ToolChoice | None,
        step_mode: StepMode,
        images: Images,
        streams: bool,
    ) -> TaskInput:
        """Check what a task is created with, as `create_task` is given it; nothing begins."""
        if extra_state is not None and self._extra_state is not None:
            msg = "Cannot specify both `extra_state` and `default_extra_state`"
            raise InvalidArgumentError(msg)
        if cast("object", input) is None:
            msg = "A task needs an input: a text, or an empty one beside images. It was None."
            raise InvalidArgumentError(msg)
        check_arguments(
            AgentRunner.create_task,
            budget=budget,
            step_mode=step_mode,
            streams=streams,
        )
        name = check_name("agent", self.agent if agent is None else agent)
        self._require_agent(name)
        choice = choice_of(tool_choice) or self._tool_choice
        head = TaskHead(
            agent=name,
            session=self._session_ref(session),
            tool_choice="" if choice == "auto" else choice,
            run=RunRules(streams=streams),
        )
        state = json_state(self._extra_state if extra_state is None else extra_state)
        text, stored, parts = await self._input(input, images)
        return TaskInput(
            head=head,
            input=text or "",
            stored=stored,
            images=parts,
            extra_state=state,
            budget=budget,
            automatic=step_mode == "automatic",
            heartbeat=self._heartbeat,
            roll_events=self._roll_events,
        )

    async def _start(self, task_id: str, given: TaskInput, input: str) -> Task:
        """Start a task and describe it."""
        head = given.head
        if self.is_embedded:
            variables.carry(task_id)
        await self._tasks.start(task_id, given, self._queue_for(head.agent), input)
        return Task(
            task_id=task_id,
            input=input,
            agent=head.agent,
            session=head.session.name if head.session else "",
            extra_state=given.extra_state,
            images=given.images,
            budget=given.budget,
        )

    async def run_to_end(
        self,
        input: str,
        *,
        task_id: str,
        agent: str,
        before: Sequence[Message] = (),
        session: str | Session | None = None,
        session_adds: Sequence[Message] = (),
        reads_session: bool = True,
        budget: Budget | None = None,
        model: str = "",
        settings: ModelSettings | None = None,
        run: RunRules | None = None,
        extra_state: Mapping[str, Json] | None = None,
        started: Callable[[], None] | None = None,
    ) -> None:
        """Create a task in the Agents SDK's dialect, run it to its end and finalize it.

        This returns, too, when the task waits for a person.

        Args:
            input: The request; empty when it is the end of `before`.
            task_id: Id of the task.
            agent: Name of the agent.
            before: Messages before the request. What `data:` URLs of images hold is stored by
                reference.
            session: As for create_task.
            session_adds: Messages that the session gets before those of the task.
            reads_session: Whether the model sees the session's history, besides `before`.
            budget: Limits.
            model: Model name that replaces the agent's.
            settings: Model settings laid over the agent's.
            run: What the run brought along.
            extra_state: Shared state of the task, JSON data.
            started: Called once the task of this id is known to be this one, and no earlier one.

        Raises:
            InvalidArgumentError: The `data:` URL of an image cannot be decoded, or holds more than
                20 MB; nothing was created.
            TaskExistsError: There is a task of this id.
            StepFailedError: A step failed; the task can be healed and run on by its id.
            AgentsException: The task has ended with a verdict.
        """
        check_new_id(task_id)
        self._require_agent(check_name("agent", agent))
        history = await self._stored(before)
        adds = history if before == session_adds else await self._stored(session_adds)
        ref = self._session_ref(session)
        if ref is not None:
            ref = ref.model_copy(update={"adds": adds, "unread": not reads_session})
        head = TaskHead(
            agent=agent,
            session=ref,
            history=history,
            dialect=AGENTS_SDK,
            model=model,
            settings=settings,
            run=run or RunRules(),
        )
        text, stored, _ = await self._input(None if before and not input else input)
        given = TaskInput(
            head=head,
            input=text or "",
            stored=stored,
            extra_state=json_state(extra_state),
            budget=budget,
            automatic=True,
            finalize=True,
            heartbeat=self._heartbeat,
            roll_events=self._roll_events,
        )
        said = (message.text for message in reversed(before) if message.role == "user")
        asked = input or next(filter(None, said), "")
        if self.is_embedded:
            variables.carry(task_id)
        await self._tasks.start_and_run(task_id, given, self._queue_for(agent), asked, started)

    async def _stored(self, messages: Sequence[Message]) -> str:
        """Store a list of messages, images by reference; return its digest, empty for none."""
        if not messages:
            return ""
        return await write_messages(self.archive, await refer_all(messages, self.archive))

    async def run_on(self, task: TaskLike) -> None:
        """Take a task to its end, or to where somebody must decide; one that is closed stays so.

        Raises:
            TaskNotFoundError: There is none of this id.
            StepFailedError: A step failed.
            AgentsException: The task has ended with a verdict, now or before.
            NoWorkerError: No worker process serves the task; it waits.
        """
        task_id = id_of(task)
        try:
            await self._tasks.run(task_id, RunRequest(all=True))
        except TaskClosedError:
            await self._tasks.ended(task_id)

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
            input: New user input for the step.
            step: The queued step to run, instead of the first.
            tool_choice: "auto", "none", "required", a tool's name or dict; for this step.
            restart: "step" throws away what a failed step has in its journal and starts it anew.
            request_id: Names this request: sent again with the same id, one step is run.
            images: Images of the new input; without one they join the input that the step has.

        Raises:
            InvalidArgumentError: Both input and step are given, or step is something else; or an
                image is none.
            NoUpcomingStepsError: No step is left.
            StepFailedError: The step failed; it stays first in the queue.
            AgentsException: The task has ended with a verdict.
            NoWorkerError: No worker process serves the task; it waits. The error names the request:
                asked again with that request_id, nothing is run twice.
            ConnectError: The server could not be reached.
        """
        check_arguments(AgentRunner.run_step, restart=restart)
        asked = await self.step_request(input, step, tool_choice, images)
        asked = asked.model_copy(update={"restart": restart == "step"})
        return await self.run_request(id_of(task), asked, request_id)

    async def step_request(
        self,
        input: str | None,
        step: TaskStep | str | None,
        tool_choice: ToolChoice | None,
        images: Images,
    ) -> RunRequest:
        """Say what step is to be run, and how.

        Raises:
            InvalidArgumentError: Both input and step are given, or step is something else; or an
                image is none.
        """
        if input is not None and step is not None:
            msg = "Cannot specify both `step` and `input`"
            raise InvalidArgumentError(msg)
        if not isinstance(cast("object", step), TaskStep | str | None):
            msg = f"step must be TaskStep: {type(step).__name__}"
            raise InvalidArgumentError(msg)
        text, stored, parts = await self._input(input, images)
        return RunRequest(
            input=text,
            stored=stored,
            images=parts,
            step=(step.step_id if isinstance(step, TaskStep) else step) or "",
            tool_choice=choice_of(tool_choice),
        )

    async def run_request(
        self, task_id: str, asked: RunRequest, request_id: str | None
    ) -> TaskStepOutput:
        """Run a step that `step_request` has described."""
        async with self._telling(task_id, afresh=True):
            reply = await self._tasks.run(task_id, asked, request_id)
        if request_id is not None and reply.status == "waiting":  # perhaps decided since then
            return await self._read.waiting(task_id, reply.n, or_done=True)
        return await self._reply(task_id, reply.n, reply.status)

    async def run_steps_in_queue(
        self,
        task: TaskLike,
        *,
        tool_choice: ToolChoice | None = None,
        request_id: str | None = None,
    ) -> list[TaskStepOutput]:
        """Run all steps that are ready, at the same time, and return their outputs.

        Steps that become ready meanwhile, as those linked to one of these, belong to the next call.
        When a step fails, the others are taken to their end and are among the completed steps; the
        failed one stays first, and is tried again by the next call or alone by `run_step`.

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

        The task goes on by itself: when this process dies, calling again with the task's id waits
        for the same answer.

        Raises:
            StepFailedError: A step failed.
            StalledTaskError: A step was not the last and queued no next one.
            AgentsException: The task has ended with a verdict.
            NoWorkerError: No worker process serves the task; it waits.
        """
        async with self._telling(id_of(task), afresh=True):
            return await self._run_task(id_of(task))

    async def _run_task(self, task_id: str) -> TaskStepOutput:
        reply = await self._tasks.run(task_id, RunRequest(all=True))
        return await self._reply(task_id, reply.n, reply.status)

    async def finalize_response(self, task: TaskLike) -> AgentResponse:
        """Commit a task that has its answer to its session, close it, and return the answer.

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
            record = await read_record(self.archive, task_id)
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
        started: Callable[[], None] | None = None,
    ) -> AgentResponse:
        """Create a task, run it to its end and finalize it.

        Args:
            message: The request.
            session: Session that remembers the conversation.
            chat_history: Replaces the session's history before the task starts, once everything
                else that is given was found to be in order. Messages, or items
                of the Responses API.
            tool_choice: Tool choice of the first step.
            agent: As for create_task, like those after it.
            task_id: Id of the task.
            extra_state: Shared state of the task.
            budget: Limits.
            images: Images of the request.
            on_event: Told of each event of the task meanwhile, see `step_events`; async or not.
                What it raises is logged, and the task goes on.
            streams: As for create_task.
            started: Called once the task is there.

        Raises:
            InvalidArgumentError: chat_history is given without a session, or as for create_task;
                the session is as it was.
            TaskExistsError: There is a task of this id; the session is as it was.
            StepFailedError: A step failed; the task can be healed and run on by its id.
        """
        if chat_history is not None and session is None:
            msg = "chat_history replaces the history of a session: name one with session=..."
            raise InvalidArgumentError(msg)
        check_arguments(AgentRunner.chat, started=started)
        if on_event is not None and not callable(cast("object", on_event)):
            msg = f"on_event must be a function of an event; it was {shown(on_event)}."
            raise InvalidArgumentError(msg)
        history = None if chat_history is None else messages_of(chat_history)
        if task_id is not None:
            check_new_id(task_id)
        given = await self._task_input(
            message,
            agent=agent,
            session=session,
            extra_state=extra_state,
            budget=budget,
            tool_choice=tool_choice,
            step_mode="manual",
            images=images,
            streams=streams,
        )
        if history is not None and session is not None:
            if task_id is not None:
                await self._tasks.refuse_known(task_id)
            await self.session(session).replace(history)
        task = await self._start(task_id or new_id(given.head.agent), given, message)
        if started is not None:
            started()
        # Not automatic: a task that has failed before run_task comes would be tried once more.
        async with self._telling(task.task_id, on_event, afresh=False):
            output = await self._run_task(task.task_id)
            if output.status == "waiting":
                return AgentResponse(response="", task_id=task.task_id, status="waiting")
            return await self.finalize_response(task)

    async def _reply(self, task_id: str, n: int, status: str) -> TaskStepOutput:
        if status == "paused":
            task = await self._read.task(task_id)
            return TaskStepOutput(
                status="waiting",
                task_step=TaskStep(task_id=task_id),
                waiting_for=(f"paused by {task.paused}; resume the task first",),
            )
        if status == "waiting":
            return await self._read.waiting(task_id, n)
        return await self._read.step(task_id, n)


def json_state(state: Mapping[str, Json] | None) -> dict[str, Json]:
    """Copy a state, checking that it is JSON data.

    Raises:
        InvalidArgumentError: It is not.
    """
    if not isinstance(cast("object", state), Mapping | None):
        msg = f"extra_state must be a dict; it was {shown(state)} ({type(state).__name__})."
        raise InvalidArgumentError(msg)
    try:
        made = merge_patch.plain(dict(state or {}), "extra_state")
        gate.check(made, "extra_state")
    except (TypeError, ValueError) as cause:
        msg = f"extra_state must be JSON data (text, numbers, lists, dicts): {cause}"
        raise InvalidArgumentError(msg) from cause
    return dict(made)
