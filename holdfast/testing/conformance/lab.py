"""One check of the conformance suite: an app with its own model, notebook and worker."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from holdfast.agents.agent import Agent
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.models.openai.responses import ResponsesModel
from holdfast.serving.activities import Activities
from holdfast.serving.worker_process import BUILD_ID, serving_worker
from holdfast.task.data.calls import Approval
from holdfast.testing.conformance.asserts import check, until
from holdfast.testing.conformance.bench import shared_bench
from holdfast.testing.conformance.process import AGENT, Job, Notebook, Suite, make_agent
from holdfast.testing.fake_api.fake_openai import FakeOpenAI
from holdfast.testing.fake_api.script import Place
from holdfast.values.base import Json
from holdfast.values.checks.ids import queue_of
from holdfast.values.steps import Task, TaskStepOutput
from holdfast.workers.base import AgentWorker
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.requests.events import EventMailbox
from holdfast.workflows.session import Session

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

# Long, though two checks wait for it: on a busy machine a live process must not count as lost.
HEARTBEAT_SECONDS = 10.0
FEW_EVENTS = 50
MANY_EVENTS = 60
MOST_STEPS = 50


@dataclass(frozen=True)
class Seen:
    """A task between two steps.

    Attributes:
        queue: The queued steps with their state.
        extra_state: The task's state.
        transcript: The task's messages.
        kept: What the tool `note` has written down.
    """

    queue: list[dict[str, Json]]
    extra_state: dict[str, Json]
    transcript: list[dict[str, Json]]
    kept: list[str]


@dataclass
class Story:
    """A task that was run step by step.

    Attributes:
        task: The task.
        outputs: The steps' outputs, in order.
        before: The task before each step, and after the last one.
        places: How far the script was at those points.
        asked: How many model requests there had been at those points.
    """

    task: Task
    outputs: list[TaskStepOutput] = field(default_factory=list[TaskStepOutput])
    before: list[Seen] = field(default_factory=list[Seen])
    places: list[Place] = field(default_factory=list[Place])
    asked: list[int] = field(default_factory=list[int])

    @property
    def answer(self) -> Json:
        """Output of the last step."""
        return self.outputs[-1].output


class Lab:
    """One check's app.

    Attributes:
        api: The fake model.
        book: What the tool `note` has done.
        worker: The worker under test.
        runner: A client of the app.
    """

    def __init__(
        self,
        suite: Suite,
        api: FakeOpenAI,
        worker: AgentWorker,
        *,
        asks: bool = False,
        roll_events: int = 2000,
    ) -> None:
        """Take the next free app.

        Args:
            suite: The conformance class.
            api: The fake model, served.
            worker: The worker under test.
            asks: Whether the tool `note` needs approval.
            roll_events: As for AgentRunner.
        """
        self.bench = shared_bench()
        self.app, self.home = self.bench.home()
        self.book = Notebook(self.home)
        self.api = api
        self.worker = worker
        self.agent: Agent = make_agent(
            suite, worker, base_url=api.base_url, book=self.book, asks=asks
        )
        self.runner = AgentRunner(
            agent=AGENT,
            app=self.app,
            client=self.bench.client,
            archive=self.bench.archive,
            heartbeat=HEARTBEAT_SECONDS,
            roll_events=roll_events,
        )
        self.tasks: list[str] = []
        self._suite = suite
        self._resources = AsyncExitStack()
        self._processes: list[BaseProcess] = []

    # ---- workers

    async def serve(self) -> None:
        """Start a worker in this process."""
        model = self.agent.model
        if isinstance(model, ResponsesModel):
            self._resources.push_async_callback(model.close)
        await self._resources.enter_async_context(
            serving_worker(
                self.bench.client,
                Activities([self.agent], self.bench.archive),
                queue=queue_of(self.app),
                graceful_shutdown_timeout=timedelta(seconds=5),
                # The least that is possible: each poll costs, and a check has few tasks.
                max_concurrent_workflow_task_polls=2,
                max_concurrent_activity_task_polls=1,
            )
        )

    async def serve_apart(self) -> BaseProcess:
        """Start a worker in a process of its own and wait until it serves."""
        kind = type(self._suite)
        if "<locals>" in kind.__qualname__:
            raise AssertionError(
                f"{kind.__qualname__} is defined inside a function, so that a worker process that"
                " can be killed could not import it. Define it at the top level of its module."
            )
        job = Job(
            server=self.bench.server,
            archive=str(self.bench.archive.url),
            app=self.app,
            base_url=self.api.base_url,
            home=str(self.home),
            module=kind.__module__,
            file=source_of(kind),
            qualname=kind.__qualname__,
        )
        process = await asyncio.to_thread(self.bench.start_process, job)
        self._processes.append(process)

        async def serving() -> bool:
            check(
                process.exitcode is None,
                f"The worker process of the suite did not start.\n{self._log()}",
            )
            return (self.home / "serving").exists()

        await until(serving)
        return process

    def _log(self) -> str:
        """Return the end of what the worker process has printed."""
        log = self.home / "process.log"
        if not log.exists():  # it ended before logging began: its output is on the terminal
            return (
                "It printed nothing of its own; see what multiprocessing says of the main module."
            )
        return log.read_text(encoding="utf-8", errors="replace")[-4000:]

    async def kill(self, process: BaseProcess) -> None:
        """Kill a worker process, as `kill -9` does, and wait until it is gone."""
        process.kill()
        await asyncio.to_thread(process.join)

    async def close(self) -> None:
        """Stop the workers; nothing outlives a check."""
        self.book.let_go()
        for process in self._processes:
            process.kill()
            await asyncio.to_thread(process.join)
            process.close()
        await self._resources.aclose()

    # ---- tasks

    async def create(self, input: str, **options: Any) -> Task:
        """Create a task and write its replies into the script."""
        task = await self.runner.create_task(input, **options)
        self.tasks.append(task.task_id)
        return task

    async def approve(self, approval: Approval) -> None:
        """Approve what a task asks for."""
        await self.runner.approve(approval, "suite")

    async def seen(self, task: Task) -> Seen:
        """Read a task as it is now."""
        queue = await self.runner.get_upcoming_steps(task)
        return Seen(
            queue=[step.wire() for step in queue],
            extra_state=(await self.runner.get_task(task)).extra_state,
            transcript=[message.wire() for message in await self.runner.transcript(task)],
            kept=self.book.kept(),
        )

    async def mark(self, story: Story) -> None:
        """Remember where the task and the script are."""
        story.before.append(await self.seen(story.task))
        story.places.append(self.api.place())
        story.asked.append(len(self.api.requests))

    async def run_story(self, task: Task) -> Story:
        """Run a task step by step to its last one.

        Raises:
            AssertionError: None of the first 50 is the last.
        """
        story = Story(task)
        await self.mark(story)
        while not (story.outputs and story.outputs[-1].is_last):
            if len(story.outputs) == MOST_STEPS:
                raise AssertionError(f"No step of the first {MOST_STEPS} was the last one.")
            story.outputs.append(await self.runner.run_step(task))
            await self.mark(story)
        return story

    # ---- the server

    async def grow(self, task: Task) -> None:
        """Make a task's history long without changing the task."""
        handle = self.bench.client.get_workflow_handle(task.task_id)
        at = len((await handle.fetch_history()).events)
        sent = [{"id": f"{at}.{k}", "by": "suite"} for k in range(MANY_EVENTS)]
        await asyncio.gather(*(handle.signal("resume", each) for each in sent))  # refused

    async def roll(self, task: Task) -> None:
        """Make a task continue as new, without changing it."""
        handle = self.bench.client.get_workflow_handle(task.task_id)
        before = (await handle.describe()).run_id

        async def rolled() -> bool:
            return (await handle.describe()).run_id != before

        await self.grow(task)
        await until(rolled)

    async def runs(self, task: Task) -> int:
        """Count the runs of a task's workflow."""
        return len(await self.histories(task.task_id))

    async def until_still(self, task: Task) -> None:
        """Wait until a task does nothing but hold requests and calls of `note`.

        An answer in transit from the model to the history is lost with its worker and paid for
        again; no check covers that.
        """
        handle = self.bench.client.get_workflow_handle(task.task_id)

        async def still() -> bool:
            held = self.api.held + self.book.held  # before the look: it only grows
            found = (await handle.describe()).raw_description
            pending = found.pending_activities
            if found.HasField("pending_workflow_task"):  # more may be about to begin
                return False
            return 0 < len(pending) == held

        await until(still)

    async def histories(self, workflow_id: str) -> list[WorkflowHistory]:
        """Fetch the histories of a workflow's runs, newest first."""
        found: list[WorkflowHistory] = []
        run_id: str | None = None
        while True:
            handle = self.bench.client.get_workflow_handle(workflow_id, run_id=run_id)
            history = await handle.fetch_history()
            found.append(history)
            first = history.events[0].workflow_execution_started_event_attributes
            run_id = first.continued_execution_run_id
            if not run_id:
                return found

    async def replay(self) -> int:
        """Replay every history of this check; return how many there were.

        Raises:
            Exception: The present code does not give the recorded history.
        """
        replayer = Replayer(
            workflows=[AgentTask, Session, EventMailbox],
            data_converter=self.bench.client.data_converter,
            build_id=BUILD_ID,  # the default id is computed from the code of all modules, each time
        )
        found = [each for task in self.tasks for each in await self.histories(task)]
        # A run that has just continued as new has one event: the replayer would wait without end.
        histories = [each for each in found if len(each.events) > 1]

        for each in histories:
            await replayer.replay_workflow(each)
        return len(histories)


def source_of(kind: type) -> str:
    """Return the file in which a class is defined, or an empty text."""
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
