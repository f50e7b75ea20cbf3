"""Records that were prepared for an end of a task: they count only with the end in its history."""

import asyncio
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Runner, RunResult
from holdfast.archive.archive import Archive
from holdfast.cli.commands.open_questions import find_task
from holdfast.cli.commands.task_view import read_task
from holdfast.client.agent_runner.task_client.task_client import TaskEnds
from holdfast.errors import TaskExistsError
from holdfast.reading.audit.verification import IN_RUN, OPEN
from holdfast.reading.runs.recorded import read_recorded
from holdfast.reading.step_events import ChatEnd
from holdfast.reading.streams.follower import Follower
from holdfast.testing import FakeOpenAI, hang
from tests.support.cli import engine_of
from tests.support.rig import Rig, activities_of, event_types, forget, read_record


class Writes:
    """The records that tasks write; each waits once it is written, until the test lets it go on.

    Attributes:
        names: Names of the records, in the order in which they were written.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch the archives of this process."""
        self.names: list[str] = []
        self._held = True
        self._written, self._goes_on = asyncio.Event(), asyncio.Event()
        write = Archive.aput_record

        async def held(archive: Archive, name: str, data: Any) -> None:
            await write(archive, name, data)
            self.names.append(name)
            if self._held:
                self._held = False
                self._written.set()
                await self._goes_on.wait()

        monkeypatch.setattr(Archive, "aput_record", held)

    async def first(self) -> None:
        """Wait until the first record is written; its workflow task is not completed."""
        await self._written.wait()

    def go_on(self) -> None:
        """Let the writer of the first record go on."""
        self._goes_on.set()


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


async def say(runner: AgentRunner, task_id: str, text: str) -> None:
    """Send a further input, without asking the task, which is busy, for a receipt."""
    body = {"id": f"say {text}", "by": "ann", "text": text, "when": "queued"}
    await runner.client.get_workflow_handle(task_id).signal("feedback", body)


async def thrown_away(
    runner: AgentRunner, agent: Agent, model: FakeOpenAI, writes: Writes, task_id: str
) -> asyncio.Task[RunResult]:
    """Run a task whose end comes to nothing: it has heard of a further input meanwhile.

    Returns:
        The run, whose task waits for a model, with the record of that end in the archive.
    """
    model.add("early", hang("late"))
    running = asyncio.create_task(Runner.run(agent, "Go.", runner=runner, task_id=task_id))
    await writes.first()
    await say(runner, task_id, "And then?")
    record = await read_record(runner.archive, task_id)
    assert record is not None
    assert (record.prepared, record.output) == (True, "early")
    # The workflow task is in progress, and the task answers no question.
    assert await runner.reader.records.read(task_id) is None
    writes.go_on()
    await model.until_held()
    assert "WORKFLOW_TASK_FAILED" in await event_types(runner.client, task_id)
    assert await read_record(runner.archive, task_id) == record
    return running


async def test_while_a_task_goes_on_no_reader_takes_its_prepared_record_for_its_end(
    rig: Rig, writes: Writes
) -> None:
    agent = rig.agent()
    await rig.serve(agent)
    runner, task_id = rig.runner(), f"{rig.app}-prepared"
    running = await thrown_away(runner, agent, rig.model, writes, task_id)

    task = await runner.get_task(task_id)
    assert (task.status, task.steps) == ("running", 1)
    assert len(await runner.get_completed_steps(task_id)) == 1
    assert len(await runner.get_upcoming_steps(task_id)) == 1
    assert (await read_recorded(runner.reader, task_id)).task.status == "running"
    follower = Follower(runner.reader, runner.response, task_id)
    assert not any(isinstance(event, ChatEnd) for event in await follower.new())
    assert (follower.status, follower.ended) == ("running", False)
    assert await TaskEnds(runner.reader).ended(task_id) is None
    verified = await runner.verify(task_id)
    assert (verified, verified.proved[-1]) == ([], OPEN)
    console = engine_of(runner)
    assert await find_task(console, task_id[:-1]) == task_id
    assert (await read_task(console, task_id)).task.status == "running"
    assert task_id in [task.task_id for task in await runner.list_tasks("running")]
    assert task_id not in [task.task_id for task in await runner.list_tasks("finished")]
    with pytest.raises(TaskExistsError):
        await runner.create_task("Go.", task_id=task_id)

    rig.model.release()
    assert (await running).final_output == "late"
    first, kept, last = writes.names
    assert (first, kept.partition("/")[0]) == (last, "superseded")
    record = await read_record(runner.archive, task_id)
    assert record is not None
    assert record.output == "late"
    task = await runner.get_task(task_id)
    assert (task.status, task.steps) == ("finished", 2)
    verified = await runner.verify(task_id)
    assert (verified, IN_RUN in verified.proved) == ([], True)
    assert "close" not in await activities_of(runner.client, task_id)

    await forget(runner, task)  # the record counts without the history
    other = rig.runner()
    assert (await read_recorded(other.reader, task_id)).task.status == "finished"
    with pytest.raises(TaskExistsError):
        await other.create_task("Go.", task_id=task_id)
