"""Decisions for later calls in all tasks of a session, on the real server."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import AgentRunner, Always, Task, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.client.agent_runner import approvals
from holdfast.errors import CommandRefusedError
from holdfast.reading.reader import Reader
from holdfast.testing import FakeOpenAI, call
from tests.support.people import ask
from tests.support.rig import Rig, World, until


def paying(world: World) -> Tool:
    """Make a tool whose calls a person decides."""

    @tool(needs_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        world.done.append(to)
        return f"paid {to}"

    return pay


async def asked_to_pay(
    runner: AgentRunner, model: FakeOpenAI, to: str, session: str | None = "books"
) -> tuple[Task, str]:
    """Begin a task that wants to pay; return it, and the status in which it stops."""
    model.call("pay", {"to": to})
    task = await runner.create_task(f"pay {to}", session=session)
    return task, (await runner.run_step(task)).status


async def test_a_rule_of_a_session_holds_in_its_later_tasks_until_it_is_revoked(rig: Rig) -> None:
    runner = await rig.make(paying(rig.world))
    session = runner.session("books")
    first, status = await asked_to_pay(runner, rig.model, "Kim")
    assert status == "waiting"
    asked = await ask(runner, first)
    friday = datetime.now(UTC) + timedelta(days=3)
    await runner.approve(asked, "ann", always=Always(same=["to"], until=friday, scope="session"))
    rig.model.add(call("pay", {"to": "Kim"}), "done")
    await runner.run_task(first)
    assert rig.world.done == ["Kim", "Kim"]  # it holds for the rest of its own task, too
    await runner.finalize_response(first)

    [rule] = await session.standing_rules()
    assert (rule.id, rule.session, rule.tool, rule.values, rule.by) == (
        asked.id,
        "books",
        "pay",
        {"to": "Kim"},
        "ann",
    )
    assert rule.until == friday.timestamp()

    second, status = await asked_to_pay(runner, rig.model, "Kim")
    assert (status, rig.world.done) == ("done", ["Kim"] * 3)
    [used] = [each for each in await runner.audit(second) if each.kind == "standing"]
    assert (used.actor, used.decision) == ("ann", "approved")
    assert (used.body["rule"], used.body["session"]) == (asked.id, "books")
    _, status = await asked_to_pay(runner, rig.model, "Bob")
    assert status == "waiting"  # other values
    _, status = await asked_to_pay(runner, rig.model, "Kim", session="other")
    assert status == "waiting"
    _, status = await asked_to_pay(runner, rig.model, "Kim", session=None)
    assert status == "waiting"

    await until(runner.standing_rules, lambda found: [each.id for each in found] == [asked.id])
    with pytest.MonkeyPatch.context() as patch:  # an owner whose worker hangs holds up no list
        patch.setattr(approvals, "LISTED_SECONDS", 0.05)
        patch.setattr(Reader, "standing_rules", lambda *_: asyncio.Event().wait())
        assert await runner.standing_rules() == []
    assert (await runner.revoke_rule(rule, "ben")).status == "applied"
    assert await session.standing_rules() == []
    [ended] = await session.standing_rules(ended=True)
    assert (ended.id, ended.revoked) == (asked.id, "ben")
    _, status = await asked_to_pay(runner, rig.model, "Kim")
    assert status == "waiting"
    with pytest.raises(CommandRefusedError, match="there are: none"):
        await session.revoke_rule(asked.id, "ben")
    assert not await runner.verify(second)
