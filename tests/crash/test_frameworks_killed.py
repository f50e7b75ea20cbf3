"""Parts of four other frameworks in one task, with an approval: its worker process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Task
from holdfast.testing import FakeRequest, calls
from tests.crash import frameworks
from tests.crash.lab import Lab, answers

SCRIPT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rules", {"input": "spending"}),
    ("writer", {"input": "a letter, please"}),
    ("pay", {"amount": 42}),
    ("translator", {"input": "the letter"}),
)
ANSWER = "final spending: at most 100 a letter paid 42 translated"


@pytest.fixture
async def task(lab: Lab) -> Task:
    """Create a task that calls each part in turn, and then answers with all results."""

    def at(turn: int) -> Callable[[FakeRequest], bool]:
        return lambda request: lab.is_mine(request) and len(answers(request)) == turn

    for turn, call in enumerate(SCRIPT):
        lab.api.when(at(turn), calls([call]))
    return await lab.create("", task_id=f"frameworks-{lab.job.app}")


@pytest.mark.exhaustive
async def test_killed_before_and_in_the_approved_call_nothing_is_done_twice(
    lab: Lab, task: Task
) -> None:
    lab.hold("pay")
    worker = lab.start(make=frameworks.make_agent)
    assert (await lab.runner.run_task(task)).status == "waiting"
    [approval] = await lab.runner.pending_approvals(task)
    assert (approval.tool, approval.arguments) == ("pay", '{"amount": 42}')
    await lab.kill(worker)
    await lab.runner.approve(approval, by="ann")  # no worker is up
    worker = lab.start(make=frameworks.make_agent)
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="pay")
    await lab.kill(worker)
    lab.let_go("pay")
    lab.start(make=frameworks.make_agent)
    assert (await running).status == "waiting"
    [unknown] = await lab.runner.pending_approvals(task)
    assert (unknown.kind, unknown.tool) == ("unknown", "pay")
    await lab.runner.respond(unknown, by="ann", result="paid 42")
    assert (await lab.runner.run_task(task)).output == ANSWER
    assert lab.starts == {"rules": 1, "writer": 1, "pay": 1, "translator": 1}
    assert lab.asked == [0, 1, 2, 3, 4]
