"""Creating tasks: the checked input of a task, and its start."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, cast

from pydantic import Field
from temporalio.common import Priority

from holdfast.archive.contents import checked
from holdfast.client.agent_runner.base import (
    Images,
    RunnerBase,
    TaskLike,
    id_of,
    new_id,
    no_completed_step,
    step_id_of,
)
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.turns import Turn
from holdfast.errors import (
    InvalidArgumentError,
    NoWorkerError,
    StepNotFoundError,
    StuckTaskError,
    TaskExistsError,
)
from holdfast.models.choices import ToolChoice, choice_of
from holdfast.reading.audit.audit import AuditEvent, audit_events
from holdfast.reading.audit.verification import Verification, verified
from holdfast.reading.listing import Wanted, newest_tasks
from holdfast.reading.queries import server_errors
from holdfast.reading.step_events import StepEvent
from holdfast.reading.streams.follower import POLL_SECONDS, Follower, follow
from holdfast.reading.visibility import read_memo
from holdfast.task.data.head import RunRules, TaskHead
from holdfast.task.data.records import Entry
from holdfast.task.data.state import TaskInput
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.gate import Count, Seconds, check_arguments
from holdfast.values.checks.ids import check_by, check_name, check_new_id, check_tenant, owned
from holdfast.values.code import user_calls
from holdfast.values.messages import ImagePart, Message
from holdfast.values.parts.images import Image
from holdfast.values.parts.sources import union
from holdfast.values.runs.approval_rules import Until, seconds_of
from holdfast.values.runs.status import OnBusy, TaskStatus
from holdfast.values.settings import Budget
from holdfast.values.steps import AgentResponse, ListedTask, Task, TaskStep, TaskStepOutput
from holdfast.values.text.html import Rows
from holdfast.values.text.shown import shown, time_shown

FINISHED: tuple[TaskStatus, ...] = ("answered", "finished")


class TaskRows(Rows[ListedTask]):
    """A list of tasks.

    Attributes:
        next: What `list_tasks(after=)` takes to list the following ones; empty for none.
    """

    next: str = ""


class TaskReading(RunnerBase):
    """The part of AgentRunner that reads tasks."""

    async def get_task(self, task: TaskLike) -> Task:
        """Describe a task, open or closed.

        Raises:
            TaskNotFoundError: No task has this id.
            NoWorkerError: It is open and no worker process is up to answer.
        """
        return await self._read.with_block(id_of(task))

    async def list_tasks(
        self,
        status: TaskStatus | None = None,
        agent: str | None = None,
        *,
        limit: Count | None = None,
        parent: TaskLike | None = None,
        after: str = "",
    ) -> TaskRows:
        """List tasks from Temporal's visibility store, newest first.

        The store knows what `ListedTask` has; `get_task` reads steps, usage and the rest.

        Args:
            status: Only tasks with this status.
            agent: Only tasks of this agent.
            limit: Most tasks; None for all.
            parent: Only the child tasks of this one (agents called as tools), which are not listed
                otherwise.
            after: The `next` of a list that had a limit: what follows it.

        Raises:
            ConnectError: The server could not be reached.
            InvalidArgumentError: `after` is not from such a list.
        """
        check_arguments(TaskReading.list_tasks, status=status, limit=limit, after=after)
        if agent is not None:
            check_name("agent", agent)
        above = id_of(parent) if parent is not None else ""
        wanted, client = Wanted(status, agent, limit, above, after), self.client
        with server_errors():
            memo_of = partial(read_memo, client.data_converter)
            service, namespace = client.workflow_service, client.namespace
            found, following = await newest_tasks(service, namespace, wanted, memo_of)
        rows = TaskRows(ListedTask(**each) for each in found)
        rows.next = following
        return rows

    async def get_upcoming_steps(self, task: TaskLike) -> list[TaskStep]:
        """List the step in progress and the queued ones, in order."""
        return Rows(await self._read.upcoming(id_of(task)))

    async def get_completed_steps(
        self, task: TaskLike, *, undone: bool = False
    ) -> list[TaskStepOutput]:
        """List the completed steps' outputs, oldest first.

        In place of a value that the archive has lost, the value's text says so.

        Args:
            task: The task.
            undone: Whether to list undone steps too; their status is "undone".
        """
        if undone:
            entries = await self._read.entries(id_of(task))
            return Rows(await self._read.steps_of(id_of(task), entries))
        return Rows(await self._read.steps(id_of(task)))

    async def get_completed_step(self, task: TaskLike, step: TaskStep | str) -> TaskStepOutput:
        """Return one completed step's output.

        Raises:
            StepNotFoundError: There is no completed step of this id.
        """
        step_id = step_id_of(step)
        outputs = await self.get_completed_steps(task)
        for output in outputs:
            if output.task_step.step_id == step_id:
                return output
        raise no_completed_step(step_id, [each.task_step.step_id for each in outputs])

    async def get_task_output(self, task: TaskLike) -> TaskStepOutput:
        """Return the last completed step's output.

        Raises:
            StepNotFoundError: No step is completed yet.
        """
        found = await self._read.task(id_of(task))
        if not found.steps:
            raise StepNotFoundError(f"No completed steps for task_id: {found.task_id}")
        return await self._read.step(found.task_id, found.steps)

    async def get_completed_tasks(self) -> list[ListedTask]:
        """List the tasks that have their answer: the open ones, then the finalized ones."""
        return Rows([task for status in FINISHED for task in await self.list_tasks(status)])

    async def delete_task(self, task: TaskLike) -> None:
        """Delete a task from Temporal and the archive; its turn in the session stays.

        An open task is terminated. No worker process is needed. Of an encrypted archive the task's
        data key stays: its id may be used again, and processes keep keys in memory.

        Raises:
            TaskNotFoundError: No task has this id.
            CommandRefusedError: It is held for a case.
            ConnectError: The server could not be reached.
        """
        await self._tasks.delete(id_of(task))

    async def transcript(self, task: TaskLike) -> list[Message]:
        """Return a task's messages, oldest first."""
        return await self._read.transcript(id_of(task))

    async def all_messages(self, task: TaskLike) -> list[Message]:
        """Return a task's messages and those of its open or failed step so far, oldest first."""
        return await self._read.all_messages(id_of(task))

    async def image(self, part: ImagePart) -> Image:
        """Read the image that a part of a message names; only one in the archive has bytes.

        Raises:
            BlobMissingError: The archive does not have it.
            InvalidArgumentError: The data is not an image that Holdfast takes, or the reference was
                not made for this archive.
        """
        check_arguments(TaskReading.image, part=part)
        if part.file_id:
            return Image(file_id=part.file_id, detail=part.detail)
        if part.stored is None:
            return Image.from_url(part.url, detail=part.detail)
        ref = (await checked(part, self.archive)).stored or part.stored
        return Image.from_bytes(await self.archive.aget(ref.sha256), detail=part.detail)

    async def response(self, task: TaskLike) -> AgentResponse:
        """Return the answer of a finalized task.

        Raises:
            TaskNotFoundError: No task has this id.
            StepNotFoundError: No step is completed.
        """
        outputs = await self._read.steps(id_of(task), to_answer=True)
        if not outputs:
            raise StepNotFoundError(f"No completed steps for task_id: {id_of(task)}")
        last = outputs[-1]
        sources = tuple(source for output in outputs for source in output.sources)
        found = await self._read.task(id_of(task))
        return AgentResponse(
            response=str(last),
            output=last.output,
            sources=sources,
            source_nodes=union(source.nodes for source in sources),
            usage=found.usage,
            branch_usage=found.branch_usage,
            task_id=id_of(task),
        )

    async def step_events(
        self,
        task: TaskLike,
        *,
        after: int = -1,
        until: Literal["closed", "answered"] = "closed",
        poll: Seconds = POLL_SECONDS,
    ) -> AsyncIterator[StepEvent]:
        """Follow a task: yield its events, past ones first, each once and in order.

        A task that waits, for a person or for run_step, is followed too. Breaking off does nothing
        to the task. Later attempts of model calls and tool calls are shown while they are pending;
        most of them are not recorded.

        Args:
            task: The task, running or closed.
            after: Number of the last event that is known already; -1 for none.
            until: Whether to end when the task is closed, or when it has its answer.
            poll: Seconds between two readings of a task in which nothing happened.

        Raises:
            TaskNotFoundError: No task has this id.
            NoWorkerError: It is open and no worker process is up to answer. Go on `after` the last
                event once there is one.
            ConnectError: The server could not be reached; likewise.
        """
        check_arguments(TaskReading.step_events, after=after, until=until, poll=poll)
        follower = Follower(self._read, self.response, id_of(task), after)
        ends: tuple[TaskStatus, ...] = ("answered",) if until == "answered" else ()
        async for event in follow(follower, poll=poll, ends=ends):
            yield event

    async def audit(self, task: TaskLike, *, secrets: Sequence[str] = ()) -> list[AuditEvent]:
        """Return every event of a task, open or closed, oldest first.

        Where no worker process is up, they are made of the task's history, up to what a worker read
        last. So they are where workflow code fails, and the last one says that. The last of another
        one that is blocked says by what.

        Args:
            task: The task.
            secrets: Texts to be replaced wherever they occur.
        """
        check_arguments(TaskReading.audit, secrets=secrets)
        block = asker = ""
        try:
            entries, opens = await self._read.ledger(id_of(task), legible=True)
            asker = (await self._read.head(id_of(task))).asker if entries else ""
            block = await self._read.block_of(id_of(task))
        except (NoWorkerError, StuckTaskError):
            from holdfast.client.agent_runner.task_client.forced import replayed

            found = await replayed(self._read, id_of(task))
            entries, opens, asker = found.entries, found.opens, found.asker
        now = [AuditEvent(time=time.time(), kind="blocked", reason=block)] if block else []
        return audit_events(entries, secrets, opens=opens, now=now, asker=asker)

    async def verify(self, task: TaskLike) -> Verification:
        """Recompute the task's digests; return where they do not fit, or nothing.

        They are compared with what the task itself has while it is open, with what Temporal keeps
        of its closed run, and with the signature of its record, if there is a key
        (`HOLDFAST_SIGNING_KEY`). The turns that the task read from its session, and the one that it
        committed, are compared with the session. `proved` and `unproved` of the list name what
        could be compared and what could not.
        """
        return await verified(self._read, id_of(task))

    async def ledger(self, task: TaskLike) -> list[Entry]:
        """Return every record of a task: steps, commands and failures, oldest first."""
        return await self._read.entries(id_of(task))


