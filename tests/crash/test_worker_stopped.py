"""A worker process that stops for a while, is replaced, and goes on as if nothing had happened.

So does a laptop that was suspended, or a virtual machine that was moved. What it was about to do
has been done by another meanwhile.
"""

import os
import signal
from typing import Any

import psutil

from tests.crash.lab import Lab
from tests.support.people import ask
from tests.support.rig import until

ACTING: dict[str, Any] = {"workflows": [], "max_concurrent_activities": 1}
"""Options of a worker that runs one activity at a time and polls for nothing else: while it is
stopped, the server hands nothing else to it."""

THINKING: dict[str, Any] = {"no_remote_activities": True}
"""Options of a worker that is not stopped and decides."""


async def test_a_tool_is_not_run_by_a_worker_that_was_stopped_before_it(lab: Lab) -> None:
    lab.hold("begin.tool")
    await lab.serve(options=THINKING)
    process = await lab.serve(options=ACTING, mute=True)  # it never hears that it was given up
    assert process.pid is not None
    task = await lab.create("charge:a", step_mode="automatic")
    await lab.until_event("held", kind="tool")
    seen = psutil.Process(process.pid)

    os.kill(process.pid, signal.SIGSTOP)
    # One of its threads takes the signal and stops the others: until it is scheduled, they go on.
    await until(lambda: seen.status() == psutil.STATUS_STOPPED)
    lab.let_go("begin.tool")
    await lab.serve(options=ACTING)
    asked = await ask(lab.runner, task)
    assert asked.kind == "unknown", lab.story()
    await lab.runner.approve(asked, by="ann")
    await lab.until_event("start", thing="a")
    os.kill(process.pid, signal.SIGCONT)
    await lab.until_event("left", kind="tool", pid=process.pid)
    await lab.until_status(task, "answered")
    assert lab.starts == {"a": 1}, lab.story()
