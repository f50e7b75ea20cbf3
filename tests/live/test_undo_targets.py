"""Undo and rewind name the steps that they are for; the task undoes no others in their place."""

from typing import Any

import pytest

from holdfast import AgentRunner, Task
from holdfast.client.agent_runner.task_client.task_client import TaskClient
from holdfast.errors import CommandRefusedError, StepNotFoundError
from tests.support.rig import Rig
from tests.support.workers import Counting


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    return await rig.make(worker=Counting(9))


async def counted(runner: AgentRunner, steps: int, **options: Any) -> Task:
    task = await runner.create_task("q", **options)
    for _ in range(steps):
        await runner.run_step(task)
    return task


async def counts(runner: AgentRunner, task: Task) -> list[tuple[int, int]]:
    """List branch and number of the steps that stand."""
    return [(o.branch, o.output["count"]) for o in await runner.get_completed_steps(task)]


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Have something happen after an undo was asked for, and before the task gets it."""
    real = TaskClient.undo

    async def undo(self: TaskClient, *args: Any) -> Any:
        monkeypatch.undo()
        await happens()
        return await real(self, *args)

    monkeypatch.setattr(TaskClient, "undo", undo)


async def test_a_rewind_to_a_step_that_was_undone_and_run_again_undoes_nothing(
    runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await counted(runner, 1)
    second = await runner.run_step(task)
    await runner.run_step(task)

    async def happens() -> None:
        await runner.rewind(task, to="s1", by="ben")
        for _ in range(3):
            await runner.run_step(task)

    meanwhile(monkeypatch, happens)
    with pytest.raises(StepNotFoundError, match=r"'s2', number 2 of branch 0, was undone"):
        await runner.rewind(task, to="s2", by="ann")
    with pytest.raises(StepNotFoundError, match="was undone meanwhile, and nothing was changed"):
        await runner.rewind(task, to=second)
    assert await counts(runner, task) == [(0, 1), (1, 2), (1, 3), (1, 4)]


async def test_an_undo_of_the_newest_step_does_not_take_back_a_newer_one(
    runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await counted(runner, 1)

    async def happens() -> None:
        await runner.run_step(task)

    meanwhile(monkeypatch, happens)
    with pytest.raises(CommandRefusedError, match=r"'s1'.*another step has begun.*'s2'"):
        await runner.undo_step(task)
    first = await runner.undo_step(task, request_id="u")
    await runner.run_step(task)
    assert await runner.undo_step(task, request_id="u") == first  # it was done
    assert await counts(runner, task) == [(0, 1), (1, 2)]
