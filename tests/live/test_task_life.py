"""The life of a task: created, listed, stepped, closed, deleted."""

from __future__ import annotations

import pytest

from holdfast import AgentRunner
from holdfast.errors import (
    InvalidArgumentError,
    NoWorkerError,
    StepFailedError,
    TaskClosedError,
    TaskExistsError,
    TaskNotFoundError,
)
from holdfast.task.data.head import TaskHead
from tests.support.rig import MakeAgent, MakeRunner, Rig, until, until_status
from tests.support.workers import Counting, Forking


@pytest.fixture
async def runner(make_runner: MakeRunner) -> AgentRunner:
    return await make_runner(worker=Counting(2))


async def test_a_new_task_has_its_input_as_the_one_upcoming_step(runner: AgentRunner) -> None:
    task = await runner.create_task("q", session="s")
    [step] = await runner.get_upcoming_steps(task)
    assert (step.task_id, step.input) == (task.task_id, "q")
    assert await runner.get_completed_steps(task) == []
    assert await runner.session("s").chat_history() == []


async def test_a_task_is_found_by_its_id_with_its_input(runner: AgentRunner) -> None:
    task = await runner.create_task("the question", task_id="life-by-id")
    found = await runner.get_task("life-by-id")
    assert (found.task_id, found.input, found.status) == ("life-by-id", "the question", "running")
    assert task.input == found.input
    assert task.created == pytest.approx(found.created, abs=60)


async def test_a_task_is_listed_with_its_input_and_status(runner: AgentRunner, rig: Rig) -> None:
    task = await runner.create_task("the question")

    async def listed() -> bool:
        found = [each for each in await runner.list_tasks() if each.task_id == task.task_id]
        wanted = [("the question", "running", task.created)]
        return [(each.input, each.status, each.created) for each in found] == wanted

    assert await until(listed)


async def test_a_task_is_listed_by_status(runner: AgentRunner) -> None:
    task = await runner.create_task("q")
    await runner.pause(task)

    async def listed() -> bool:
        return task.task_id in [each.task_id for each in await runner.list_tasks("paused")]

    assert await until(listed)
    assert task.task_id not in [each.task_id for each in await runner.list_tasks("running")]


async def test_stepping_one_task_leaves_the_other_as_it_is(runner: AgentRunner) -> None:
    one = await runner.create_task("one")
    other = await runner.create_task("other")
    before = (
        await runner.get_task(other),
        await runner.get_upcoming_steps(other),
        await runner.get_completed_steps(other),
    )
    await runner.run_step(one)
    after = (
        await runner.get_task(other),
        await runner.get_upcoming_steps(other),
        await runner.get_completed_steps(other),
    )
    assert after == before


async def test_a_task_id_is_refused_the_second_time(runner: AgentRunner) -> None:
    task = await runner.create_task("first", task_id="life-twice")
    with pytest.raises(TaskExistsError, match="life-twice"):
        await runner.create_task("second", task_id="life-twice")
    assert (await runner.get_task(task)).input == "first"


async def test_the_id_of_a_closed_task_is_refused_too(runner: AgentRunner) -> None:
    task = await runner.create_task("first", task_id="life-closed-twice")
    await runner.run_task(task)
    await runner.finalize_response(task)
    with pytest.raises(TaskExistsError):
        await runner.create_task("second", task_id="life-closed-twice")
    with pytest.raises(TaskExistsError):
        await runner.run_to_end("second", TaskHead(agent="agent"), task_id="life-closed-twice")


async def test_extra_state_given_twice_is_refused_with_both_names(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(), default_extra_state={"a": 1})
    with pytest.raises(ValueError, match=r"extra_state.*default_extra_state"):
        await runner.create_task("q", extra_state={"b": 2})


async def test_default_extra_state_is_not_shared_between_tasks(make_runner: MakeRunner) -> None:
    default: dict[str, list[int]] = {"seen": []}
    runner = await make_runner(worker=Counting(), default_extra_state=default)
    one, other = await runner.create_task("one"), await runner.create_task("other")
    one.extra_state["seen"].append(1)
    default["seen"].append(2)
    assert (await runner.get_task(one)).extra_state == {"seen": []}
    assert other.extra_state == {"seen": []}


async def test_every_verb_takes_a_task_or_its_id(runner: AgentRunner) -> None:
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.run_step(task.task_id)
    assert await runner.get_completed_steps(task) == await runner.get_completed_steps(task.task_id)
    assert await runner.finalize_response(task) == await runner.finalize_response(task.task_id)


