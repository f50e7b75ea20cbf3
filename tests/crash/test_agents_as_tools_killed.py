"""A worker process is killed while a call of an agent as a tool is in progress."""

from __future__ import annotations

import asyncio

from tests.crash.lab import Lab, Labs

POINTS = (("schedule:nest", 1), ("end:nest", 1), ("begin:describe", 2), ("end:step", 3))


async def test_killed_while_the_child_waits_for_its_model(lab: Lab) -> None:
    lab.hold_model(1)
    worker = await lab.serve(agent="nested")
    task = await lab.create("helper:look-a+charge-b", step_mode="automatic")
    await lab.until(lambda: lab.asked == [0, 0, 1], "the child's second question")
    await lab.kill(worker)
    lab.start(agent="nested")
    await lab.until_status(task, "answered")
    await ends_right(lab, task.task_id)
    assert lab.asked == [0, 0, 1, 1, 2, 1]


async def test_killed_where_parent_and_child_meet(labs: Labs) -> None:
    async def run(point: tuple[str, int]) -> None:
        async with labs.named(point[0]) as lab:
            worker = lab.start(agent="nested", die=(point,))
            task = await lab.create("helper:look-a+charge-b", step_mode="automatic")
            await lab.until_dead(worker)
            lab.start(agent="nested")
            await lab.until_status(task, "answered")
            await ends_right(lab, task.task_id)

    await asyncio.gather(*map(run, POINTS))


async def ends_right(lab: Lab, task_id: str) -> None:
    """Check that the answer is right and nothing was done twice."""
    output = await lab.runner.get_task_output(task_id)
    assert str(output) == "final final look(a) charge(b)"
    assert lab.starts == lab.ends == {"a": 1, "b": 1}
    [child] = await lab.runner.list_tasks(parent=task_id)
    assert child.status == "answered"
    assert await lab.scheduled(task_id, "nest") == 1
    assert await lab.scheduled(task_id, "tool") == 1
    assert (await lab.runner.get_task(task_id)).usage.requests == 5
