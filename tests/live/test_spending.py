"""What a task has cost: every answer that was paid for, whatever became of it."""

from decimal import Decimal

from holdfast import AgentRunner, Price, Prices, Task
from holdfast.values.messages import Usage, user
from tests.support.rig import Rig, step_a_task
from tests.support.runs import look


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
