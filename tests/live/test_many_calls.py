"""Answers with very many calls: they are done a few hundred at a time, or refused with words."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import EventType

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, ToolCall, tool
from holdfast.errors import StepFailedError
from holdfast.task.tool_calls import MOST_AT_ONCE
from holdfast.testing import FakeOpenAI
from holdfast.testing.fake_api.replies import Answer, CallSpec
from holdfast.values.checks.gate import MOST_CALLS
from holdfast.workers import StepContext
from holdfast.workflows.core import MOST_CARDS
from tests.support.rig import MakeRunner, histories, until
from tests.support.workers import Doing


@tool(effect="read")
def look(k: int) -> int:
    """Look."""
    return k


@tool(needs_approval=True)
def pay(k: int) -> int:
    """Pay."""
    return k


def many(name: str, count: int) -> Answer:
    calls = tuple(CallSpec(id=f"c{k}", name=name, arguments={"k": k}) for k in range(count))
    return Answer(calls=calls)


async def most_open(runner: AgentRunner, task: Task) -> int:
    """Count the activities of a task that were on the way at the same time, at most."""
    found = 0
    for run in await histories(runner.client, task.task_id):
        now = 0
        for event in run.events:
            name = EventType.Name(event.event_type)
            now += name.endswith("ACTIVITY_TASK_SCHEDULED")
            now -= name.endswith("ACTIVITY_TASK_COMPLETED")
            found = max(found, now)
    return found


async def test_the_calls_of_an_answer_are_done_a_few_hundred_at_a_time_over_rollovers(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    count = MOST_AT_ONCE + 60
    runner = await make_runner(look, roll_events=500)
    model.add(many("look", count))
    model.reply("done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "done"
    assert model.requests[1].results == {f"c{k}": str(k) for k in range(count)}
    assert await most_open(runner, task) == MOST_AT_ONCE
    assert len(await histories(runner.client, task.task_id)) > 1


async def test_an_answer_with_more_calls_than_a_task_holds_is_refused_and_asked_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(many("look", MOST_CALLS + 1))
    model.reply("done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "done"
    assert len(model.requests) == 2


async def test_a_step_that_makes_more_calls_than_a_task_holds_fails_with_words(
    make_runner: MakeRunner,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        calls = [ToolCall(id=f"c{k}", name="look", arguments='{"k": 1}') for k in range(5000)]
        await ctx.call_tools(calls)
        return TaskStepOutput(output="never", task_step=step, is_last=True)

    runner = await make_runner(look, worker=Doing(body))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="5000 tool calls at once"):
        await runner.run_step(task)


async def test_lists_show_the_oldest_of_many_approvals_and_the_task_tells_of_all(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    count = MOST_CARDS + 10
    runner = await make_runner(pay)
    model.add(many("pay", count))
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_step(task)

    async def listed() -> bool:
        mine = [a for a in await runner.pending_approvals() if a.id.startswith(task.task_id)]
        return len(mine) == count

    await until(listed)
    memo = await (await runner.client.get_workflow_handle(task.task_id).describe()).memo()
    assert len(memo["approvals"]) == MOST_CARDS
    [first, *_] = await runner.pending_approvals(task)
    await runner.approve(first, by="ann", always=True)
    assert (await runner.run_task(task)).output == "done"
    assert len(model.requests[1].results) == count
