"""AgentRunner: the step API. A handle without state; any process may hold one for any task."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, Self, cast

from temporalio.client import Client

from holdfast import merge_patch
from holdfast.agent import Agent
from holdfast.archive import Archive, record_name
from holdfast.client.local import LocalEngine
from holdfast.client.names import check_archive, queue_of, session_id
from holdfast.client.reading import Reader, total_usage
from holdfast.client.sessions import Session
from holdfast.client.tasks import HF_AGENT, HF_STATUS, TaskClient
from holdfast.engine.cluster import ensure_search_attributes
from holdfast.engine.connect import connect_client
from holdfast.errors import (
    InvalidArgumentError,
    StepNotFoundError,
    TaskClosedError,
)
from holdfast.messages import Blob, Message
from holdfast.plugin import HoldfastPlugin
from holdfast.segments import write_messages
from holdfast.serve import default_archive
from holdfast.settings import Budget, ModelSettings
from holdfast.steps import AgentResponse, Task, TaskStatus, TaskStep, TaskStepOutput
from holdfast.values import Json, canonical
from holdfast.wire import (
    AGENTS_SDK,
    Entry,
    Receipt,
    RunRequest,
    SessionRef,
    TaskHead,
    TaskInput,
)

INLINE_BYTES = 16 * 1024
FINISHED: tuple[TaskStatus, ...] = ("answered", "finished")

TaskLike = Task | str
StepMode = Literal["manual", "automatic"]


class AgentRunner:
    """Creates tasks, runs their steps, and steers them.

    Make one with `AgentRunner.local(...)` or `await AgentRunner.connect(...)`, and use it in an
    `async with` block, or call `start` and `close`.

    Attributes:
        app: Name of the app; its queue is `hf.<app>`.
        agent: Agent that new tasks get by default.
    """

    def __init__(
        self,
        *,
        agent: str,
        app: str | None = None,
        queue: str | None = None,
        engine: LocalEngine | None = None,
        client: Client | None = None,
        archive: Archive | None = None,
        heartbeat: float = 20.0,
        roll_events: int = 2000,
        default_tool_choice: str = "auto",
        default_extra_state: Mapping[str, Json] | None = None,
    ) -> None:
        """Use an engine to be started, or a client made with `HoldfastPlugin` and its archive.

        Args:
            agent: Agent of new tasks.
            app: Name of the app; the agent's name by default.
            queue: Task queue, when it is not `hf.<app>`.
            engine: The embedded engine.
            client: Temporal client.
            archive: The namespace's archive.
            heartbeat: Seconds without a sign of life after which a worker counts as lost.
            roll_events: History length at which a task continues as new.
            default_tool_choice: Tool choice of first steps when create_task gives none.
            default_extra_state: extra_state of tasks when create_task gives none.
        """
        self.agent = agent
        self.app = app or agent
        self._queue = queue or queue_of(self.app)
        self._engine = engine
        self._heartbeat = heartbeat
        self._roll_events = roll_events
        self._tool_choice = default_tool_choice
        self._extra_state = default_extra_state
        self._resources = AsyncExitStack()
        self._reader: Reader | None = None
        if client is not None and archive is not None:
            self._reader = Reader(client, archive)

    @classmethod
    def local(
        cls,
        *agents: Agent,
        data_dir: str | Path | None = ".holdfast",
        app: str | None = None,
        **options: Any,
    ) -> AgentRunner:
        """Run everything on this machine: the Temporal dev server and a worker in this process.

        Args:
            agents: The agents; the first is the default one.
            data_dir: Directory of the server's database and the archive, shared by all processes
                that name it; None keeps everything in memory until this process ends.
            app: Name of the app; the first agent's name by default.
            options: As for `AgentRunner`.

        Raises:
            InvalidArgumentError: No agent was given.
        """
        if not agents:
            msg = "AgentRunner.local needs at least one agent."
            raise InvalidArgumentError(msg)
        name = app or agents[0].name
        engine = LocalEngine(None if data_dir is None else Path(data_dir))
        engine.add(name, agents)
        return cls(agent=agents[0].name, app=name, engine=engine, **options)

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        agent: str,
        namespace: str | None = None,
        archive: str | None = None,
        app: str | None = None,
        tls: Any = None,
        api_key: str | None = None,
        **options: Any,
    ) -> AgentRunner:
        """Use a cluster whose worker processes run elsewhere.

        Args:
            address: host:port; Temporal's environment variables by default, as for the rest.
            agent: Agent of new tasks.
            namespace: Temporal namespace.
            archive: URL of the archive; `HOLDFAST_ARCHIVE` by default.
            app: Name of the app; the agent's name by default.
            tls: True, or a `temporalio.service.TLSConfig` for mTLS.
            api_key: API key of Temporal Cloud.
            options: As for `AgentRunner`.

        Raises:
            ConnectError: The cluster cannot be used.
            ArchiveError: The archive cannot be used, or is not the namespace's.
        """
        store = Archive(archive or default_archive())
        client = await connect_client(
            address,
            namespace=namespace,
            tls=tls,
            api_key=api_key,
            plugins=[HoldfastPlugin(archive=store)],
        )
        await ensure_search_attributes(client)
        await check_archive(client, store)
        return cls(agent=agent, app=app, client=client, archive=store, **options)

    async def start(self) -> Self:
        """Start the embedded engine, if there is one.

        Raises:
            ServerStartError: The dev server did not start.
        """
        if self._engine is not None and self._reader is None:
            client, archive = await self._resources.enter_async_context(self._engine)
            self._reader = Reader(client, archive)
        return self

    async def close(self) -> None:
        """Stop the embedded engine; tasks stay and go on when it is started again."""
        await self._resources.aclose()
        if self._engine is not None:
            self._reader = None

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    @property
    def client(self) -> Client:
        """The Temporal client, for everything else; a task's id is its workflow id."""
        return self._read.client

    @property
    def archive(self) -> Archive:
        """The namespace's archive."""
        return self._read.archive

    @property
    def _read(self) -> Reader:
        if self._reader is None:
            msg = "This AgentRunner is not started: use `async with runner:` or runner.start()."
            raise InvalidArgumentError(msg)
        return self._reader

    @property
    def _tasks(self) -> TaskClient:
        return TaskClient(self.client, self._read)

    async def ensure_agent(self, agent: Agent) -> None:
        """Serve one more agent, when the engine is embedded.

        Raises:
            UserError: A different agent of this name is served.
        """
        if self._engine is not None:
            await self._engine.ensure(self.app, agent)

    # ---- create and read

    async def create_task(
        self,
        input: str,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        session: str | Session | None = None,
        extra_state: Mapping[str, Json] | None = None,
        budget: Budget | None = None,
        tool_choice: str | None = None,
        step_mode: StepMode = "manual",
    ) -> Task:
        """Create a task; it is durable once this returns, also when no worker process is up.

        Args:
            input: The request, not empty.
            agent: Name of the agent, when it is not the runner's.
            task_id: Id of the task; made up by default.
            session: Session whose history the model sees, and that finalize commits to.
            extra_state: Shared state of the task, JSON data.
            budget: Limits.
            tool_choice: "auto", "none", "required" or a tool's name, for the first step.
            step_mode: "manual": a step runs when asked for. "automatic": all run by themselves.

        Raises:
            InvalidArgumentError: The input is empty, extra_state is given twice or is not JSON, or
                the embedded engine has no such agent.
            TaskExistsError: There is a task of this id.
        """
        if extra_state is not None and self._extra_state is not None:
            msg = "Cannot specify both `extra_state` and `default_extra_state`"
            raise InvalidArgumentError(msg)
        choice = tool_choice or self._tool_choice
        head = TaskHead(
            agent=agent or self.agent,
            session=self._session_ref(session),
            tool_choice="" if choice == "auto" else choice,
        )
        text, stored = await self._input(input)
        given = TaskInput(
            head=head,
            input=text or "",
            stored=stored,
            extra_state=json_state(extra_state or self._extra_state or {}),
            budget=budget,
            automatic=step_mode == "automatic",
            heartbeat=self._heartbeat,
            roll_events=self._roll_events,
        )
        task_id = task_id or new_id(head.agent)
        self._require_agent(head.agent)
        await self._tasks.start(task_id, given, self._queue)
        return Task(
            task_id=task_id,
            input=input,
            agent=head.agent,
            session=head.session.name if head.session else "",
            extra_state=given.extra_state,
        )

    async def run_to_end(
        self,
        input: str,
        *,
        task_id: str,
        agent: str,
        before: Sequence[Message] = (),
        session: str | Session | None = None,
        budget: Budget | None = None,
        model: str = "",
        settings: ModelSettings | None = None,
    ) -> TaskStepOutput:
        """Create a task in the Agents SDK's dialect, run it to its end and finalize it.

        Args:
            input: The request; empty when it is the end of `before`.
            task_id: Id of the task.
            agent: Name of the agent.
            before: Messages before the request.
            session: As for create_task.
            budget: Limits.
            model: Model name that replaces the agent's.
            settings: Model settings laid over the agent's.

        Returns:
            The last output, or the one that waits for a person.

        Raises:
            TaskExistsError: There is a task of this id.
            StepFailedError: A step failed; the task can be healed and run on by its id.
            AgentsException: The task has ended with a verdict.
        """
        head = TaskHead(
            agent=agent,
            session=self._session_ref(session),
            history=await write_messages(self.archive, before) if before else "",
            dialect=AGENTS_SDK,
            model=model,
            settings=settings,
        )
        text, stored = (None, None) if before else await self._input(input)
        given = TaskInput(
            head=head,
            input=text or "",
            stored=stored,
            budget=budget,
            automatic=True,
            finalize=True,
            heartbeat=self._heartbeat,
            roll_events=self._roll_events,
        )
        self._require_agent(agent)
        reply = await self._tasks.start_and_run(task_id, given, self._queue)
        return await self._reply(task_id, reply.n, reply.status)

    async def transcript(self, task: TaskLike) -> list[Message]:
        """Return a task's messages, oldest first."""
        return await self._read.transcript(id_of(task))

    async def get_task(self, task: TaskLike) -> Task:
        """Describe a task, open or closed.

        Raises:
            TaskNotFoundError: There is none of this id.
            NoWorkerError: It is open and no worker process is up to answer.
        """
        return await self._read.task(id_of(task))

    async def list_tasks(
        self,
        status: TaskStatus | None = None,
        agent: str | None = None,
        *,
        limit: int | None = None,
    ) -> list[Task]:
        """List tasks from Temporal's visibility store, newest first; inputs are cut short.

        Args:
            status: Only tasks with this status.
            agent: Only tasks of this agent.
            limit: Most tasks; None for all.
        """
        # A run that continued as new is not the task any more, whatever its attribute says.
        query = "WorkflowType = 'AgentTask' AND ExecutionStatus != 'ContinuedAsNew'"
        if status is not None:
            query += f" AND HfStatus = '{quoted(status)}'"
        if agent is not None:
            query += f" AND HfAgent = '{quoted(agent)}'"
        tasks: dict[str, Task] = {}
        async for found in self.client.list_workflows(query):
            if limit is not None and len(tasks) >= limit:
                break
            memo = await found.memo()
            tasks.setdefault(
                found.id,
                Task(
                    task_id=found.id,
                    input=memo.get("input", ""),
                    agent=found.typed_search_attributes.get(HF_AGENT) or "",
                    status=cast(
                        "TaskStatus", found.typed_search_attributes.get(HF_STATUS) or "running"
                    ),
                    created=found.start_time.timestamp(),
                ),
            )
        return list(tasks.values())

    async def get_upcoming_steps(self, task: TaskLike) -> list[TaskStep]:
        """List the step in progress and the queued ones, in order."""
        try:
            return await self._read.query(id_of(task), "upcoming", list[TaskStep])
        except (TaskClosedError, TaskNotFoundError):
            await self._read.record(id_of(task))
            return []

    async def get_completed_steps(self, task: TaskLike) -> list[TaskStepOutput]:
        """List the completed steps' outputs, oldest first."""
        return await self._read.steps(id_of(task))

    async def get_completed_step(self, task: TaskLike, step: TaskStep | str) -> TaskStepOutput:
        """Return one completed step's output.

        Raises:
            StepNotFoundError: There is no completed step of this id.
        """
        step_id = step.step_id if isinstance(step, TaskStep) else step
        for output in await self.get_completed_steps(task):
            if output.task_step.step_id == step_id:
                return output
        msg = f"Could not find step_id: {step_id}"
        raise StepNotFoundError(msg)

    async def get_task_output(self, task: TaskLike) -> TaskStepOutput:
        """Return the last completed step's output.

        Raises:
            StepNotFoundError: No step is completed yet.
        """
        found = await self.get_task(task)
        if not found.steps:
            msg = f"No completed steps for task_id: {found.task_id}"
            raise StepNotFoundError(msg)
        return await self._read.step(found.task_id, found.steps)

    async def get_completed_tasks(self) -> list[Task]:
        """List the tasks that have their answer, finalized or not."""
        return [task for status in FINISHED for task in await self.list_tasks(status)]

    async def delete_task(self, task: TaskLike) -> None:
        """Delete a task from Temporal and the archive; what its session got stays.

        Raises:
            TaskNotFoundError: There is none of this id.
        """
        task_id = id_of(task)
        await self.get_task(task_id)
        await self._tasks.delete(task_id)
        await self.archive.adelete_record(record_name("tasks", task_id))

    # ---- run

    async def run_step(
        self,
        task: TaskLike,
        input: str | None = None,
        step: TaskStep | str | None = None,
        *,
        tool_choice: str | None = None,
        restart: Literal["step"] | None = None,
        request_id: str | None = None,
    ) -> TaskStepOutput:
        """Run the next step and return its output; a step that waits for a person returns too.

        Args:
            task: The task.
            input: New user input for the step.
            step: The queued step to run, instead of the first.
            tool_choice: "auto", "none", "required" or a tool's name, for this step.
            restart: "step" throws away what a failed step has in its journal and starts it anew.
            request_id: Names this request: sent again with the same id, one step is run.

        Raises:
            InvalidArgumentError: Both input and step are given, or step is something else.
            NoUpcomingStepsError: No step is left.
            StepFailedError: The step failed; it stays first in the queue.
            AgentsException: The task has ended with a verdict.
            NoWorkerError: No worker process serves the task; it waits.
        """
        if input is not None and step is not None:
            msg = "Cannot specify both `step` and `input`"
            raise InvalidArgumentError(msg)
        if not isinstance(cast("object", step), TaskStep | str | None):
            msg = f"step must be TaskStep: {type(step).__name__}"
            raise InvalidArgumentError(msg)
        text, stored = (None, None) if input is None else await self._input(input)
        asked = RunRequest(
            input=text,
            stored=stored,
            step=(step.step_id if isinstance(step, TaskStep) else step) or "",
            tool_choice=tool_choice or "",
            restart=restart == "step",
        )
        reply = await self._tasks.run(id_of(task), asked, request_id)
        return await self._reply(id_of(task), reply.n, reply.status)

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
        reply = await self._tasks.run(id_of(task), RunRequest(all=True))
        return await self._reply(id_of(task), reply.n, reply.status)

    async def finalize_response(self, task: TaskLike) -> AgentResponse:
        """Commit a task that has its answer to its session, close it, and return the answer.

        Called again, it returns the same and commits nothing.

        Raises:
            InvalidArgumentError: The last completed step is not the last of the task.
            TaskClosedError: The task was abandoned or has failed.
        """
        task_id = id_of(task)
        try:
            await self._tasks.finalize(task_id)
        except TaskClosedError:
            record = await self._read.record(task_id)
            if record.failure is not None:
                raise
        return await self.response(task_id)

    async def response(self, task: TaskLike) -> AgentResponse:
        """Return the answer of a finalized task."""
        outputs = await self._read.steps(id_of(task))
        last = outputs[-1]
        return AgentResponse(
            response=str(last),
            output=last.output,
            sources=tuple(source for output in outputs for source in output.sources),
            usage=total_usage(outputs),
            task_id=id_of(task),
        )

    async def chat(
        self,
        message: str,
        session: str | Session | None = None,
        chat_history: Sequence[Message] | None = None,
        tool_choice: str | None = None,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        extra_state: Mapping[str, Json] | None = None,
        budget: Budget | None = None,
    ) -> AgentResponse:
        """Create a task, run it to its end and finalize it.

        Args:
            message: The request.
            session: Session that remembers the conversation.
            chat_history: Replaces the session's history before the task starts.
            tool_choice: Tool choice of the first step.
            agent: As for create_task, like those after it.
            task_id: Id of the task.
            extra_state: Shared state of the task.
            budget: Limits.

        Raises:
            InvalidArgumentError: chat_history is given without a session.
            StepFailedError: A step failed; the task can be healed and run on by its id.
        """
        if chat_history is not None:
            if session is None:
                msg = "chat_history replaces the history of a session: name one with session=..."
                raise InvalidArgumentError(msg)
            memory = self.session(session)
            await memory.reset()
            await memory.append(chat_history)
        task = await self.create_task(
            message,
            agent=agent,
            task_id=task_id,
            session=session,
            extra_state=extra_state,
            budget=budget,
            tool_choice=tool_choice,
            step_mode="automatic",
        )
        output = await self.run_task(task)
        if output.status == "waiting":
            return AgentResponse(response="", task_id=task.task_id, status="waiting")
        return await self.finalize_response(task)

    # ---- control

    async def pause(self, task: TaskLike, reason: str = "", by: str = "") -> Receipt:
        """Let no further step begin.

        Raises:
            CommandRefusedError: The task is closing.
        """
        return await self._tasks.command(id_of(task), "pause", by=by, body={"reason": reason})

    async def resume(self, task: TaskLike, by: str = "") -> Receipt:
        """Let steps begin again.

        Raises:
            CommandRefusedError: The task is not paused.
        """
        return await self._tasks.command(id_of(task), "resume", by=by)

    async def abandon(self, task: TaskLike, reason: str, by: str = "") -> Receipt:
        """End a task without an answer: running calls are cancelled, its session gets nothing.

        Raises:
            CommandRefusedError: The task is closing.
            TaskClosedError: The task is closed.
        """
        return await self._tasks.command(id_of(task), "abandon", by=by, body={"reason": reason})

    # ---- history and memory

    async def ledger(self, task: TaskLike) -> list[Entry]:
        """Return every record of a task: steps, commands and failures, oldest first."""
        return await self._read.entries(id_of(task))

    def session(self, name: str | Session) -> Session:
        """Name a session of this app."""
        if isinstance(name, Session):
            return name
        return Session(name, app=self.app, client=self.client, archive=self.archive)

    # ---- inner

    def _require_agent(self, agent: str) -> None:
        if self._engine is not None:
            self._engine.require(self.app, agent)

    async def _reply(self, task_id: str, n: int, status: str) -> TaskStepOutput:
        if status == "paused":
            task = await self._read.task(task_id)
            return TaskStepOutput(
                status="waiting",
                task_step=TaskStep(task_id=task_id),
                waiting_for=(f"paused by {task.paused}; resume the task first",),
            )
        return await self._read.step(task_id, n)

    async def _input(self, text: str) -> tuple[str | None, Blob | None]:
        """Keep a small input as it is and store a large one."""
        if not isinstance(cast("object", text), str) or not text.strip():
            msg = f"The input must be a text that says something; it was {text!r}."
            raise InvalidArgumentError(msg)
        data = text.encode()
        if len(data) <= INLINE_BYTES:
            return text, None
        return None, Blob(sha256=await self.archive.aput(data), size=len(data))

    def _session_ref(self, session: str | Session | None) -> SessionRef | None:
        if session is None:
            return None
        name = session if isinstance(session, str) else session.name
        return SessionRef(id=session_id(self.app, name), name=name)


def id_of(task: TaskLike) -> str:
    """Return the id of a task given as a Task or as an id."""
    return task if isinstance(task, str) else task.task_id


def new_id(agent: str) -> str:
    """Make up a task id."""
    return f"{agent}-{uuid.uuid4().hex[:12]}"


def json_state(state: Mapping[str, Json]) -> dict[str, Json]:
    """Copy a state, checking that it is JSON data.

    Raises:
        InvalidArgumentError: It is not.
    """
    try:
        canonical(dict(state))
        return dict(merge_patch.plain(state))
    except (TypeError, ValueError) as cause:
        msg = f"extra_state must be JSON data (text, numbers, lists, dicts): {cause}"
        raise InvalidArgumentError(msg) from cause


def quoted(text: str) -> str:
    """Escape a text for a visibility query."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
