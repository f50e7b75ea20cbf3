"""A worker process is killed; the next one goes on without repeating what was completed."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StepFailedError, TaskClosedError
from tests.crash.lab import Lab


async def test_killed_while_a_model_call_is_in_flight(lab: Lab) -> None:
    lab.hold_model(1)
    worker = await lab.serve()
    task = await lab.create("look:a look:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)
    lab.start()
    assert (await running).output == "final look(a) look(b)"
    # Only the call in flight was asked again.
    assert lab.asked == [0, 1, 1, 2]
    assert lab.starts == {"a": 1, "b": 1}
    assert await lab.scheduled(task, "step") == 3
    assert await lab.scheduled(task, "tool") == 2
