"""The life of a task: created, listed, stepped, closed, deleted."""

import pytest

from holdfast import AgentRunner
from holdfast.errors import InvalidArgumentError, StepFailedError, TaskClosedError, TaskExistsError
from holdfast.task.data.head import TaskHead
from tests.support.rig import Rig, run_a_task, until
from tests.support.workers import Counting


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    return await rig.make(worker=Counting(2))


async def test_a_task_is_found_and_listed_and_two_of_them_do_not_touch(runner: AgentRunner) -> None:
    for empty in ("", "   ", "\n"):
        with pytest.raises(InvalidArgumentError, match="input"):
            await runner.create_task(empty)
    task = await runner.create_task("the question", task_id="life-by-id")
    with pytest.raises(TaskExistsError, match="life-by-id"):
        await runner.create_task("second", task_id="life-by-id")
    found = await runner.get_task("life-by-id")
    assert (found.task_id, found.input, found.status) == ("life-by-id", "the question", "running")
    assert task.created == pytest.approx(found.created, abs=60)
    [step] = await runner.get_upcoming_steps(task)
    assert (step.task_id, step.input) == (task.task_id, "the question")
    whole, paused = await runner.create_task("whole"), await runner.create_task("paused")
    await runner.run_step(whole)
    await runner.run_step(whole.task_id)
    await runner.pause(paused)
    assert await runner.get_task(task) == found

    async def listed() -> bool:
        running = await runner.list_tasks("running")
        shown = [(e.input, e.status, e.created) for e in running if e.task_id == task.task_id]
        of_status = [each.task_id for each in await runner.list_tasks("paused")]
        done = [each.task_id for each in await runner.get_completed_tasks()]
        assert task.task_id not in done
        is_shown = shown == [("the question", "running", task.created)]
        return is_shown and paused.task_id in of_status and whole.task_id in done

    await until(listed)


async def test_tasks_are_listed_newest_first_with_what_lists_know(runner: AgentRunner) -> None:
    made = [await runner.create_task(f"list {n}", task_id=f"list{n}") for n in range(4)]
    for task in (made[3], made[1]):  # closed in another order than begun
        await runner.run_task(task)
        await runner.finalize_response(task)

    async def newest(limit: int | None) -> list[str]:
        found = [each.task_id for each in await runner.list_tasks(limit=limit)]
        return [each for each in found if each.startswith("list")]

    async def listed() -> bool:
        ended = {each.task_id for each in await runner.list_tasks("finished")}
        return ended >= {"list3", "list1"}

    await until(listed)
    every = ["list3", "list2", "list1", "list0"]
    assert (await newest(None))[:4] == every
    assert [await newest(limit) for limit in range(4)] == [every[:limit] for limit in range(4)]
    [first] = await runner.list_tasks(limit=1)
    assert first.model_dump(include={"task_id", "status"}) == {
        "task_id": "list3",
        "status": "finished",
    }
    with pytest.raises(AttributeError, match="'steps' of a task: `get_task` reads it"):
        _ = first.steps  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert (await runner.get_task(first)).steps == 2


async def test_a_closed_task_is_read_from_the_archive_and_refuses_every_change(
    runner: AgentRunner, rig: Rig
) -> None:
    task = await run_a_task(runner, extra_state={"k": [1]}, session="kept")
    steps = await runner.get_completed_steps(task)
    assert await runner.finalize_response(task) == await runner.finalize_response(task.task_id)
    for verb in (runner.run_step, runner.run_task, runner.pause, runner.resume):
        with pytest.raises(TaskClosedError, match="closed"):
            await verb(task)
    with pytest.raises(TaskClosedError):
        await runner.abandon(task, reason="too late")
    with pytest.raises(TaskClosedError):
        await runner.rewind(task, to="s1")
    with pytest.raises(TaskExistsError):
        await runner.create_task("second", task_id=task.task_id)
    with pytest.raises(TaskExistsError):
        await runner.run_to_end("second", TaskHead(agent="agent"), task_id=task.task_id)
    committed = await runner.session("kept").chat_history()
    opened = await runner.create_task("q")
    await runner.delete_task(opened)
    worker_less = rig.runner()
    await rig.stop()
    assert await worker_less.get_completed_steps(task) == steps
    assert await worker_less.get_upcoming_steps(task) == []
    found = await worker_less.get_task(task)
    assert (found.status, found.input, found.steps) == ("finished", "q", 2)
    assert found.extra_state == {"k": [1]}
    await runner.delete_task(task)

    async def gone() -> bool:
        listed = {each.task_id for each in await runner.list_tasks()}
        return not {task.task_id, opened.task_id} & listed

    await until(gone)
    assert committed


async def test_an_agent_that_no_worker_serves_parks_the_task(runner: AgentRunner, rig: Rig) -> None:
    task = await runner.create_task("q", agent="nobody")
    with pytest.raises(StepFailedError, match=r"'nobody'.*serves: agent") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "AgentNotFoundError"
    assert (await runner.get_task(task)).status == "needs_attention"
    await rig.serve(rig.agent(worker=Counting(), name="nobody"))
    assert (await runner.run_step(task)).output["count"] == 1
    assert (await runner.get_task(task)).status == "running"
