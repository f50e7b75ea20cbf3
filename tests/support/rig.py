"""A runner with a worker process' work done in the test's own loop, on a queue of its own."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    StartWorkflowUpdateWithStartInput,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateHandle,
)
from temporalio.plugin import SimplePlugin
from temporalio.worker import Replayer, Worker

from holdfast import Agent, AgentRunner, Task
from holdfast.activities.notices import Notifier
from holdfast.activities.user_loop import UserLoops
from holdfast.archive.archive import Archive, record_name
from holdfast.archive.bytestore import blob_path
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.models.openai.responses import ResponsesModel
from holdfast.models.prices import Prices
from holdfast.reading.visibility import delete_runs
from holdfast.serving.activities import WORKFLOWS, Activities
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.worker_process import BUILD_ID, serving_worker
from holdfast.task.data.state import TaskRecord
from holdfast.values.checks.ids import queue_of
from holdfast.values.steps import ListedTask
from tests.replay.recorded import Kind, kinds, record
from tests.support.scale import EXHAUSTIVE

if TYPE_CHECKING:
    import pytest
    from openai import AsyncOpenAI

    from holdfast.testing import FakeOpenAI

T = TypeVar("T")

FEW_POLLS = {"max_concurrent_workflow_task_polls": 2, "max_concurrent_activity_task_polls": 1}
"""The least that a worker with a cache can have. A poll ends when it has got one task, so this
limits no work at once; each of the default ten costs server and test some time."""


class _Outbound(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor, started: dict[str, str]) -> None:
        super().__init__(following)
        self._started = started

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        self._started[input.id] = input.task_queue
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self, input: StartWorkflowUpdateWithStartInput
    ) -> WorkflowUpdateHandle[Any]:
        start = input.start_workflow_input
        self._started[start.id] = start.task_queue
        return await super().start_update_with_start_workflow(input)


@dataclass
class Started(Interceptor):
    """Remembers which workflows were started, and on which queue."""

    queues: dict[str, str] = field(default_factory=dict[str, str])

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002  Temporal's name
        return _Outbound(next, self.queues)


@dataclass(frozen=True)
class Engine:
    """One server with one archive, shared by all tests.

    Attributes:
        client: A client made with `HoldfastPlugin`.
        archive: The namespace's archive.
        started: Workflow id to its task queue.
    """

    client: Client
    archive: Archive
    started: dict[str, str]


async def make_engine(server: ServerInfo, directory: Path) -> Engine:
    """Connect to a server whose tasks are archived in this directory."""
    archive = Archive(directory)
    started = Started()
    plugins = [
        HoldfastPlugin(archive=archive),
        SimplePlugin("tests.started", interceptors=[started]),
    ]
    client = await connect_embedded(server, plugins=plugins)
    await check_archive(client, archive)
    return Engine(client=client, archive=archive, started=started.queues)


@dataclass
class World:
    """What tools have done outside of any task.

    Attributes:
        done: Everything that was done, in order: "book rome", "cancel rome".
        keys: Idempotency keys, in the order of the calls.
    """

    done: list[str] = field(default_factory=list[str])
    keys: list[str] = field(default_factory=list[str])


class Rig:
    """Runner and worker of one app, which no other test shares.

    Attributes:
        engine: Server and archive.
        app: Name of the app.
        worker: The worker that serves it now.
        world: What its tools act on.
    """

    _numbers = itertools.count(1)

    def __init__(
        self, engine: Engine, model: FakeOpenAI | None = None, client: AsyncOpenAI | None = None
    ) -> None:
        """Take the next free app name.

        Args:
            engine: Server and archive.
            model: The fake API, where agents are made here.
            client: Reaches the fake API.
        """
        self.engine = engine
        self._model = model
        self._client = client
        self.app = f"t{next(self._numbers)}"
        self.worker: Worker | None = None
        self.world = World()
        self._resources = AsyncExitStack()

    @property
    def queue(self) -> str:
        """The app's task queue."""
        return queue_of(self.app)

    @property
    def ids(self) -> list[str]:
        """Ids of all workflows that were started on the app's queue, sessions too."""
        return [id for id, queue in self.engine.started.items() if queue == self.queue]

    def runner(self, agent: str = "agent", **options: Any) -> AgentRunner:
        """Make a handle; any number of them may be used at once."""
        return AgentRunner(
            agent=agent,
            app=self.app,
            client=self.engine.client,
            archive=self.engine.archive,
            **options,
        )

    @property
    def model(self) -> FakeOpenAI:
        """The fake API, which answers for the agents that are made here."""
        assert self._model is not None
        return self._model

    def agent(self, *tools: Any, name: str = "agent", **options: Any) -> Agent:
        """Make an agent whose model is the fake API."""
        options.setdefault("model", ResponsesModel("gpt-5-mini", client=self._client))
        return Agent(name=name, tools=tools, **options)

    async def make(self, *tools: Any, worker: Any = None, **options: Any) -> AgentRunner:
        """Serve an agent with these tools and return a runner for it."""
        extra = {} if worker is None else {"worker": worker}
        return await self.serving(self.agent(*tools, **extra), **options)

    async def serve(
        self,
        *agents: Agent,
        own_loop: bool = False,
        prices: Prices | None = None,
        notify: Iterable[Notifier] | None = None,
        **options: Any,
    ) -> None:
        """Start a worker for these agents, in the place of the one before.

        Args:
            agents: The agents.
            own_loop: Whether tools have a loop of their own, as in all workers but those of tests,
                which share events with their tools.
            prices: What models cost.
            notify: What notifies people of approvals.
            options: Options of the worker.
        """
        await self.stop()
        grace = timedelta(seconds=0.3)
        given: dict[str, Any] = {"graceful_shutdown_timeout": grace, **FEW_POLLS, **options}
        loops = UserLoops() if own_loop else None
        if loops is not None:
            self._resources.push_async_callback(loops.close)
        archive = self.engine.archive
        activities = Activities(agents, archive, loops, prices=prices, notify=notify)
        self.worker = serving_worker(self.engine.client, activities, queue=self.queue, **given)
        await self._resources.enter_async_context(self.worker)

    async def serving(self, *agents: Agent, **options: Any) -> AgentRunner:
        """Start a worker for these agents, and return a handle of the first, with these options."""
        await self.serve(*agents)
        return self.runner(agents[0].name, **options)

    async def stop(self) -> None:
        """Stop the worker, as SIGTERM would."""
        self.worker = None
        await self._resources.aclose()
        self._resources = AsyncExitStack()

    async def assert_replays(self) -> None:
        """Replay each history of the test's queue that is new to this process.

        A history is new when two of its events follow one another as in none before it. To replay
        all others, too, took a sixth of the time of such tests; `make test-all` does.
        """
        for workflow_id in self.ids:
            await assert_replays(self.engine.client, workflow_id, lambda it: EXHAUSTIVE or _new(it))


