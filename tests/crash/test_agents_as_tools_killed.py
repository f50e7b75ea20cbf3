"""A worker process is killed while a call of an agent as a tool is in progress."""

from __future__ import annotations

import asyncio

from tests.crash.lab import Lab, Labs

POINTS = (("schedule:nest", 1), ("end:nest", 1), ("begin:step", 2), ("end:step", 3))


async def test_killed_while_the_child_waits_for_its_model(lab: Lab) -> None:
    lab.hold_model(1)
    worker = await lab.serve(agent="nested")
    task = await lab.create("helper:look-a+charge-b", step_mode="automatic")
    await lab.until(lambda: lab.asked == [0, 0, 1], "the child's second question")
    await lab.until_steps_kept(f"{task.task_id}~0.1.0.0", 1)
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


async def test_killed_inside_a_guardrail_of_the_call(lab: Lab) -> None:
    lab.hold("before")
    worker = await lab.serve(agent="guarded-nested")
    task = await lab.create("helper:look-a+charge-b", step_mode="automatic")
    await lab.until_event("guard", name="before")
    await lab.kill(worker)
    assert lab.asked == [0]  # the child has not begun
    lab.let_go("before")
    lab.start(agent="guarded-nested")
    await lab.until_status(task, "answered")
    await ends_right(lab, task.task_id)
    assert told(lab) == ["before", "before", "start helper", "after", "end helper"]


async def test_guardrails_and_hooks_of_a_call_are_told_again_only_when_their_end_was_not_recorded(
    labs: Labs,
) -> None:
    begin, end = ["before", "start helper"], ["after", "end helper"]
    expected = {
        ("begin:nest", 1): [*begin, *end],
        ("end:nest", 1): [*begin, *begin, *end],
        ("begin:step", 2): [*begin, *end],
        ("begin:tool", 2): [*begin, *end],
        ("end:tool", 2): [*begin, *end, *end],
    }

    async def run(point: tuple[str, int]) -> None:
        async with labs.named(point[0]) as lab:
            worker = lab.start(agent="guarded-nested", die=(point,))
            task = await lab.create("helper:look-a+charge-b", step_mode="automatic")
            await lab.until_dead(worker)
            lab.start(agent="guarded-nested")
            await lab.until_status(task, "answered")
            await ends_right(lab, task.task_id)
            assert told(lab) == expected[point]
            [call] = (await lab.runner.get_completed_steps(task))[0].sources
            assert call.status == "done"

    await asyncio.gather(*map(run, expected))


def told(lab: Lab) -> list[str]:
    """List what guardrails were asked and hooks told, oldest first."""
    found = [*lab.events("guard"), *lab.events("hook")]
    return [each["name"] for each in sorted(found, key=lambda each: float(each["at"]))]


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
