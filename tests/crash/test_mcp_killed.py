"""A worker process is killed in a call at an MCP server: what may be repeated is, once more."""

from __future__ import annotations

import asyncio

import pytest

from tests.crash.lab import Lab
from tests.support.tool_servers import Place


@pytest.fixture
def place(lab: Lab) -> Place:
    """Give the server of the lab's workers its directory."""
    (lab.home / "mcp").mkdir()
    return Place(lab.home / "mcp")


@pytest.mark.exhaustive
@pytest.mark.parametrize("tool", ["look", "put"])
async def test_killed_in_a_call_that_may_be_repeated(lab: Lab, place: Place, tool: str) -> None:
    place.set("hold")
    worker = await lab.serve(agent="mcp")
    task = await lab.create(f"{tool}:a book:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until(lambda: place.calls == {f"{tool}:a": 1}, "the call")
    await lab.kill(worker)
    place.unset("hold")
    lab.start(agent="mcp")
    said = {"look": "saw a", "put": "put a"}[tool]
    assert (await running).output == f"final {said} booked b"
    assert place.calls == {f"{tool}:a": 2, "book:b": 1}
    assert lab.asked == [0, 1, 2]


async def test_killed_in_a_call_that_may_have_had_an_effect(lab: Lab, place: Place) -> None:
    place.set("hold")
    worker = await lab.serve(agent="mcp")
    task = await lab.create("book:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until(lambda: place.calls == {"book:a": 1}, "the call")
    await lab.kill(worker)
    place.unset("hold")
    lab.start(agent="mcp")
    assert (await running).status == "waiting"
    [approval] = await lab.runner.pending_approvals(task)
    assert (approval.kind, approval.tool) == ("unknown", "book")
    assert place.calls == {"book:a": 1}
    await lab.runner.respond(approval, by="ann", result="booked a, says the hotel")
    assert (await lab.runner.run_task(task)).output == "final booked a, says the hotel"
    assert place.calls == {"book:a": 1}


@pytest.mark.exhaustive
async def test_a_question_is_answered_while_no_worker_is_up(lab: Lab, place: Place) -> None:
    worker = await lab.serve(agent="mcp")
    task = await lab.create("stay:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    assert (await running).status == "waiting"
    [approval] = await lab.runner.pending_approvals(task)
    await lab.kill(worker)
    await lab.runner.respond(approval, by="ann", result=3)
    lab.start(agent="mcp")
    output = await lab.runner.run_task(task)
    assert output.output == "final 3 nights in a"
    assert place.calls == {"stay:a:3": 1}
