"""Workers that stop in time, whatever their tasks and tools do."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, sync, tool
from holdfast.activities import user_loop
from holdfast.serving import embedded as local
from holdfast.serving import worker_host as hosting
from holdfast.testing import FakeOpenAI
from holdfast.workflows.agent_task import AgentTask
from tests.support import patience
from tests.support.rig import until_failing
from tests.support.serving import running

MOST_SECONDS = 60

# Coroutines of a workflow that is left behind are collected in a thread that is not theirs.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def door() -> Iterator[threading.Event]:
    """Hold up code until the test is over; then what was left behind comes to its end."""
    made = threading.Event()
    before = threading.enumerate()  # an engine of the whole process goes on
    yield made
    made.set()
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-worker") and thread not in before:
            thread.join(MOST_SECONDS)
    gc.collect()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "EXTRA_SECONDS", 3.0)
    monkeypatch.setattr(hosting, "CLOSE_SECONDS", 2.0)
    monkeypatch.setattr(user_loop, "STOP_SECONDS", 1.0)
    monkeypatch.setattr(patience, "DEADLOCK_SECONDS", 2)
    monkeypatch.setattr(local, "GRACE", timedelta(seconds=1))


async def test_a_runner_closes_although_the_workflow_task_of_a_task_does_not_end(
    door: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reached = threading.Event()

    def block(_task: Any) -> bool:
        reached.set()
        return door.wait()

    runner = await AgentRunner.local(Agent(name="a", model="offline"), data_dir=None).start()
    monkeypatch.setattr(AgentTask, "_next", block)
    task = await runner.create_task("1 + 1")

    await until_failing(runner.client, task.task_id)
    async with asyncio.timeout(MOST_SECONDS):
        await runner.close()
    told = next(text for text in caplog.messages if "is left behind" in text)
    assert task.task_id in told


@pytest.mark.usefixtures("api")
async def test_a_runner_closes_although_a_tool_does_not_end(
    door: threading.Event, model: FakeOpenAI
) -> None:
    reached = threading.Event()

    @tool(effect="read")
    def hold() -> str:
        """Hold on."""
        reached.set()
        door.wait()
        return "done"

    agent = Agent(name="a", model="gpt-5-mini", tools=[hold])
    runner = await asyncio.to_thread(sync.AgentRunner.local(agent, data_dir=None).start)
    model.call("hold")
    await asyncio.to_thread(runner.create_task, "q", step_mode="automatic")
    await asyncio.to_thread(reached.wait)
    async with asyncio.timeout(MOST_SECONDS):
        await asyncio.to_thread(runner.close)


async def test_a_worker_process_heeds_sigterm_although_a_task_is_stuck(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    arguments = ("worker", "tests.support.bricked:agent", "--data-dir", data)
    with running(*arguments, home=tmp_path / "w") as worker:
        worker.wait_for("serving")
        runner = await AgentRunner.connect(agent="bricked", data_dir=data)
        task = await runner.create_task("1 + 1")
        worker.wait_for("deadlock")
        worker.process.terminate()
        worker.wait_for("is left behind")
        assert task.task_id in worker.text
        worker.process.wait(MOST_SECONDS)
