"""A worker process that is killed in the middle of a shell call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.testing import FakeRequest, hosted, reply
from tests.crash.lab import Lab

CALL = hosted(
    "shell_call", id="sh_1", call_id="c1", status="completed", action={"commands": ["rm x"]}
)


def results(request: FakeRequest) -> list[dict[str, Any]]:
    """Return the results of shell calls that a request carries."""
    return [each for each in request.body["input"] if each.get("type") == "shell_call_output"]


@pytest.mark.exhaustive
async def test_killed_inside_a_shell_call_a_person_decides_whether_it_has_happened(
    lab: Lab,
) -> None:
    lab.api.when(lambda r: lab.is_mine(r) and not results(r), reply("", items=[CALL]))
    lab.api.when(lambda r: lab.is_mine(r) and bool(results(r)), "told")
    lab.hold("shell")
    worker = await lab.serve(agent="shell")
    task = await lab.create("anything")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="rm x")
    await lab.kill(worker)
    lab.let_go("shell")
    lab.start(agent="shell")
    output = await running
    assert output.status == "waiting"
    [waiting] = await lab.runner.pending_approvals(task)
    assert (waiting.kind, waiting.tool) == ("unknown", "shell")
    assert lab.starts == {"rm x": 1}
    assert not lab.ends
    await lab.runner.respond(waiting, by="anna", result="it is gone")
    assert str(await lab.runner.run_task(task)) == "told"
    [told] = results(lab.requests[-1])
    assert told["output"][0]["stdout"] == "it is gone"
    assert lab.starts == {"rm x": 1}
    assert await lab.runner.verify(task) == []
