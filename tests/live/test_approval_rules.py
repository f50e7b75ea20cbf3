"""Rules of approvals on the real server: who decides, how many, and what follows in time."""

from __future__ import annotations

import pytest

from holdfast import AgentRunner, ApprovalRule, Task, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import CommandRefusedError
from holdfast.testing import FakeOpenAI, call
from tests.support.people import World, ask, kinds
from tests.support.rig import MakeAgent, MakeRunner, Rig, until


def paying(world: World, rule: ApprovalRule) -> Tool:
    """Make a tool whose calls are decided by a rule."""

    @tool(needs_approval=rule, undo=lambda effect: world.done.append("undone"))
    def pay(amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        return f"paid {amount}"

    return pay


async def started(runner: AgentRunner, by: str = "") -> Task:
    """Create a task and run its first step, which then waits."""
    task = await runner.create_task("q", by=by)
    assert (await runner.run_step(task)).status == "waiting"
    return task


async def test_two_people_of_a_role_approve_and_the_asker_is_not_one_of_them(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    rule = ApprovalRule(by="role:finance", quorum=2, not_asker=True)
    roles = {"finance": ["anna", "ben", "kim"]}
    runner = await make_runner(paying(world, rule), roles=roles)
    model.add(call("pay", {"amount": 5}), "done")
    task = await started(runner, by="kim")
    asked = await ask(runner, task)
    assert (asked.who, asked.quorum, asked.asker) == (("role:finance",), 2, "kim")
    assert runner.people_asked(asked) == ["anna", "ben"]
    with pytest.raises(CommandRefusedError, match="kim created the task"):
        await runner.approve(asked, "kim")
    with pytest.raises(CommandRefusedError, match="may not decide"):
        await runner.approve(asked, "eve")
    await runner.approve(asked, "anna", note="seen")
    await runner.approve(asked, "anna")

    async def listed() -> bool:
        found = await runner.pending_approvals()
        own = [each.progress for each in found if each.id == asked.id]
        return own == ["1 of 2: anna"]

    await until(listed)
    assert world.done == []
    await runner.approve(asked, "ben")
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 5"]
    events = [each for each in await runner.audit(task) if each.approval == asked.id]
    said = [(each.kind, each.actor, each.decision) for each in events]
    assert ("vote", "anna", "") in said
    assert ("command", "ben", "approved") in said
    assert [each.actor for each in events if each.kind == "refused"] == ["kim", "eve"]
    assert not await runner.verify(task)


async def test_it_escalates_and_then_expires(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    rule = ApprovalRule(
        by="anna", escalate_after_seconds=0.3, escalate_to="role:boss", expires_seconds=600
    )
    runner = await make_runner(paying(world, rule), roles={"boss": ["cy"]})
    model.add(call("pay", {"amount": 5}), "done")
    task = await started(runner)

    async def escalated() -> bool:
        return bool((await ask(runner, task)).escalated)

    await until(escalated)
    asked = await ask(runner, task)
    assert asked.may_decide == ("anna", "role:boss")
    assert asked.expires
    await runner.approve(asked, "cy")
    assert str(await runner.run_task(task)) == "done"
    assert (await kinds(runner, task)).count("escalated") == 1


async def test_a_sub_agents_calls_keep_the_rule_and_the_asker(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World
) -> None:
    rule = ApprovalRule(not_asker=True)
    clerk = make_agent(paying(world, rule), name="clerk")
    boss = make_agent(clerk.as_tool("clerk", "Pays."), name="boss")
    await rig.serve(boss)
    runner = rig.runner(agent="boss")
    model.add(call("clerk", {"input": "pay"}), call("pay", {"amount": 5}), "paid", "done")
    task = await started(runner, by="kim")
    asked = await ask(runner, task)
    with pytest.raises(CommandRefusedError, match="Kim created the task"):
        await runner.approve(asked, "Kim")
    await runner.approve(asked, "ben")
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 5"]
