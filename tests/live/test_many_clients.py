"""Many clients of one task, and requests of absurd sizes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import tool
from holdfast.errors import InvalidArgumentError
from holdfast.testing import FakeOpenAI, call
from holdfast.workflows.requests.updates import MOST_WAITING
from tests.support.rig import MakeRunner, event_types, until
from tests.support.workers import Counting


async def test_clients_that_wait_for_a_task_keep_nobody_from_undoing_its_step(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    begun = asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look for a long time."""
        begun.set()
        await asyncio.sleep(60)
        return "seen"

    runner = await make_runner(look)
    model.when(lambda _: True, call("look"))  # a client that asks again has the step run anew
    task = await runner.create_task("q", step_mode="automatic")
    await begun.wait()
    waiting = [asyncio.create_task(runner.run_task(task)) for _ in range(14)]

    async def all_sent() -> bool:
        found = await event_types(runner.client, task.task_id)
        return found.count("WORKFLOW_EXECUTION_UPDATE_ACCEPTED") >= MOST_WAITING

    await until(all_sent)
    async with asyncio.timeout(100):
        receipt = await runner.undo_step(task)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert receipt.status != "waiting"
    await runner.abandon(task, reason="enough")


async def test_a_name_of_megabytes_is_refused_at_once(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    long: dict[str, Any] = {"step": "x" * 3_000_000}
    with pytest.raises(InvalidArgumentError, match="step may have at most 200 characters"):
        await runner.run_step(task, **long)
