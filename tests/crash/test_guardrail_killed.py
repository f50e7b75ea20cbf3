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


@pytest.mark.parametrize("name", sorted(FOUND))
async def test_killed_inside_a_guardrail(lab: Lab, name: str) -> None:
    lab.hold(name)
    worker = await lab.serve(agent="guarded")
    task = await lab.create("charge:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("guard", name=name)
    if name == "parallel":
        await lab.until_recorded(task, "step", 1)
        assert lab.starts == {}  # the tools of the first turn wait
    if name == "blocking":
        assert lab.asked == []
    await lab.kill(worker)
    lab.let_go(name)
    lab.start(agent="guarded")
    assert (await running).output == "final charge(a)"
    assert lab.asked == [0, 1]
    assert lab.starts == lab.ends == {"a": 1}
    assert await recorded(lab, task.task_id) == sorted(FOUND)
    assert await lab.scheduled(task, "guard") == len(FOUND)
    runs = {each: len(lab.events("guard", name=each)) for each in FOUND}
    assert runs == {**dict.fromkeys(FOUND, 1), name: 2}


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
