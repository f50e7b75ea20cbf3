"""Worker processes that end while a tool runs in them whose task has continued as new."""

from __future__ import annotations

import signal
import uuid
from functools import partial
from multiprocessing.process import BaseProcess

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from holdfast import AgentRunner, Task
from tests.crash.lab import Lab
from tests.crash.programs import make_runner
from tests.support.people import ask
from tests.support.rig import activities_of, histories, until

ROLL = 60


async def is_apart(runner: AgentRunner, task: Task) -> bool:
    """Whether the call has an activity of its own; a reading one goes over to it after a while."""
    return "tool" in await activities_of(runner.client, task.task_id)


async def rolled(lab: Lab, tool: str, **changes: object) -> tuple[AgentRunner, Task, BaseProcess]:
    """Begin a call of a tool, and wait until its task has continued as new with it."""
    lab.hold(tool)
    worker = await lab.serve(long=0.0, **changes)
    runner = await make_runner(lab.job, roll_events=ROLL)
    task = await runner.create_task(lab.say(f"{tool}:a"), step_mode="automatic")
    await lab.until_event("start")
    await until(partial(is_apart, runner, task))
    handle = runner.client.get_workflow_handle(task.task_id)

    async def has_rolled() -> bool:
        for _ in range(10):
            await handle.signal("drop_step", {"id": uuid.uuid4().hex, "step": "none"})
        return len(await histories(runner.client, task.task_id)) > 1

    await until(has_rolled)
    return runner, task, worker


async def until_joined(runner: AgentRunner, task: Task) -> None:
    """Wait until the process of the tool has found its place in the task's new run."""
    handle = runner.client.get_workflow_handle(task.task_id)

    async def is_joined() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        return any(
            each.activity_type.name == "rejoin"
            and each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            and each.HasField("last_heartbeat_time")
            for each in pending
        )

    await until(is_joined)


async def made_again(lab: Lab, runner: AgentRunner, task: Task) -> None:
    """Check that a repeatable call was made once more, under the same name."""
    assert (await runner.run_task(task)).output == "final look(a)"
    first, second = lab.events("start", thing="a")
    assert first["key"] == second["key"]
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert 0 < first["token"] < second["token"]


async def asked_about(lab: Lab, runner: AgentRunner, task: Task) -> None:
    """Check that a person is asked about a call that was not made again."""
    approval = await ask(runner, task)
    assert approval.kind == "unknown"
    assert lab.starts == {"a": 1}
    await runner.respond(approval, by="ann", result="it was charged")
    assert (await runner.run_task(task)).output == "final it was charged"
    assert lab.starts == {"a": 1}


@pytest.mark.parametrize(
    ("tool", "is_alone"),
    [("charge", True), pytest.param("look", False, marks=pytest.mark.exhaustive)],
)
async def test_killed_inside_a_call_over_a_rollover(lab: Lab, tool: str, *, is_alone: bool) -> None:
    runner, task, worker = await rolled(lab, tool)
    if not is_alone:
        await until_joined(runner, task)
        await lab.serve()
    await lab.kill(worker, signal.SIGKILL)
    lab.let_go(tool)
    if is_alone:
        await lab.serve()
    await (made_again if tool == "look" else asked_about)(lab, runner, task)


@pytest.mark.exhaustive
async def test_a_call_over_a_rollover_that_ends_within_the_grace_is_kept(lab: Lab) -> None:
    tool = "charge"
    runner, task, worker = await rolled(lab, tool, grace=20.0)
    await until_joined(runner, task)
    worker.terminate()
    lab.let_go(tool)
    await lab.until_dead(worker)
    assert lab.events("stopped", pid=worker.pid)
    await lab.serve()
    assert (await runner.run_task(task)).output == f"final {tool}(a)"
    assert lab.starts == lab.ends == {"a": 1}


@pytest.mark.exhaustive
@pytest.mark.parametrize("tool", ["look", "charge"])
async def test_a_call_over_a_rollover_that_outlasts_the_grace(lab: Lab, tool: str) -> None:
    runner, task, worker = await rolled(lab, tool, grace=0.2)
    await until_joined(runner, task)
    worker.terminate()
    await lab.until_dead(worker)
    assert lab.events("stopped", pid=worker.pid)
    lab.let_go(tool)
    await lab.serve()
    await (made_again if tool == "look" else asked_about)(lab, runner, task)
