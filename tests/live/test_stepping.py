"""Running steps: order, inputs, failures, requests sent twice and at once."""

import asyncio
from typing import Any

import pytest

from holdfast import TaskStep, TaskStepOutput
from holdfast.errors import (
    InvalidArgumentError,
    NoUpcomingStepsError,
    StalledTaskError,
    StepFailedError,
    StepNotFoundError,
)
from holdfast.workers import StepContext
from tests.support.rig import Rig, step_a_task
from tests.support.workers import Counting, Doing, Forking, ends


async def test_a_step_without_successor_stalls_a_run_with_a_typed_error(rig: Rig) -> None:
    runner = await rig.make(worker=Forking({}))
    task = await runner.create_task("q")
    for _ in range(2):
        with pytest.raises(StalledTaskError, match="is_last"):
            await runner.run_task(task)
    with pytest.raises(StalledTaskError):
        await runner.chat("q")
    assert (await runner.get_task(task)).status == "needs_attention"


async def test_a_task_whose_first_step_was_dropped_takes_another_input(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1))
    task = await runner.create_task("q")
    await runner.drop_step(task, "s1", by="ann")
    with pytest.raises(NoUpcomingStepsError, match="its first step was dropped"):
        await runner.run_step(task)
    with pytest.raises(StalledTaskError, match="Give it another input"):
        await runner.run_task(task)
    assert (await runner.run_step(task, input="r")).task_step.input == "r"
    assert (await runner.finalize_response(task)).task_id == task.task_id
    await rig.assert_replays()


async def test_a_request_for_a_step_that_cannot_run_is_refused(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1))
    task = await runner.create_task("q")
    [step] = await runner.get_upcoming_steps(task)
    wrong: Any = 7
    with pytest.raises(ValueError, match="Cannot specify both `step` and `input`"):
        await runner.run_step(task, input="x", step=step)
    with pytest.raises(InvalidArgumentError, match="step must be TaskStep"):
        await runner.run_step(task, step=wrong)
    with pytest.raises(StepNotFoundError, match=r"'?nope'?"):
        await runner.run_step(task, step="nope")
    with pytest.raises(InvalidArgumentError, match="restart"):
        await runner.run_step(task, restart="step")
    assert (await runner.run_step(task)).output["count"] == 1
    with pytest.raises(NoUpcomingStepsError, match="no upcoming steps") as caught:
        await runner.run_step(task)
    assert isinstance(caught.value, IndexError)


async def test_a_queued_step_is_run_before_others_once_and_the_rest_in_their_order(
    rig: Rig,
) -> None:
    runner = await rig.make(worker=Forking({"start": ["a", "b", "c"], "a": ["d"]}))
    task = await step_a_task(runner)
    results = await asyncio.gather(
        *(runner.run_step(task, step="c") for _ in range(3)), return_exceptions=True
    )
    ran = [each.output for each in results if isinstance(each, TaskStepOutput)]
    refused = [each for each in results if isinstance(each, StepNotFoundError)]
    assert (ran, len(refused)) == (["c"], 2)
    assert [(await runner.run_step(task)).output for _ in range(3)] == ["a", "b", "d"]


async def test_a_step_that_fails_stays_first_with_its_error_and_can_be_run_again(rig: Rig) -> None:
    tried = 0

    async def body(step: TaskStep, ctx: StepContext) -> Any:
        nonlocal tried
        tried += 1
        match tried:
            case 1:
                raise KeyError("a bug in the worker")
            case 2:
                return "not an output"
            case 3:
                return ends(step, object())
            case _:
                return ends(step, "mended")

    runner = await rig.make(worker=Doing(body))
    task = await runner.create_task("q")
    [upcoming] = await runner.get_upcoming_steps(task)
    with pytest.raises(StepFailedError, match="a bug in the worker") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "KeyError"
    found = await runner.get_task(task)
    assert found.status == "needs_attention"
    assert "a bug in the worker" in found.error
    assert await runner.get_upcoming_steps(task) == [upcoming]
    with pytest.raises(StepFailedError, match=r"Doing.run_step returned str"):
        await runner.run_step(task)
    with pytest.raises(StepFailedError, match="cannot be stored as JSON"):
        await runner.run_step(task)
    assert (await runner.run_step(task, step=upcoming)).output == "mended"
    assert (await runner.get_task(task)).error == ""