async def test_every_verb_refuses_an_unknown_task(runner: AgentRunner) -> None:
    verbs = [
        runner.get_task,
        runner.get_upcoming_steps,
        runner.get_completed_steps,
        runner.get_task_output,
        runner.run_step,
        runner.run_task,
        runner.finalize_response,
        runner.pause,
        runner.resume,
        runner.ledger,
        runner.delete_task,
    ]
    for verb in verbs:
        with pytest.raises(TaskNotFoundError, match="'life-nowhere'"):
            await verb("life-nowhere")
    with pytest.raises(TaskNotFoundError):
        await runner.abandon("life-nowhere", reason="none")


async def test_a_deleted_task_is_gone_and_what_it_committed_stays(runner: AgentRunner) -> None:
    task = await runner.create_task("q", session="kept")
    await runner.run_task(task)
    await runner.finalize_response(task)
    committed = await runner.session("kept").chat_history()
    await runner.delete_task(task)

    async def gone() -> bool:
        return task.task_id not in [each.task_id for each in await runner.list_tasks()]

    assert await until(gone)
    assert await runner.session("kept").chat_history() == committed != []


async def test_an_open_task_can_be_deleted(runner: AgentRunner) -> None:
    task = await runner.create_task("q")
    await runner.delete_task(task)

    async def gone() -> bool:
        try:
            await runner.get_task(task)
        except TaskNotFoundError:
            return True
        return False

    assert await until(gone)


async def test_a_task_created_without_any_worker_is_there_for_another_process(
    rig: Rig, make_agent: MakeAgent
) -> None:
    task = await rig.runner().create_task("q")
    await rig.serve(make_agent(worker=Counting()))
    other = rig.runner()
    assert [step.input for step in await other.get_upcoming_steps(task.task_id)] == ["q"]
    assert (await other.run_step(task.task_id)).output == {"count": 1, "input": "q"}


async def test_without_a_worker_a_verb_that_needs_one_says_so_within_five_seconds(
    rig: Rig,
) -> None:
    runner = rig.runner()
    task = await runner.create_task("q")
    with pytest.raises(NoWorkerError, match=rig.queue):
        await runner.run_step(task)
    with pytest.raises(NoWorkerError, match=rig.queue):
        await runner.get_task(task)


async def test_completed_tasks_are_those_whose_last_output_is_last(runner: AgentRunner) -> None:
    half, whole = await runner.create_task("half"), await runner.create_task("whole")
    await runner.run_step(half)
    await runner.run_task(whole)

    async def listed() -> bool:
        return whole.task_id in [each.task_id for each in await runner.get_completed_tasks()]

    assert await until(listed)
    assert half.task_id not in [each.task_id for each in await runner.get_completed_tasks()]


async def test_a_closed_task_is_read_from_the_archive(runner: AgentRunner, rig: Rig) -> None:
    task = await runner.create_task("q", extra_state={"k": [1]})
    await runner.run_task(task)
    steps = await runner.get_completed_steps(task)
    await runner.finalize_response(task)
    await rig.stop()
    assert await runner.get_completed_steps(task) == steps
    assert await runner.get_upcoming_steps(task) == []
    found = await runner.get_task(task)
    assert (found.status, found.input, found.steps) == ("finished", "q", 2)
    assert found.extra_state == {"k": [1]}


async def test_a_closed_task_refuses_every_change(runner: AgentRunner) -> None:
    task = await runner.create_task("q")
    await runner.run_task(task)
    await runner.finalize_response(task)
    for verb in (runner.run_step, runner.run_task, runner.pause, runner.resume):
        with pytest.raises(TaskClosedError, match="closed"):
            await verb(task)
    with pytest.raises(TaskClosedError):
        await runner.abandon(task, reason="too late")


async def test_an_agent_that_no_worker_serves_parks_the_task(
    runner: AgentRunner, rig: Rig, make_agent: MakeAgent
) -> None:
    task = await runner.create_task("q", agent="nobody")
    with pytest.raises(StepFailedError, match=r"'nobody'.*serves: agent") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "AgentNotFoundError"
    assert (await runner.get_task(task)).status == "needs_attention"
    await rig.serve(make_agent(worker=Counting(), name="nobody"))
    assert (await runner.run_step(task)).output["count"] == 1
    assert (await runner.get_task(task)).status == "running"


@pytest.mark.parametrize("empty", ["", "   ", "\n"])
async def test_an_empty_input_is_refused(runner: AgentRunner, empty: str) -> None:
    with pytest.raises(InvalidArgumentError, match="input"):
        await runner.create_task(empty)


async def test_an_agent_worker_may_name_the_first_step(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Forking({}, last="start"))
    task = await runner.create_task("q")
    await until_status(runner, task, "running")
    output = await runner.run_step(task)
    assert (output.task_step.step_id, output.task_step.input) == ("start", "q")
