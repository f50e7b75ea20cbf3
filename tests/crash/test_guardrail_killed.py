"""A worker is killed inside a guardrail: it is run again, and nothing else is."""

from __future__ import annotations

import asyncio

import pytest

from tests.crash.lab import Lab

FOUND = {"blocking", "parallel", "final"}


async def recorded(lab: Lab, task_id: str) -> list[str]:
    """List the guardrails that the ledger has a result of, in the order of their names."""
    entries = await lab.runner.ledger(task_id)
    events = [entry.event for entry in entries if entry.event is not None]
    return sorted(event.body["name"] for event in events if event.kind == "guardrail")


@pytest.mark.exhaustive
async def test_killed_when_a_parallel_guardrail_has_tripped(lab: Lab) -> None:
    worker = lab.start(agent="guarded", die=(("end:guard", 2),))
    task = await lab.runner.create_task(lab.say("charge:trip"))
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_dead(worker)
    lab.start(agent="guarded")
    with pytest.raises(Exception, match="'parallel' triggered"):
        await running
    assert lab.starts == {}
    assert lab.asked.count(0) == len(lab.asked) <= 2  # the call in flight may be asked again
    assert await recorded(lab, task.task_id) == ["blocking", "parallel"]
