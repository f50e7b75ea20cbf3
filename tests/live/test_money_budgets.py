"""Money: no model call is made that may cost more than is left, and each one is counted."""

import json
from decimal import Decimal
from typing import Any

import pytest

from holdfast import (
    AgentRunner,
    Budget,
    ModelSettings,
    Price,
    Prices,
    RunConfig,
    Runner,
    Task,
    TaskStep,
    errors,
)
from holdfast.testing import call, reply
from holdfast.values.base import Json
from holdfast.values.messages import Usage, user
from holdfast.workers import StepContext
from tests.live.test_parallel import Graph
from tests.support.people import ask
from tests.support.rig import Rig, step_a_task
from tests.support.runs import look

pytestmark = pytest.mark.asyncio(loop_scope="session")

PRICES = Prices({"gpt-5-mini": Price(input=0, output=1000)})
"""A tenth of a cent for each token of output; input costs nothing."""

CALL = Usage(input_tokens=7, output_tokens=100)
DIME = ModelSettings(max_tokens=100)
"""A call costs at most ten cents."""


async def serve(rig: Rig, *tools: object, **options: Any) -> AgentRunner:
    await rig.serve(rig.agent(*tools, model_settings=DIME, **options), prices=PRICES)
    return rig.runner()


async def paid(runner: AgentRunner, task: object) -> Decimal | None:
    return (await runner.get_task(task)).usage.cost  # type: ignore[arg-type]


async def test_a_call_that_may_pass_the_budget_of_a_run_is_not_made(rig: Rig) -> None:
    agent = rig.agent(look)
    await rig.serve(agent, prices=PRICES)
    runner = rig.runner()
    rig.model.call("look", usage=Usage(input_tokens=7, output_tokens=1100))
    with pytest.raises(errors.MaxTurnsExceeded, match=r"max_dollars=1\.5") as caught:
        await Runner.run(agent, "q", run_config=RunConfig(max_dollars="1.5"), runner=runner)
    [request] = rig.model.requests
    assert request.body["max_output_tokens"] == 1500  # what the money pays for
    assert await paid(runner, caught.value.run_data.task_id) == Decimal("1.1")


async def test_finish_keeps_money_for_a_last_answer_without_tools(rig: Rig) -> None:
    runner = await serve(rig, look)
    rig.model.add(*[call("look", usage=CALL)] * 2, reply("all that I know", usage=CALL))
    budget = Budget(max_dollars="0.35", on_exceeded="finish")
    task = await runner.create_task("q", budget=budget)
    assert (await runner.run_task(task)).output == "all that I know"
    assert rig.model.requests[-1].body["tool_choice"] == "none"
    assert await paid(runner, task) == Decimal("0.3")
    poor = await runner.create_task("q", budget=Budget(max_dollars="0.05", on_exceeded="finish"))
    with pytest.raises(errors.MaxTurnsExceeded, match=r"max_dollars=0\.05"):
        await runner.run_task(poor)
    assert len(rig.model.requests) == 3  # there is no money for a last answer


async def test_a_person_raises_the_budget_and_no_undo_takes_money_back(rig: Rig) -> None:
    runner = await serve(rig, look)
    rig.model.call("look", usage=CALL)
    task = await step_a_task(runner, budget=Budget(max_dollars="0.2"))
    assert (await runner.run_step(task)).output is None
    asked = await ask(runner, task)
    assert (asked.kind, json.loads(asked.arguments)) == ("limit", {"max_dollars": "0.40"})
    assert "$0.20 is used up: $0.10 is spent" in asked.text
    handle = runner.client.get_workflow_handle(asked.id.partition(":")[0])
    deep = {"approval": asked.id, "by": "ann", "arguments": "[" * 100_000}
    await handle.signal("approve", deep)  # by hand: the client refuses it
    wrongs = ('{"max_dollars": "0.2"}', '{"max_dollars": "much"}', "7")
    for wrong in (*wrongs, '{"max_dollars": "1e30"}'):
        with pytest.raises(errors.CommandRefusedError, match="raise"):
            await runner.approve(asked, by="ann", arguments=wrong)
    await rig.serve(rig.agent(look, model_settings=DIME), prices=PRICES)  # another worker process
    rig.model.reply("done", usage=CALL)
    await runner.approve(asked, by="ann", arguments={"max_dollars": "0.3"})
    assert (await runner.run_step(task)).output == "done"
    await runner.undo_step(task)
    found = await runner.get_task(task)
    assert found.budget is not None
    assert found.budget.max_dollars == Decimal("0.3")
    await runner.run_step(task)
    assert "$0.30 is used up: $0.20 is spent" in (await ask(runner, task)).text
    assert len(rig.model.requests) == 2
    rig.model.reply("last words", usage=CALL)
    await runner.reject(await ask(runner, task), by="ann", reason="no more")
    assert (await runner.run_step(task)).output == "last words"
    assert await paid(runner, task) == Decimal("0.3")