Attempts = Annotated[int, Field(ge=1)]
StepMode = Literal["manual", "automatic"]
TaskPriority = Annotated[int, Field(ge=1, le=5)]


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
        tenant: str = "",
        priority: TaskPriority | None = None,
        on_busy: OnBusy | None = None,
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
            tenant: Whose it is, at most 64 characters: tenants get equal shares of the workers and
                of the limits of model providers, and have sessions of their own. Child tasks and
                forks inherit it.
            priority: 1 comes first, 5 last; 3 by default. Child tasks inherit it.
            on_busy: The task takes turns with others of the session: "queue" has it wait, "refuse"
                refuses it, "interrupt" abandons the one that has the floor, "merge" gives that one
                the input as feedback and returns it. It then has the floor until it is finalized or
                abandoned. None: it takes no turn, and sees what the session has when it begins.
                With start_at it gets in line when it begins, and "queue" is the only one.

        Raises:
            SessionBusyError: Another task has the floor; nothing was created.
            InvalidArgumentError: The input is empty, extra_state is given twice or is not JSON,
                start_at is over, tenant or priority cannot be used, or the embedded engine has no
                such agent.
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
            priority=priority,
            on_busy=on_busy,
        )
        check_request(input)
        late = {} if start_at is None else starting_at(start_at, by, exist_ok=exist_ok)
        of_engine, tenant = Priority.default, tenant or self._tenant
        if tenant or priority:
            of_engine, session = self._of_tenant(tenant, session, priority)
        rules = RunRules(streams=streams, output_attempts=max_output_attempts)
        head = self._head(agent, session, tool_choice, rules)
        head = head.model_copy(update={"asker": by and check_by(by), "tenant": tenant})
        new = task_id or new_id(head.agent)
        given = await self._task_input(
            head, input, images, task=new, budget=budget, state=extra_state
        )
        given = given.model_copy(update={"automatic": step_mode == "automatic", **late})
        turn: Turn | None = None
        if on_busy is not None:
            given, turn = self._in_line(given, new, session, on_busy, by)
            if start_at is None and (merged := await turn.claim("" if images else input)):
                return await self.get_task(merged)
        starting = self._start(new, given, input, exist_ok=exist_ok, priority=of_engine)
        # One that starts later gets in line by itself then.
        return await (starting if turn is None or start_at is not None else turn.follow(starting))

    def _in_line(
        self,
        given: TaskInput,
        task_id: str,
        session: str | Session | None,
        on_busy: OnBusy,
        by: str = "",
    ) -> tuple[TaskInput, Turn]:
        """Let a new task take turns with others of its session.

        Raises:
            InvalidArgumentError: It has no session, or begins too late for that.
        """
        ref = given.head.session
        if session is None or ref is None:
            msg = "on_busy= is about other tasks of a session: name one with session=..."
            raise InvalidArgumentError(msg)
        if given.start_at and on_busy != "queue":
            msg = f"on_busy={on_busy!r} decides now, and start_at is later. Choose 'queue'."
            raise InvalidArgumentError(msg)
        queued = ref.model_copy(update={"queues": True})
        head = given.head.model_copy(update={"session": queued})
        turn = Turn(self._tasks, self.session(session), task_id, on_busy, by)
        return given.model_copy(update={"head": head, "described": None}), turn

    def _of_tenant(
        self, tenant: str, session: str | Session | None, priority: int | None = None
    ) -> tuple[Priority, Session | None]:
        """Return priority and fairness key of a tenant's task, and its session.

        Raises:
            InvalidArgumentError: The tenant or the session cannot be named so.
        """
        key = check_tenant(tenant) if tenant else None
        named = None if session is None else self.session(session)
        if named is not None and key is not None:
            named = self.session(owned(key, named.name))
        return Priority(priority_key=priority, fairness_key=key), named

    def _head(
        self,
        agent: str | None,
        session: str | Session | None,
        tool_choice: ToolChoice | None,
        rules: RunRules,
    ) -> TaskHead:
        """Check arguments of `create_task` and return the head of its task."""
        if not (agent or self.agent):
            msg = "The task has no agent: pass agent=, or make the AgentRunner for one."
            raise InvalidArgumentError(msg)
        name = check_name("agent", self.agent if agent is None else agent)
        self._require_agent(name)
        choice = choice_of(tool_choice) or self._tool_choice
        return TaskHead(
            agent=name,
            session=self._session_ref(session),
            tool_choice="" if choice == "auto" else choice,
            run=rules,
        )

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
        self,
        task_id: str,
        given: TaskInput,
        input: str,
        *,
        exist_ok: bool = False,
        priority: Priority = Priority.default,
    ) -> Task:
        """Start a task and describe it; with exist_ok, the same task may be there already."""
        head = given.head
        if self.is_embedded:
            user_calls.carry(task_id)
        try:
            queue = self._queue_for(head.agent)
            created = await self._tasks.start(task_id, given, queue, input, priority=priority)
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
            TaskExistsError: It began with another input, agent or session, or is another tenant's.
        """
        task, head = await self._read.task(task_id), await self._read.head(task_id)
        if head.tenant != given.head.tenant:  # nothing of it is shown
            raise TaskExistsError(task_id)
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


def starting_at(given: Until, by: str, *, exist_ok: bool) -> dict[str, object]:
    """Return the pause that a task begins with which starts later, as fields of its input.

    Raises:
        InvalidArgumentError: It is over.
    """
    at = seconds_of(given)
    if at <= time.time() and not exist_ok:  # else a program is started again with its task
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
