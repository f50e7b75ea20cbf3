"""Rules of approvals on the real server: who decides, how many, and what follows in time."""

from typing import Any

import pytest

from holdfast import AgentRunner, ApprovalRule, Task, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.options import ApprovalPredicate
from holdfast.errors import CommandRefusedError, InvalidArgumentError
from holdfast.task.data.calls import Approval
from holdfast.testing import call
from tests.support.people import ask, kinds
from tests.support.rig import Rig, World, until

FINANCE = ApprovalRule(by="role:finance", not_asker=True, expires_seconds=600)


def above_ten(arguments: dict[str, Any]) -> bool | ApprovalRule:
    """Finance decides about large payments, anybody about small ones."""
    return FINANCE if arguments["amount"] > 10 else True


def paying(world: World, rule: ApprovalRule | ApprovalPredicate, **options: Any) -> Tool:
    """Make a tool whose calls are decided by a rule."""

    @tool(needs_approval=rule, undo=lambda effect: world.done.append("undone"), **options)
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


async def test_two_people_of_a_role_approve_and_the_asker_is_not_one_of_them(rig: Rig) -> None:
    rule = ApprovalRule(by="role:finance", quorum=2, not_asker=True)
    roles = {"finance": ["anna", "ben", "kim"]}
    runner = await rig.make(paying(rig.world, rule), roles=roles)
    rig.model.add(call("pay", {"amount": 5}), "done")
    with pytest.raises(InvalidArgumentError, match="may not mix alphabets"):
        await runner.create_task("q", by="k\u0456m")  # who approves as kim is not the asker then
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

    await until(
        runner.pending_approvals,
        lambda found: [e.progress for e in found if e.id == asked.id] == ["1 of 2: anna"],
    )
    assert rig.world.done == []
    await runner.approve(asked, "ben")
    assert str(await runner.run_task(task)) == "done"
    assert rig.world.done == ["pay 5"]
    events = [each for each in await runner.audit(task) if each.approval == asked.id]
    said = [(each.kind, each.actor, each.decision) for each in events]
    assert ("vote", "anna", "") in said
    assert ("command", "ben", "approved") in said
    assert [each.actor for each in events if each.kind == "refused"] == ["kim", "eve"]
    assert not await runner.verify(task)


async def test_it_escalates_and_then_expires(rig: Rig) -> None:
    rule = ApprovalRule(
        by="anna", escalate_after_seconds=0.3, escalate_to="role:boss", expires_seconds=600
    )
    runner = await rig.make(paying(rig.world, rule), roles={"boss": ["cy"]})
    rig.model.add(call("pay", {"amount": 5}), "done")
    task = await started(runner)

    await until(lambda: ask(runner, task), lambda found: found.escalated)
    asked = await ask(runner, task)
    assert asked.may_decide == ("anna", "role:boss")
    assert asked.expires
    await runner.approve(asked, "cy")
    assert str(await runner.run_task(task)) == "done"
    assert (await kinds(runner, task)).count("escalated") == 1


async def test_a_sub_agents_calls_keep_the_rule_and_the_asker(rig: Rig) -> None:
    rule = ApprovalRule(not_asker=True)
    clerk = rig.agent(paying(rig.world, rule), name="clerk")
    runner = await rig.serving(rig.agent(clerk.as_tool("clerk", "Pays."), name="boss"))
    rig.model.add(call("clerk", {"input": "pay"}), call("pay", {"amount": 5}), "paid", "done")
    task = await started(runner, by="kim")
    asked = await ask(runner, task)
    with pytest.raises(CommandRefusedError, match="Kim created the task"):
        await runner.approve(asked, "Kim")
    await runner.approve(asked, "ben")
    assert str(await runner.run_task(task)) == "done"
    assert rig.world.done == ["pay 5"]


async def test_the_rule_of_a_predicate_decides_on_the_call_on_its_edit_and_on_its_undo(
    rig: Rig,
) -> None:
    pays = paying(rig.world, above_ten, undo_needs_approval=True)
    runner = await rig.make(pays, roles={"finance": ["anna", "kim"]})
    rig.model.add(call("pay", {"amount": 9}), call("pay", {"amount": 11}), "done")
    task = await started(runner, by="kim")
    small = await ask(runner, task)
    assert (small.who, small.expires) == ((), 0)
    with pytest.raises(CommandRefusedError, match="by another ApprovalRule"):
        await runner.approve(small, "eve", arguments={"amount": 12})
    await runner.approve(small, "eve", arguments={"amount": 8})
    assert (await runner.run_task(task)).status == "waiting"
    large = await ask(runner, task)
    assert (large.who, large.asker, large.expires - large.asked) == (("role:finance",), "kim", 600)
    await refused(runner, large)
    await runner.approve(large, "anna")
    assert str(await runner.run_task(task)) == "done"
    assert rig.world.done == ["pay 8", "pay 11"]
    first = (await runner.get_completed_steps(task))[0]
    assert (await runner.rewind(task, to=first)).status == "waiting"
    undo = await ask(runner, task)
    assert (undo.kind, undo.who, undo.asker) == ("undo", ("role:finance",), "kim")
    await refused(runner, undo)
    await runner.approve(undo, "anna")
    await until(lambda: rig.world.done[2:] == ["undone"])
    assert not await runner.verify(task)


async def refused(runner: AgentRunner, asked: Approval) -> None:
    """See that neither somebody else nor the asker may decide."""
    for name, why in (("eve", "these may: role:finance"), ("kim", "kim created the task")):
        with pytest.raises(CommandRefusedError, match=why):
            await runner.approve(asked, name)


async def test_a_standing_approval_does_not_stand_above_the_rule_of_a_predicate(rig: Rig) -> None:
    runner = await rig.make(paying(rig.world, above_ten), roles={"finance": ["anna"]})
    for amount in (5, 6, 11):
        rig.model.call("pay", {"amount": amount})
    rig.model.reply("done")
    task = await started(runner, by="kim")
    await runner.approve(await ask(runner, task), "eve", always=True)
    assert (await runner.run_task(task)).status == "waiting"
    assert rig.world.done == ["pay 5", "pay 6"]
    large = await ask(runner, task)
    assert large.who == ("role:finance",)
    await runner.approve(large, "anna")
    assert str(await runner.run_task(task)) == "done"
