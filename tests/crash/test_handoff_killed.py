"""A worker process is killed around a handoff; the task is handed over once, and goes on."""

from __future__ import annotations

import asyncio

import pytest

from tests.crash.lab import Lab

HANDED = '{"assistant": "helper"}'
DONE = f"final look(a) {HANDED} charge(c)"


def agents(lab: Lab) -> list[str]:
    """Return who was asked, call by call."""
    return [request.instructions for request in lab.requests]


@pytest.mark.parametrize("agent", ["team", "filtering-team"])
@pytest.mark.parametrize("point", ["schedule:step", "begin:step"])
async def test_killed_right_after_a_handoff(lab: Lab, agent: str, point: str) -> None:
    worker = lab.start(agent=agent, die=((point, 2),))  # the steps before share an activity
    task = await lab.create("look:a transfer_to_helper:b charge:c")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_dead(worker)
    assert agents(lab) == ["first", "first"]
    lab.start(agent=agent)
    assert (await running).output == DONE
    assert agents(lab) == ["first", "first", "helper", "helper"]
    assert lab.asked == [0, 1, 2, 3]
    assert lab.starts == lab.ends == {"a": 1, "c": 1}
    steps = await lab.runner.get_completed_steps(task)
    assert [step.task_step.agent for step in steps] == ["", "", "helper", "helper"]


async def test_killed_before_on_handoff_was_called(lab: Lab) -> None:
    worker = lab.start(agent="team", die=(("schedule:tool", 1),))
    task = await lab.create("look:a tell_helper:b charge:c")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_dead(worker)
    assert lab.starts == {"a": 1}
    lab.start(agent="team")
    assert (await running).output == DONE
    assert lab.starts == lab.ends == {"a": 1, "b": 1, "c": 1}
    assert agents(lab) == ["first", "first", "helper", "helper"]


@pytest.mark.parametrize("decision", ["it happened", "it did not happen", "give it up"])
async def test_killed_inside_on_handoff_asks_a_person(lab: Lab, decision: str) -> None:
    lab.hold("tell_helper")
    worker = await lab.serve(agent="team")
    task = await lab.create("look:a tell_helper:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="b")
    await lab.kill(worker)
    lab.let_go("tell_helper")
    lab.start(agent="team")
    output = await running
    assert output.status == "waiting"
    assert "tell_helper" in output.waiting_for[0]
    assert lab.starts == {"a": 1, "b": 1}
    [approval] = await lab.runner.pending_approvals(task)
    match decision:
        case "it happened":
            await lab.runner.respond(approval, by="kim", result=HANDED)
        case "it did not happen":
            await lab.runner.approve(approval, by="kim")
        case _:
            await lab.runner.reject(approval, by="kim", reason="leave it")
    done = await lab.runner.run_task(task)
    assert str(done.output).startswith("final look(a)")
    assert lab.starts["b"] == (2 if decision == "it did not happen" else 1)
    last = "first" if decision == "give it up" else "helper"
    assert agents(lab) == ["first", "first", last]
