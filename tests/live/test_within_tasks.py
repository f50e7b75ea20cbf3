"""Activities that run within a workflow task: describing an agent and closing a task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client

from holdfast import Task, tool
from holdfast.activities import task_end
from holdfast.archive import segments
from holdfast.errors import ArchiveError
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Message
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.rig import MakeRunner, activities_of


def new_id() -> str:
    return f"within-{uuid4().hex}"


async def ways(client: Client, task_id: str) -> list[tuple[str, str]]:
    """List how the task was described and closed, in the order of its history."""
    found: list[tuple[str, str]] = []
    async for event in client.get_workflow_handle(task_id).fetch_history_events():
        marker = event.marker_recorded_event_attributes
        if marker.marker_name == "core_local_activity":
            data = marker.details["data"].payloads[0].data.decode()
            kind = next(each for each in ("describe", "close") if f'"{each}"' in data)
            found.append((kind, "failed" if marker.HasField("failure") else "within"))
        kind = event.activity_task_scheduled_event_attributes.activity_type.name
        if kind in ("describe", "close"):
            found.append((kind, "by itself"))
    return found


async def test_a_task_is_described_and_closed_within_its_workflow_tasks(
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
    assert await ways(runner.client, task_id) == [("describe", "within"), ("close", "within")]
    assert await activities_of(runner.client, task_id) == ["step", "step"]
    assert len(await runner.session("alice").chat_history()) == 4
    assert await runner.verify(task_id) == []


async def test_no_process_asks_for_what_it_was_sent(
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
    assert asked == []


class Choosing(FunctionCallingAgentWorker):
    """Chooses what the session keeps, and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.began = 0

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        self.began += 1
        return list(transcript)[:1]


async def test_code_of_users_runs_outside_of_workflow_tasks(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    worker = Choosing()
    runner = await make_runner(worker=worker)
    task_id = new_id()
    model.reply("done")
    await runner.chat("q", task_id=task_id, session="alice")
    assert await ways(runner.client, task_id) == [
        ("describe", "within"),
        ("close", "failed"),
        ("close", "by itself"),
    ]
    assert worker.began == 1
    assert [each.role for each in await runner.session("alice").chat_history()] == ["user"]


async def test_what_takes_too_long_within_a_workflow_task_is_done_by_itself(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, began = segments.write_record, list[bool]()

    async def write_record(*args: Any) -> Any:
        began.append(activity.info().is_local)
        if began == [True]:
            await asyncio.Event().wait()  # until it is cancelled
        return await write(*args)

    monkeypatch.setattr(task_end, "write_record", write_record)
    runner = await make_runner()
    task_id = new_id()
    model.reply("done")
    assert str(await runner.chat("q", task_id=task_id)) == "done"
    assert began == [True, False]
    assert await ways(runner.client, task_id) == [
        ("describe", "within"),
        ("close", "failed"),
        ("close", "by itself"),
    ]
    assert await runner.verify(task_id) == []


async def test_what_fails_for_good_within_a_workflow_task_is_not_repeated_at_once(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, tried = segments.write_record, list[bool]()

    async def write_record(*args: Any) -> Any:
        tried.append(activity.info().is_local)
        if len(tried) == 1:
            msg = "the disk is full"
            raise ValueError(msg)
        return await write(*args)

    monkeypatch.setattr(task_end, "write_record", write_record)
    runner = await make_runner()
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    with pytest.raises(Exception, match="the disk is full"):
        await runner.finalize_response(task)
    assert tried == [True]
    assert str(await runner.finalize_response(task)) == "done"


async def test_what_time_heals_is_repeated_by_the_activity(
    make_runner: MakeRunner,
    model: FakeOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write, tried = segments.write_record, list[bool]()

    async def write_record(*args: Any) -> Any:
        tried.append(activity.info().is_local)
        if len(tried) <= 2:
            msg = "the disk is busy"
            raise ArchiveError(msg)
        return await write(*args)

    monkeypatch.setattr(task_end, "write_record", write_record)
    runner = await make_runner()
    model.reply("done")
    assert str(await runner.chat("q")) == "done"
    assert tried == [True, False, False]
    told = [each for each in caplog.records if "the disk is busy" in each.getMessage()]
    assert len(told) == 1  # not of the one that the task repeats at once
