"""Creating tasks: the checked input of a task, and its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, cast

from pydantic import Field

from holdfast.client.agent_runner.base import Images, new_id
from holdfast.client.agent_runner.reads import TaskReading
from holdfast.client.agent_runner.sessions import Session
from holdfast.errors import InvalidArgumentError, TaskExistsError
from holdfast.models.choices import ToolChoice, choice_of
from holdfast.task.data.head import RunRules, TaskHead
from holdfast.task.data.state import TaskInput
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.arguments import check_arguments
from holdfast.values.checks.ids import check_name, check_new_id
from holdfast.values.code import user_calls
from holdfast.values.runs.approval_rules import Until, seconds_of
from holdfast.values.settings import Budget
from holdfast.values.steps import Task
from holdfast.values.text.shown import shown, time_shown

Attempts = Annotated[int, Field(ge=1)]
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
        max_output_attempts: Attempts = 3,
        start_at: Until | None = None,
        exist_ok: bool = False,
        by: str = "",
    ) -> Task:
        """Create a task; it is durable once this returns, also when no worker process is up.

        Args:
            input: The request; empty only with images.
            agent: Name of the agent, when it is not the runner's.
            task_id: Id of the task; made up by default.
            session: Session whose history the model sees, and that finalize commits to.
            extra_state: Shared state of the task, JSON data.
            budget: Limits.
            tool_choice: "auto", "none", "required", a tool's name or dict; for the first step.
            step_mode: "manual": a step runs on request. "automatic": all run by themselves.
            images: Images of the request.
            streams: Whether models stream their answers to readers of `stream_events` of the task.
            max_output_attempts: How often a model is asked for one answer of use before the step
                waits for a person.
            start_at: When its first step may begin; a datetime with a time zone, or seconds since
                the epoch. Until then the task is paused, and `resume` begins it earlier.
            exist_ok: Whether a task of this id with the same input, agent and session is returned
                as it is: a program that is started again then goes on with its task.
            by: Who creates it, for rules whose approvals this person may not decide.

        Raises:
            InvalidArgumentError: The input is empty, extra_state is given twice or is not JSON,
                start_at is over, or the embedded engine has no such agent.
            TaskExistsError: There is a task of this id; with exist_ok, one that differs.
        """
        if task_id is not None:
            check_new_id(task_id)
        check_arguments(
            TaskCreation.create_task,
            budget=budget,
            step_mode=step_mode,
            streams=streams,
            max_output_attempts=max_output_attempts,
            start_at=start_at,
            exist_ok=exist_ok,
            by=by,
        )
        check_request(input)
        late = {} if start_at is None else starting_at(start_at, by)
        rules = RunRules(streams=streams, output_attempts=max_output_attempts)
        head = self._head(agent, session, tool_choice, rules)
        head = head.model_copy(update={"asker": by})
        state = self._initial_state(extra_state)
        new = task_id or new_id(head.agent)
        given = await self._task_input(head, input, images, task=new, budget=budget, state=state)
        given = given.model_copy(update={"automatic": step_mode == "automatic", **late})
        return await self._start(new, given, input, exist_ok=exist_ok)

    def _head(
        self,
        agent: str | None,
        session: str | Session | None,
        tool_choice: ToolChoice | None,
        rules: RunRules,
    ) -> TaskHead:
        """Check arguments of `create_task` and return the head of its task."""
        name = check_name("agent", self.agent if agent is None else agent)
        self._require_agent(name)
        choice = choice_of(tool_choice) or self._tool_choice
        return TaskHead(
            agent=name,
            session=self._session_ref(session),
            tool_choice="" if choice == "auto" else choice,
            run=rules,
        )

    def _initial_state(self, given: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
        """Return the extra_state of a new task: its own, or the handle's default."""
        if given is not None and self._extra_state is not None:
            msg = "Cannot specify both `extra_state` and `default_extra_state`"
            raise InvalidArgumentError(msg)
        return self._extra_state if given is None else given

    async def _task_input(
        self,
        head: TaskHead,
        input: str | None,
        images: Images = (),
        *,
        task: str,
        budget: Budget | None,
        state: Mapping[str, Json] | None = None,
    ) -> TaskInput:
        """Make the workflow's input of every task that a client starts.

        Args:
            head: The task's head.
            input: The request; None when its history, or the state that it goes on from, has it.
            images: Images of the request.
            task: Id of the task.
            budget: Limits.
            state: Shared state at the beginning.

        Raises:
            InvalidArgumentError: The input is empty, or the state is not JSON data.
        """
        plain = json_state(state)
        text, stored, parts = await self._input(input, images, task=task)
        return TaskInput(
            head=head,
            input=text or "",
            stored=stored,
            images=parts,
            extra_state=plain,
            budget=budget,
            heartbeat=self._heartbeat,
            roll_events=self._roll_events,
            described=await self._described(head),
        )

    async def _start(
        self, task_id: str, given: TaskInput, input: str, *, exist_ok: bool = False
    ) -> Task:
        """Start a task and describe it; with exist_ok, the same task may be there already."""
        head = given.head
        if self.is_embedded:
            user_calls.carry(task_id)
        try:
            queue = self._queue_for(head.agent)
            created = await self._tasks.start(task_id, given, queue, input)
        except TaskExistsError:
            if not exist_ok:
                raise
            return await self._same_task(task_id, given)
        return Task(
            task_id=task_id,
            input=input,
            agent=head.agent,
            session=head.session.name if head.session else "",
            extra_state=given.extra_state,
            created=created,
            images=given.images,
            budget=given.budget,
            paused=given.paused,
        )

    async def _same_task(self, task_id: str, given: TaskInput) -> Task:
        """Return the task that exists under an id.

        Raises:
            TaskExistsError: It began with another input, agent or session.
        """
        task, head = await self._read.task(task_id), await self._read.head(task_id)
        sessions = (head.session, given.head.session)
        known, wanted = (each.name if each else "" for each in sessions)
        pairs: dict[str, tuple[object, object]] = {
            "agent": (head.agent, given.head.agent),
            "session": (known, wanted),
            "input": (task.stored or task.input, given.stored or given.input),
            "images": (task.images, given.images),
        }
        own, was_own = given.head.caller_session, head.caller_session
        if own is not None or was_own is not None:
            # The messages before the input have been made of what the session was then.
            pairs["session of the caller and what it gets"] = (was_own, own)
        elif given.head.session is None or not given.head.session.unread:
            # else a callback of the run has made them of the session as it was then
            pairs["messages before the input"] = (head.history, given.head.history)
        for name, (there, now) in pairs.items():
            if there != now:
                difference = f"its {name} is {shown(there)}, and this one's {shown(now)}"
                raise TaskExistsError(task_id, difference)
        return await self.get_task(task_id)

    async def run_to_end(
        self,
        input: str | None,
        head: TaskHead,
        *,
        task_id: str,
        budget: Budget | None = None,
        extra_state: Mapping[str, Json] | None = None,
        title: str = "",
        started: Callable[[], None] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a task, run it to its end and finalize it.

        This also returns when the task waits for a person.

        Args:
            input: The request; None when the head's history ends with it.
            head: What the task begins with.
            task_id: Id of the task.
            budget: Limits.
            extra_state: Shared state of the task, JSON data.
            title: The request as lists of tasks show it; the input by default.
            started: Called once the server has confirmed that this call created the task.
            exist_ok: As for create_task: the existing task is run to its end.

        Raises:
            TaskExistsError: There is a task of this id; with exist_ok, one that differs.
            StepFailedError: A step failed; fix the cause and run the task on by its id.
            AgentsException: The task has ended with a verdict.
        """
        check_new_id(task_id)
        self._require_agent(check_name("agent", head.agent))
        given = await self._task_input(head, input, task=task_id, budget=budget, state=extra_state)
        given = given.model_copy(update={"automatic": True, "finalize": True})
        if self.is_embedded:
            user_calls.carry(task_id)
        queue, tasks = self._queue_for(head.agent), self._tasks
        here = self._worker_client(queue)
        try:
            await tasks.start_and_run(
                task_id, given, queue, title or input or "", started, here=here
            )
        except TaskExistsError:
            if not exist_ok:
                raise
            await self._same_task(task_id, given)
            if started is not None:
                started()
            await self._tasks.run_on(task_id)


def starting_at(given: Until, by: str) -> dict[str, object]:
    """Return the pause that a task begins with which starts later, as fields of its input.

    Raises:
        InvalidArgumentError: It is over.
    """
    at = seconds_of(given)
    if at <= time.time():
        msg = f"start_at is over: {time_shown(at)}. Say a time that is to come, or leave it out."
        raise InvalidArgumentError(msg)
    return {"start_at": at, "paused": f"{by and f'{by}, '}starts at {time_shown(at)}"}


def check_request(given: object) -> None:
    """Refuse a new task without an input.

    Raises:
        InvalidArgumentError: It is None.
    """
    if given is None:
        msg = "A task needs an input: a text, or an empty one with images. It was None."
        raise InvalidArgumentError(msg)


def json_state(state: Mapping[str, Json] | None) -> dict[str, Json]:
    """Copy a state, checking that it is JSON data.

    Raises:
        InvalidArgumentError: It is not, or it has keys of Holdfast's own.
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
    if isinstance(state, merge_patch.ObjectState):
        return {**made, merge_patch.OBJECTS: True}
    if own := next((key for key in made if key.startswith("$")), ""):
        msg = f"extra_state has the key {shown(own)}: keys that begin with `$` are Holdfast's own."
        raise InvalidArgumentError(msg)
    return dict(made)
