"""What runs within a workflow task, as a local activity: the description of the agent."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client

from holdfast import Task, TaskStep, tool
from holdfast.activities.data import source
from holdfast.activities.steps import step
from holdfast.errors import ArchiveError
from holdfast.task.data.head import TaskHead
from holdfast.testing import FakeOpenAI
from holdfast.values.base import ChainRef
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.rig import MakeRunner, activities_of, until_status


def new_id() -> str:
    return f"within-{uuid4().hex}"


async def ways(client: Client, task_id: str) -> list[str]:
    """List how the agent was described, in the order of the task's history."""
    found: list[str] = []
    async for event in client.get_workflow_handle(task_id).fetch_history_events():
        marker = event.marker_recorded_event_attributes
        if marker.marker_name == "core_local_activity":
            found.append("failed" if marker.HasField("failure") else "within")
        if event.activity_task_scheduled_event_attributes.activity_type.name == "describe":
            found.append("by itself")
    return found


async def test_an_agent_is_described_within_the_workflow_task(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    runner = await make_runner(look)
    task_id = new_id()
    model.call("look")
    model.reply("done")
    assert str(await runner.chat("q", task_id=task_id, session="alice")) == "done"
    assert await ways(runner.client, task_id) == ["within"]
    assert await activities_of(runner.client, task_id) == ["step", "step", "close"]
    assert len(await runner.session("alice").chat_history()) == 4
    assert await runner.verify(task_id) == []


async def test_the_first_step_does_not_ask_for_what_its_process_has_found_out(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    query = Client.get_workflow_handle

    def noted(client: Client, *args: Any, **options: Any) -> Any:
        if activity.in_activity():
            asked.append(activity.info().activity_type)
        return query(client, *args, **options)

    monkeypatch.setattr(Client, "get_workflow_handle", noted)
    runner = await make_runner()
    model.reply("done")
    await runner.chat("q")
    assert set(asked) == {"close"}


async def test_code_of_users_runs_outside_of_workflow_tasks(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    made: list[bool] = []

    class Beginning(FunctionCallingAgentWorker):
        def initialize_step(self, task: Task) -> TaskStep:
            made.append(activity.info().is_local)
            return super().initialize_step(task)

    runner = await make_runner(worker=Beginning())
    task_id = new_id()
    model.reply("done")
    await runner.chat("q", task_id=task_id)
    assert await ways(runner.client, task_id) == ["failed", "by itself"]
    assert made == [False]


async def test_what_takes_too_long_within_a_workflow_task_is_done_by_itself(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, began = source.commits_now, list[bool]()

    async def commits_now(head: TaskHead) -> ChainRef:
        began.append(activity.info().is_local)
        if began == [True]:
            await asyncio.Event().wait()  # until it is cancelled
        return await read(head)

    monkeypatch.setattr(step, "commits_now", commits_now)
    runner = await make_runner()
    task_id = new_id()
    model.reply("done")
    assert str(await runner.chat("q", task_id=task_id)) == "done"
    assert began == [True, False]
    assert await ways(runner.client, task_id) == ["failed", "by itself"]
    assert await runner.verify(task_id) == []


async def test_what_fails_for_good_within_a_workflow_task_is_not_repeated_at_once(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, tried = source.commits_now, list[bool]()

    async def commits_now(head: TaskHead) -> ChainRef:
        tried.append(activity.info().is_local)
        if len(tried) == 1:
            msg = "the session is odd"
            raise ValueError(msg)
        return await read(head)

    monkeypatch.setattr(step, "commits_now", commits_now)
    runner = await make_runner()
    model.reply("done")
    task = await runner.create_task("q")
    found = await until_status(runner, task, "needs_attention")
    assert ("the session is odd" in found.error, tried) == (True, [True])
    assert (await runner.run_task(task)).output == "done"


async def test_what_time_heals_is_repeated_by_the_activity(
    make_runner: MakeRunner,
    model: FakeOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read, tried = source.commits_now, list[bool]()

    async def commits_now(head: TaskHead) -> ChainRef:
        tried.append(activity.info().is_local)
        if len(tried) <= 2:
            msg = "the archive is busy"
            raise ArchiveError(msg)
        return await read(head)

    monkeypatch.setattr(step, "commits_now", commits_now)
    runner = await make_runner()
    model.reply("done")
    assert str(await runner.chat("q")) == "done"
    assert tried == [True, False, False]
    told = [each for each in caplog.records if "the archive is busy" in each.getMessage()]
    assert len(told) == 1  # not of the one that the task repeats at once
