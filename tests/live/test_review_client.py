"""The client in trouble: no worker, no server, lost requests, tasks ended from outside."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast import AgentRunner, Task, TaskStepOutput
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.task_client import task_client
from holdfast.errors import (
    ConnectError,
    NoWorkerError,
    SessionClosedError,
    StepFailedError,
    StuckTaskError,
    TaskClosedError,
)
from holdfast.reading import queries
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import user
from tests.support.rig import Rig, event_types, reset, run_a_task, step_a_task, until, until_status
from tests.support.workers import Counting


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    return await rig.make(worker=Counting(2))


def nobody(monkeypatch: pytest.MonkeyPatch, *answers: bool) -> None:
    """Let the server say that a queue is served, these times, and then that it is not."""
    left = list(answers)

    async def has_workers(*_: object) -> bool:
        return left.pop(0) if left else False

    monkeypatch.setattr(queries, "has_workers", has_workers)


# ---- nobody serves the task


async def test_a_step_refused_for_want_of_a_worker_does_not_run_later(rig: Rig) -> None:
    task = await rig.runner().create_task("q")
    with pytest.raises(NoWorkerError) as caught:
        await rig.runner().run_step(task, request_id="r1")
    assert (caught.value.request_id, caught.value.is_sent) == ("r1", False)
    assert caught.value.task_id == task.task_id
    runner = await rig.make(worker=Counting())
    await until_status(runner, task, "running")
    assert not [e for e in await event_types(runner.client, task.task_id) if "UPDATE" in e]
    assert (await runner.run_step(task, request_id="r1")).output["count"] == 1


async def test_a_request_sent_to_a_worker_that_was_just_killed_is_asked_again_by_its_id(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = rig.runner()
    task = await runner.create_task("q")
    with monkeypatch.context() as patch:
        nobody(patch, True)
        patch.setattr("holdfast.client.agent_runner.task_client.task_client.PATIENCE_SECONDS", 0.2)
        with pytest.raises(NoWorkerError, match="request_id") as caught:
            await runner.run_step(task)
    assert caught.value.is_sent
    await rig.serve(rig.agent(worker=Counting()))
    assert (await runner.run_step(task, request_id=caught.value.request_id)).output["count"] == 1
    assert (await runner.get_task(task)).steps == 1


# ---- deleting


# ---- trouble in reading


async def test_a_server_that_is_away_is_a_connect_error_everywhere(
    runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await runner.create_task("q")
    away = RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")

    async def fails(*_: object, **__: object) -> Any:
        raise away

    def failing(*_: object, **__: object) -> Failing:
        return Failing(away)

    client = type(runner.client)
    with monkeypatch.context() as patch:
        patch.setattr(client, "get_workflow_handle", failing)
        patch.setattr(client, "start_workflow", fails)
        patch.setattr(client, "execute_update_with_start_workflow", fails)
        patch.setattr(client, "list_workflows", failing)
        patch.setattr(type(runner.client.workflow_service), "list_workflow_executions", fails)
        for verb in (
            runner.get_task,
            runner.run_step,
            runner.run_task,
            runner.finalize_response,
            runner.undo_step,
            runner.pause,
            runner.ledger,
            runner.get_upcoming_steps,
            runner.delete_task,
        ):
            with pytest.raises(ConnectError, match="connection refused"):
                await verb(task)
        session = runner.session("s")
        for asked in (
            *(runner.list_tasks(), runner.pending_approvals(), runner.create_task("another")),
            *(session.append([user("one")]), session.chat_history()),
        ):
            with pytest.raises(ConnectError):
                await asked


class Failing:
    """A handle or a listing of a server that is away."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __aiter__(self) -> Failing:
        return self

    async def __anext__(self) -> Any:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        async def fails(*_: object, **__: object) -> Any:
            raise self._error

        return fails


# ---- tasks ended with Temporal's own tools


async def test_a_terminated_task_is_abandoned_and_readable_and_not_running(
    runner: AgentRunner,
) -> None:
    task = await step_a_task(runner, "the question")
    await runner.client.get_workflow_handle(task.task_id).terminate("by an operator")

    async def listed() -> bool:
        found = [each.task_id for each in await runner.list_tasks("abandoned")]
        return task.task_id in found

    assert await until(listed)
    assert task.task_id not in [each.task_id for each in await runner.list_tasks("running")]
    [found] = [each for each in await runner.list_tasks() if each.task_id == task.task_id]
    assert found.status == "abandoned"
    assert (await runner.get_task(task)).status == "abandoned"
    assert await runner.get_upcoming_steps(task) == []
    assert len(await runner.get_completed_steps(task)) == 1
    assert (await runner.get_task_output(task)).output["count"] == 1
    fork = await runner.fork(task, at="s1")
    assert (await runner.run_step(fork)).output["count"] == 2
    for verb in (runner.run_step, runner.finalize_response, runner.pause, runner.undo_step):
        with pytest.raises(TaskClosedError):
            await verb(task)


# ---- sessions


async def history(session: Session) -> list[str]:
    return [message.text for message in await session.chat_history()]


async def test_a_session_cancelled_before_any_worker_saw_it_or_later_keeps_its_memory(
    rig: Rig,
) -> None:
    session = rig.runner().session("s")
    await session.append([user("one")])
    await rig.engine.client.get_workflow_handle(session.id).cancel()
    await rig.serve(rig.agent(worker=Counting()))
    await session.append([user("two")])
    assert await history(session) == ["one", "two"]
    await rig.engine.client.get_workflow_handle(session.id).cancel()
    await session.append([user("three")])
    assert await history(session) == ["one", "two", "three"]


async def test_a_terminated_session_is_not_begun_anew_and_comes_back_by_a_reset(
    runner: AgentRunner,
) -> None:
    session = runner.session("s")
    await session.append([user("one")])
    task = await run_a_task(runner, session="s")
    handle = runner.client.get_workflow_handle(session.id)
    assert await history(session) == ["one"]
    await handle.terminate("by an operator")
    for change in (session.append([user("two")]), session.reset()):
        with pytest.raises(SessionClosedError, match="workflow reset"):
            await change
    with pytest.raises(StepFailedError, match="workflow reset") as caught:
        await runner.finalize_response(task)
    assert caught.value.cause_type == "SessionClosedError"
    assert await history(session) == ["one"]

    last = [e async for e in handle.fetch_history_events()]
    done = [e.event_id for e in last if e.HasField("workflow_task_completed_event_attributes")]
    await reset(runner.client, session.id, done[-1])
    assert await history(session) == ["one"]
    await runner.finalize_response(task)
    assert (await history(session))[:2] == ["one", "q"]


# ---- requests that a worker process did not see to


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
