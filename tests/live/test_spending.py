"""What a task has cost: every answer that was paid for, whatever became of it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AgentRunner, Task, tool
from holdfast.agents.guardrails import GuardrailFunctionOutput, OutputGuardrail
from holdfast.errors import OutputGuardrailTripwireTriggered, StepFailedError
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Usage
from holdfast.values.settings import Budget
from tests.support.rig import MakeAgent, MakeRunner, Rig, until_rolled
from tests.support.runs import look


async def spent(runner: AgentRunner, task: Task | str) -> Usage:
    return (await runner.get_task(task)).usage


async def test_the_cost_of_an_undone_step_stays_in_the_task_and_in_its_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    task = await runner.create_task("q")
    await runner.run_step(task)
    first = await spent(runner, task)
    await runner.undo_step(task)
    assert await spent(runner, task) == first != Usage()
    model.call("look")
    model.reply("done")
    await runner.run_task(task)
    assert (await spent(runner, task)).requests == 3
    assert (await runner.get_task(task)).branch_usage.requests == 2
    answer = await runner.finalize_response(task)
    assert answer.usage == await spent(runner, task)
    assert answer.branch_usage.requests == 2
    assert (await runner.get_task(task)).branch_usage == answer.branch_usage
    assert answer.usage.requests == len(model.requests) == 3
    assert answer.usage.input_tokens > 2 * first.input_tokens


async def test_the_cost_of_a_step_that_is_started_anew_stays(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def fail() -> str:
        """Fail."""
        return "seen"

    runner = await make_runner(fail)
    model.call("fail")
    model.fail(401)
    task = await runner.create_task("q", budget=Budget(max_turns=9))
    await runner.run_step(task)
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    model.reply("done")
    await runner.run_step(task, restart="step")
    assert (await runner.finalize_response(task)).usage.requests == 2


async def test_the_cost_of_an_undone_open_step_stays(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    runner = await make_runner(pay)
    model.call("pay")
    task = await runner.create_task("q", budget=Budget(max_turns=1, on_exceeded="fail"))
    await runner.run_step(task)
    await runner.undo_step(task)
    model.reply("done")  # the budget is as before
    await runner.run_step(task)
    assert (await runner.finalize_response(task)).usage.requests == 2


async def test_the_cost_of_an_answer_that_a_guardrail_blocked_is_shown(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    def stop(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    guards = [OutputGuardrail(guardrail_function=stop)]
    await rig.serve(make_agent(output_guardrails=guards))
    runner = rig.runner()
    model.reply("secret")
    task = await runner.create_task("q")
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await runner.run_task(task)
    assert (await spent(runner, task)).requests == 1


async def test_the_cost_of_a_call_that_was_a_task_stays_when_it_is_undone(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(look, name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.reply("helped")
    task = await runner.create_task("q")
    await runner.run_step(task)
    assert (await spent(runner, task)).requests == 2
    await runner.undo_step(task)
    assert (await spent(runner, task)).requests == 2
    model.reply("done")
    await runner.run_step(task)
    assert (await runner.finalize_response(task)).usage.requests == 3


async def test_what_was_spent_is_known_after_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look, roll_events=50)
    task = await runner.create_task("q")
    for _ in range(6):
        model.call("look")
        await runner.run_step(task)
        await runner.undo_step(task)
    await until_rolled(runner.client, task.task_id)
    assert (await spent(runner, task)).requests == 6
