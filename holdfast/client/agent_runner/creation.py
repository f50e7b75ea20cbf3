"""Creating tasks: the checked input of a task, and its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

from holdfast.archive.contents import refer_all
from holdfast.archive.segments import write_messages
from holdfast.client.agent_runner.base import Images, new_id
from holdfast.client.agent_runner.choices import ToolChoice, choice_of
from holdfast.client.agent_runner.reads import TaskReading
from holdfast.client.agent_runner.sessions import Session
from holdfast.errors import InvalidArgumentError
from holdfast.task.data.head import AGENTS_SDK, RunRules, TaskHead
from holdfast.task.data.state import TaskInput
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.arguments import check_arguments
from holdfast.values.checks.ids import check_name, check_new_id
from holdfast.values.code import user_calls
from holdfast.values.messages import Message
from holdfast.values.settings import Budget, ModelSettings
from holdfast.values.steps import Task
from holdfast.values.text.shown import shown

StepMode = Literal["manual", "automatic"]


class TaskCreation(TaskReading):
    """The part of AgentRunner that creates tasks."""

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
            step_mode: "manual": a step runs on request. "automatic": all run by themselves.
            images: Images of the request.
            streams: Whether models stream their answers to readers of `stream_events` of the task.

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
        """Check the arguments of `create_task` and make the workflow's input."""
        if extra_state is not None and self._extra_state is not None:
            msg = "Cannot specify both `extra_state` and `default_extra_state`"
            raise InvalidArgumentError(msg)
        if cast("object", input) is None:
            msg = "A task needs an input: a text, or an empty one beside images. It was None."
            raise InvalidArgumentError(msg)
        check_arguments(
            TaskCreation.create_task,
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
            user_calls.carry(task_id)
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
        """Create a task with the Agents SDK's semantics, run it to its end and finalize it.

        This also returns when the task waits for a person.

        Args:
            input: The request; empty when `before` ends with it.
            task_id: Id of the task.
            agent: Name of the agent.
            before: Messages before the request. Images in `data:` URLs are stored by reference.
            session: As for create_task.
            session_adds: Messages that the session gets before those of the task.
            reads_session: Whether the model sees the session's history, besides `before`.
            budget: Limits.
            model: Model name that replaces the agent's.
            settings: Model settings laid over the agent's.
            run: Rules of the run: guardrails, filters, handlers, the context.
            extra_state: Shared state of the task, JSON data.
            started: Called once the server has confirmed that this call created the task.

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
        texts = (message.text for message in reversed(before) if message.role == "user")
        title = input or next(filter(None, texts), "")
        if self.is_embedded:
            user_calls.carry(task_id)
        await self._tasks.start_and_run(task_id, given, self._queue_for(agent), title, started)

    async def _stored(self, messages: Sequence[Message]) -> str:
        """Store a list of messages, images by reference; return its digest, empty for none."""
        if not messages:
            return ""
        return await write_messages(self.archive, await refer_all(messages, self.archive))


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