async def test_steps_side_by_side_do_not_spend_the_same_money(rig: Rig) -> None:
    async def do(step: TaskStep, ctx: StepContext) -> Json:
        return (await ctx.call_model([user(f"about {step.step_id}")])).text

    agent = rig.agent(worker=Graph(dict.fromkeys("abcde", ()), do, lasts=()), model_settings=DIME)
    await rig.serve(agent, prices=PRICES)
    runner = rig.runner()
    rig.model.add(*[reply("said", usage=CALL)] * 3)
    budget = Budget(max_dollars="0.35", on_exceeded="fail")
    task = await step_a_task(runner, budget=budget)
    with pytest.raises(errors.MaxTurnsExceeded):
        await runner.run_steps_in_queue(task)
    assert len(rig.model.requests) == 3
    assert await paid(runner, task) == Decimal("0.3")


# ---- what a task has cost: every answer that was paid for, whatever became of it


async def spent(runner: AgentRunner, task: Task | str) -> Usage:
    return (await runner.get_task(task)).usage


async def test_each_call_is_priced_when_it_is_made_and_undone_ones_stay_paid(rig: Rig) -> None:
    agent = rig.agent(look)
    cheap, dear = (Prices({"gpt-5-mini": Price(input=1, output=price)}) for price in (10, 1000))
    await rig.serve(agent, prices=cheap)
    runner = rig.runner()
    rig.model.call("look", usage=Usage(input_tokens=10, output_tokens=2))
    task = await step_a_task(runner)
    await runner.undo_step(task)
    await rig.serve(agent, prices=dear)
    rig.model.reply("done", usage=Usage(input_tokens=10, output_tokens=2))
    await runner.run_task(task)
    answer = await runner.finalize_response(task)
    assert answer.usage == await spent(runner, task)
    assert (answer.usage.requests, answer.branch_usage.requests) == (2, 1)
    assert (await runner.get_task(task)).branch_usage == answer.branch_usage
    assert answer.usage.cost == Decimal("0.00003") + Decimal("0.00201")
    assert answer.branch_usage.cost == Decimal("0.00201")
    audit = await runner.audit(task)
    calls = [event.cost for event in audit if event.kind == "model_call"]
    assert calls == [Decimal("0.00003"), Decimal("0.00201")]
    named = [event.body["prices"] for event in audit if event.kind == "model_call"]
    assert named == [cheap.table_name, dear.table_name]
    assert [event.cost for event in audit if event.kind == "step"] == calls
    assert not await runner.verify(task)
    await rig.assert_replays()


async def test_a_session_has_cost_what_all_its_tasks_have_also_before_a_reset(rig: Rig) -> None:
    await rig.serve(rig.agent(look), prices=Prices({"gpt-5-mini": Price(input=1, output=1)}))
    runner = rig.runner()
    session = runner.session("alice")
    assert await session.usage() == Usage()
    for text in ("one", "two"):
        rig.model.reply(text, usage=Usage(input_tokens=3, output_tokens=1))
        await runner.chat("hi", session="alice")
        await session.append([user("by hand")])
        await session.reset()
    usage = await session.usage()
    assert (usage.requests, usage.cost) == (2, Decimal("0.000008"))