def as_embedded(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    """Let runs go as on an embedded engine: the worker of a rig is in their process, too."""
    client = rig.engine.client

    def worker_client(_own: AgentRunner, _queue: str) -> Client:
        return client

    patch.setattr(AgentRunner, "_worker_client", worker_client)
    patch.setattr(AgentRunner, "is_embedded", property(lambda _own: True))


_replayed: set[tuple[Kind, Kind]] = set()
"""Pairs of events that followed one another in what this process has replayed."""


def _new(history: WorkflowHistory) -> bool:
    """Whether events follow one another in a history as in none before; count it as replayed."""
    pairs = set(itertools.pairwise(kinds(history)))
    new = not pairs <= _replayed
    _replayed.update(pairs)
    return new


async def assert_replays(
    where: AgentRunner | Client,
    workflow: Task | str,
    which: Callable[[WorkflowHistory], bool] = lambda _history: True,
) -> None:
    """Replay every run, of those chosen, of a workflow's chain with the present code.

    Raises:
        Exception: The code does not give the recorded history.
    """
    client = where.client if isinstance(where, AgentRunner) else where
    workflow_id = workflow if isinstance(workflow, str) else workflow.task_id
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=client.data_converter,
        build_id=BUILD_ID,  # the default is made of all modules' code, each time
    )
    for history in await histories(client, workflow_id):
        # The replayer waits without end for a workflow task where there is none.
        if len(history.events) > 1 and which(history):
            await replayer.replay_workflow(history)
            record(history)


async def step_a_task(runner: AgentRunner, input: str = "q", **options: Any) -> Task:
    """Create a task and run its first step."""
    task = await runner.create_task(input, **options)
    await runner.run_step(task)
    return task


async def run_a_task(runner: AgentRunner, input: str = "q", **options: Any) -> Task:
    """Create a task and run it until it has its answer, or waits."""
    task = await runner.create_task(input, **options)
    await runner.run_task(task)
    return task


async def finish_a_task(runner: AgentRunner, input: str = "q", **options: Any) -> Task:
    """Create a task, run it to its answer, and close it."""
    task = await run_a_task(runner, input, **options)
    await runner.finalize_response(task)
    return task


async def reset(client: Client, workflow_id: str, event_id: int) -> None:
    """Reset a workflow to what it had decided by then, as Temporal's own tools do."""
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

    asked = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        workflow_task_finish_event_id=event_id,
        request_id="reset",
        reason="a test",
    )
    await client.workflow_service.reset_workflow_execution(asked)


async def until_failing(client: Client, workflow_id: str) -> None:
    """Wait until workflow code has failed at a task, which the server gives again."""
    from temporalio.service import RPCError

    async def fails() -> bool:
        with suppress(RPCError):  # it is yet to begin
            found = await client.get_workflow_handle(workflow_id).describe()
            return found.raw_description.pending_workflow_task.attempt > 1
        return False

    await until(fails)


