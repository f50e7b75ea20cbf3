"""A task that is closed in the workflow task that ends it, without an activity of its own."""

import time
from typing import Any

import pytest

from holdfast import AgentRunner, Task
from holdfast.activities import heartbeat
from holdfast.activities.heartbeat import Clocks
from holdfast.archive.archive import Archive
from holdfast.errors import ArchiveError
from tests.support.rig import Rig, activities_of, finish_a_task, histories, run_a_task


@pytest.fixture(autouse=True)
def known_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know how the server's clock differs, as a worker process does after its first activity."""
    clocks = Clocks()
    clocks.delay(time.time(), time.time())
    monkeypatch.setattr(heartbeat, "_clocks", clocks)


async def answered(rig: Rig) -> tuple[AgentRunner, Task]:
    """Run a task up to its answer; it is not finalized yet."""
    runner = await rig.make()
    rig.model.reply("done")
    return runner, await run_a_task(runner, "Go.")


async def markers_of(runner: Any, task_id: str) -> int:
    """Count the local activities that a task has run."""
    runs = await histories(runner.client, task_id)
    events = [event for run in runs for event in run.events]
    return sum(event.HasField("marker_recorded_event_attributes") for event in events)


async def test_a_task_that_ends_takes_no_activity_to_close(rig: Rig) -> None:
    runner, task = await answered(rig)
    assert str(await runner.finalize_response(task)) == "done"
    assert await activities_of(runner.client, task.task_id) == ["describe", "step"]
    assert await markers_of(runner, task.task_id) == 1
    assert (await runner.get_task(task.task_id)).status == "finished"
    assert await runner.verify(task) == []


async def test_a_turn_for_a_session_is_chosen_by_an_activity(rig: Rig) -> None:
    runner = await rig.make()
    rig.model.reply("done")
    task = await finish_a_task(runner, "Go.", session="alice")
    assert (await activities_of(runner.client, task.task_id))[-1] == "close"
    assert await markers_of(runner, task.task_id) == 0
    assert len(await runner.session("alice").chat_history()) == 2


async def test_an_archive_that_fails_is_met_again_by_an_activity(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, task = await answered(rig)
    write = Archive.put_record
    failed: list[str] = []

    def fail_once(self: Archive, name: str, data: Any, *, forced: bool = True) -> None:
        if not failed:
            failed.append(name)
            msg = "the disk is full"
            raise ArchiveError(msg)
        write(self, name, data, forced=forced)

    monkeypatch.setattr(Archive, "put_record", fail_once)
    assert str(await runner.finalize_response(task)) == "done"
    assert failed == [f"tasks/{task.task_id}.json"]
    assert await activities_of(runner.client, task.task_id) == ["describe", "step", "close"]
    assert await runner.verify(task) == []
