"""Which step a caller gets: the first that it has not been given, also after it was killed."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from holdfast import AgentRunner, Runner, TaskStep, TaskStepOutput
from holdfast.errors import TaskExistsError
from holdfast.workers import StepContext
from tests.support.rig import Rig
from tests.support.workers import Counting, Doing, ends


class Held:
    """Steps that wait for a gate, and how often each began."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.inside = asyncio.Event()

    async def __call__(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        self.inside.set()
        await self.gate.wait()
        if ctx.n == 3:
            return ends(step, ctx.n)
        following = (step.get_next_step(),)
        return TaskStepOutput(task_step=step, output=ctx.n, next_steps=following)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def runner(rig: Rig, held: Held) -> AgentRunner:
    return await rig.make(worker=Doing(held))


async def test_an_output_that_nobody_has_acknowledged_is_given_to_the_next_caller(
    rig: Rig, runner: AgentRunner, held: Held
) -> None:
    held.gate.set()
    task = await runner.create_task("q")
    assert (await runner.run_step(task)).output == 1  # and is killed before it reads that
    other = rig.runner()
    assert (await other.run_step(task)).output == 1
    assert (await other.run_step(task)).output == 2
    assert (await runner.run_step(task)).output == 2  # the first one is alive after all
    assert (await runner.run_step(task)).output == 3
    assert (await other.run_step(task)).output == 3
    assert (await runner.get_task(task)).steps == 3


async def test_a_request_that_was_cancelled_is_asked_again_by_the_same_caller(
    runner: AgentRunner, held: Held
) -> None:
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await held.inside.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    held.gate.set()
    assert [(await runner.run_step(task)).output for _ in range(2)] == [1, 2]


async def test_the_same_lines_run_twice_make_one_task(rig: Rig) -> None:
    agent = rig.agent()
    await rig.serve(agent)
    rig.model.add("one", "two", "three")
    for _ in range(2):
        runner = rig.runner()
        task = await runner.create_task("q", task_id=f"{rig.app}-a", exist_ok=True)
        assert str(await runner.run_task(task)) == "one"
        assert str(await runner.chat("q", task_id=f"{rig.app}-b", exist_ok=True)) == "two"
        run = await Runner.run(agent, "q", task_id=f"{rig.app}-c", exist_ok=True, runner=runner)
        assert run.final_output == "three"
    assert len(rig.model.requests) == 3


async def test_another_input_under_the_same_id_is_an_error_that_shows_both(rig: Rig) -> None:
    agent = rig.agent(worker=Counting(1))
    await rig.serve(agent)
    runner, task_id = rig.runner(), f"{rig.app}-a"
    await runner.create_task("What is 6 * 7?", task_id=task_id)
    asked: dict[str, Any] = {"task_id": task_id, "exist_ok": True}
    ways: tuple[Awaitable[object], ...] = (
        runner.create_task("What is 6 * 8?", **asked),
        runner.chat("What is 6 * 8?", **asked),
        Runner.run(agent, "What is 6 * 8?", runner=runner, **asked),
    )
    for way in ways:
        with pytest.raises(TaskExistsError) as caught:
            await way
        assert "its input is 'What is 6 * 7?', and this one's 'What is 6 * 8?'" in str(caught.value)
    assert (await runner.get_task(task_id)).steps == 0
    with pytest.raises(TaskExistsError, match="its session is '', and this one's 'ann'"):
        await runner.create_task("What is 6 * 7?", task_id=task_id, session="ann", exist_ok=True)
    with pytest.raises(TaskExistsError, match="exists already and was left untouched"):
        await runner.create_task("q", task_id=task_id)


async def test_the_same_task_of_another_tenant_is_not_returned(rig: Rig) -> None:
    agent = rig.agent(worker=Counting(1))
    await rig.serve(agent)
    runner, task_id = rig.runner(), f"{rig.app}-a"
    asked: dict[str, Any] = {"task_id": task_id, "exist_ok": True}
    made = await runner.create_task("q", tenant="acme", **asked)
    assert (await runner.create_task("q", tenant="acme", **asked)).task_id == made.task_id
    ways: tuple[Awaitable[object], ...] = (
        runner.create_task("q", tenant="other", **asked),
        runner.create_task("q", **asked),
        runner.chat("q", **asked),
        Runner.run(agent, "q", runner=runner, **asked),
    )
    for way in ways:
        with pytest.raises(TaskExistsError, match=r"left untouched\. Choose"):
            await way
    assert (await runner.get_task(task_id)).steps == 0