async def until_rolled(client: Client, workflow_id: str) -> None:
    """Wait until a workflow has continued as new, that is, has more than one run.

    It does so when it is idle: requests that come one after the other may each be answered first.
    """
    await until(lambda: histories(client, workflow_id), lambda found: len(found) > 1)


async def histories(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """Fetch the histories of a workflow's runs, newest first; a deleted workflow has none."""
    from temporalio.service import RPCError, RPCStatusCode

    found: list[WorkflowHistory] = []
    run_id: str | None = None
    while True:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        try:
            history = await handle.fetch_history()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return found
            raise
        found.append(history)
        first = history.events[0].workflow_execution_started_event_attributes
        run_id = first.continued_execution_run_id
        if not run_id:
            return found


async def event_types(client: Client, workflow_id: str) -> list[str]:
    """List the event types of all runs of a workflow, oldest first."""
    from temporalio.api.enums.v1 import EventType

    runs = reversed(await histories(client, workflow_id))
    names = [EventType.Name(event.event_type) for run in runs for event in run.events]
    return [name.removeprefix("EVENT_TYPE_") for name in names]


async def activities_of(client: Client, workflow_id: str) -> list[str]:
    """List the types of all activities that a workflow's runs scheduled, oldest first."""
    runs = reversed(await histories(client, workflow_id))
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for run in runs
        for event in run.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


async def read_record(archive: Archive, task_id: str) -> TaskRecord | None:
    """Read the record of a task as the archive has it, also one that does not count."""
    found = await archive.afind_record(record_name("tasks", task_id))
    return None if found is None else TaskRecord.model_validate(found)


@contextmanager
def damaged(runner: AgentRunner, sha256: str) -> Generator[None]:
    """Flip a byte of a blob, which other tests may share, for a while."""
    file = Path(runner.archive.url) / blob_path(sha256)
    whole = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        yield
    finally:
        file.write_bytes(whole)


@overload
async def until(
    read: Callable[[], Awaitable[T]],
    is_so: Callable[[T], object] = bool,
    *,
    seconds: float = 100.0,
    every: float = 0.02,
) -> T: ...


@overload
async def until(
    read: Callable[[], T],
    is_so: Callable[[T], object] = bool,
    *,
    seconds: float = 100.0,
    every: float = 0.02,
) -> T: ...


async def until(
    read: Callable[[], Any],
    is_so: Callable[[Any], object] = bool,
    *,
    seconds: float = 100.0,
    every: float = 0.02,
) -> Any:
    """Wait until something holds of what is read, or awaited; else that it is true; and return it.

    The pauses grow from `every` to a quarter of a second: a look costs the server some work.

    Raises:
        TimeoutError: It did not.
    """
    async with asyncio.timeout(seconds):
        while True:
            found = read()
            if inspect.isawaitable(found):
                found = await found
            if is_so(found):
                return found
            await asyncio.sleep(every)
            every = min(1.3 * every, max(every, 0.25))


async def until_task(
    runner: AgentRunner, task: ListedTask | str, is_so: Callable[[Task], object]
) -> Task:
    """Wait until something holds of a task, and return it as it is then."""
    return await until(lambda: runner.get_task(task), is_so)


async def until_status(runner: AgentRunner, task: ListedTask | str, *statuses: str) -> Task:
    """Wait until a task has one of these statuses."""
    return await until_task(runner, task, lambda found: found.status in statuses)


async def until_steps(runner: AgentRunner, task: Task | str, count: int) -> Task:
    """Wait until this many steps of a task are done and not undone."""
    return await until_task(runner, task, lambda found: found.steps == count)


async def until_blocked(runner: AgentRunner, task: Task, text: str) -> str:
    """Wait until a task says that it waits for something; return what it says."""
    return (await until_task(runner, task, lambda found: text in found.blocked_by)).blocked_by


async def forget(where: AgentRunner | Client, workflow: Task | str) -> None:
    """Remove a closed workflow from Temporal, as its retention does; the archive keeps it."""
    client = where.client if isinstance(where, AgentRunner) else where
    workflow_id = workflow if isinstance(workflow, str) else workflow.task_id
    await delete_runs(client, workflow_id)
    await until(lambda: histories(client, workflow_id), lambda found: not found)


async def roll(runner: AgentRunner, task: Task) -> None:
    """Have a task continue as new by commands alone; it rolls after few events."""
    runs = len(await histories(runner.client, task.task_id))
    while len(await histories(runner.client, task.task_id)) <= runs:
        await runner.pause(task, by="ann")
        await runner.resume(task, by="ann")


def texts(values: Iterable[Any]) -> list[str]:
    """Return each value as text."""
    return [str(value) for value in values]


def roles(messages: Sequence[Any]) -> list[str]:
    """Return who speaks in each message."""
    return [message.role for message in messages]
