"""Requests that reached a worker process which did not see to them are asked again."""

import asyncio

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
)

from holdfast import AgentRunner, Task, TaskStepOutput
from holdfast.client.agent_runner.task_client import task_client
from holdfast.errors import StuckTaskError
from holdfast.reading import queries
from holdfast.testing import FakeOpenAI
from tests.support.rig import Rig

SEVERAL = 3
"""After so many failures the server turns requests away."""


class OddWorker:
    """Polls for workflow tasks as a worker does, and answers them as it is told.

    Attributes:
        gave_up: Set once a task has failed more than several times.
    """

    def __init__(self, rig: Rig) -> None:
        self._client = rig.engine.client
        self._queue = TaskQueue(name=rig.queue)
        self._started = rig.engine.started
        self.gave_up = asyncio.Event()

    async def take(self) -> PollWorkflowTaskQueueResponse:
        """Wait for the next task that brings a request."""
        while True:
            found = await self._poll()
            if found.messages:
                return found
            if found.task_token:
                await self.answer(found)

    async def take_question(self) -> PollWorkflowTaskQueueResponse:
        """Wait for the next query."""
        while not (found := await self._poll()).HasField("query"):
            pass
        return found

    async def answer(self, taken: PollWorkflowTaskQueueResponse, *commands: Command) -> None:
        """Complete a task, without a word about the request it brought."""
        await self._client.workflow_service.respond_workflow_task_completed(
            RespondWorkflowTaskCompletedRequest(
                task_token=taken.task_token,
                identity="odd",
                namespace=self._client.namespace,
                commands=commands,
            )
        )

    async def fail_all(self) -> None:
        """Fail at every task, as code does that no longer fits the history."""
        while True:
            found = await self._poll()
            if found.task_token:
                await self._client.workflow_service.respond_workflow_task_failed(
                    RespondWorkflowTaskFailedRequest(
                        task_token=found.task_token,
                        identity="odd",
                        namespace=self._client.namespace,
                    )
                )
                if found.attempt > SEVERAL:
                    self.gave_up.set()

    def forget(self, task_id: str) -> None:
        """Leave a task out of what is replayed: what this worker did, the code does not."""
        del self._started[task_id]

    async def _poll(self) -> PollWorkflowTaskQueueResponse:
        return await self._client.workflow_service.poll_workflow_task_queue(
            PollWorkflowTaskQueueRequest(
                namespace=self._client.namespace, task_queue=self._queue, identity="odd"
            )
        )


@pytest.fixture
def odd(rig: Rig) -> OddWorker:
    return OddWorker(rig)


async def begin_step(
    runner: AgentRunner, odd: OddWorker, model: FakeOpenAI
) -> tuple[Task, asyncio.Task[TaskStepOutput], PollWorkflowTaskQueueResponse]:
    """Ask for the one step of a task, and let the odd worker take the request."""
    model.reply("done")
    taking = asyncio.create_task(odd.take())
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_step(task))
    return task, running, await taking


async def test_a_request_that_a_worker_passed_over_is_asked_again(rig: Rig, odd: OddWorker) -> None:
    task, running, taken = await begin_step(rig.runner(), odd, rig.model)
    await odd.answer(taken)
    await rig.serve(rig.agent())
    assert str(await running) == "done"
    assert len(rig.model.requests) == 1
    odd.forget(task.task_id)


async def test_a_question_that_a_worker_forgot_is_asked_again(
    rig: Rig, odd: OddWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PATIENCE_SECONDS", 0.3)
    rig.model.reply("done")
    runner = await rig.serving(rig.agent())
    task = await runner.create_task("q")
    await runner.run_step(task)  # idle from here on, so that a query comes by itself
    await rig.stop()
    asking = asyncio.create_task(runner.get_task(task))
    await odd.take_question()  # and no word about it
    await rig.serve(rig.agent())
    assert (await asking).task_id == task.task_id


async def test_a_task_at_which_workers_always_fail_says_so(
    rig: Rig, odd: OddWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_client, "NOT_TAKEN_SECONDS", 0.1)
    runner = rig.runner()
    failing = asyncio.create_task(odd.fail_all())
    task = await runner.create_task("q")
    try:
        await odd.gave_up.wait()
        with pytest.raises(StuckTaskError, match=r"Workflow code fails, attempt \d+"):
            await runner.run_step(task)
    finally:
        failing.cancel()  # else it keeps the server busy for all tests that follow
