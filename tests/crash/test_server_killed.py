"""The Temporal server is killed, perhaps with its worker, and started on its SQLite file."""

import asyncio

from holdfast import Task, TaskStepOutput
from holdfast.errors import ConnectError
from tests.crash.lab import Lab
from tests.crash.programs import make_runner

PATIENT = 15.0
"""A heartbeat timeout longer than the server is away: else calls in flight count as lost."""


async def run_over_a_restart(lab: Lab, task: Task) -> TaskStepOutput:
    """Run a task; ask again where the server was away for longer than a client waits."""
    while True:
        try:
            return await lab.runner.run_task(task)
        except ConnectError:
            continue


async def test_killed_while_a_tool_runs_that_must_not_be_repeated(own_lab: Lab) -> None:
    lab = own_lab
    lab.runner = await make_runner(lab.job, heartbeat=PATIENT)
    lab.hold("charge")
    lab.start()
    task = await lab.create("charge:a look:b")
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.until_event("start")
    await lab.kill_server()
    lab.let_go("charge")
    await lab.restart_server()
    assert (await running).status == "done"
    assert (await lab.runner.run_task(task)).output == "final charge(a) look(b)"
    assert lab.asked == [0, 1, 2]
    assert lab.starts == lab.ends == {"a": 1, "b": 1}


async def test_killed_together_with_the_worker(own_lab: Lab) -> None:
    lab = own_lab
    lab.hold_model(2)
    worker = await lab.serve()
    task = await lab.create("charge:a look:b look:c")
    running = asyncio.create_task(run_over_a_restart(lab, task))
    await lab.api.until_held()
    await lab.until_steps_kept(task, 2)
    await lab.kill_server()
    await lab.kill(worker)
    await lab.restart_server()
    lab.start()
    assert (await running).output == "final charge(a) look(b) look(c)"
    assert lab.asked == [0, 1, 2, 2, 3]
    assert lab.starts == lab.ends == {"a": 1, "b": 1, "c": 1}
