"""The Temporal server is killed while a worker goes on, and started on its SQLite file."""

import asyncio

from tests.crash.lab import Lab
from tests.crash.programs import make_runner

PATIENT = 15.0
"""A heartbeat timeout longer than the server is away: else calls in flight count as lost."""


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
