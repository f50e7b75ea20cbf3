"""Decisions for later calls in all tasks of a session, on the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import AgentRunner, Always, ApprovalRule, Task, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.client.agent_runner import approvals
from holdfast.errors import CommandRefusedError
from holdfast.reading.reader import Reader
from holdfast.testing import FakeOpenAI
from tests.support.people import World, ask
from tests.support.rig import MakeRunner, until

IN_SESSION = Always(same=["to"], scope="session")


@pytest.fixture
def world() -> World:
    return World()


Rule = ApprovalRule | bool | Callable[[dict[str, Any]], bool]


def paying(world: World, rule: Rule = True) -> Tool:
    """Make a tool whose calls a person decides."""

    @tool(needs_approval=rule)
    def pay(to: str) -> str:
        """Pay."""
        world.done.append(to)
        return f"paid {to}"

    return pay


async def asked_to_pay(
    runner: AgentRunner, model: FakeOpenAI, to: str, session: str | None = "books", by: str = ""
) -> tuple[Task, str]:
    """Begin a task that wants to pay; return it, and the status in which it stops."""
    model.call("pay", {"to": to})
    task = await runner.create_task(f"pay {to}", session=session, by=by)
    return task, (await runner.run_step(task)).status


async def test_a_rule_of_a_session_holds_in_its_later_tasks_until_it_is_revoked(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    runner = await make_runner(paying(world))
    session = runner.session("books")
    first, status = await asked_to_pay(runner, model, "Kim")
    assert status == "waiting"
    asked = await ask(runner, first)
    friday = datetime.now(UTC) + timedelta(days=3)
    bounds = Always(same=["to"], until=friday, scope="session")
    await runner.approve(asked, "ann", always=bounds)
    model.call("pay", {"to": "Kim"})
    model.reply("done")
    await runner.run_task(first)
    assert world.done == ["Kim", "Kim"]  # it holds for the rest of its own task, too
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

    second, status = await asked_to_pay(runner, model, "Kim")
    assert (status, world.done) == ("done", ["Kim"] * 3)
    [used] = [each for each in await runner.audit(second) if each.kind == "standing"]
    assert (used.actor, used.decision) == ("ann", "approved")
    assert (used.body["rule"], used.body["session"]) == (asked.id, "books")
    _, status = await asked_to_pay(runner, model, "Bob")
    assert status == "waiting"  # other values
    _, status = await asked_to_pay(runner, model, "Kim", session="other")
    assert status == "waiting"
    _, status = await asked_to_pay(runner, model, "Kim", session=None)
    assert status == "waiting"

    async def listed() -> bool:
        return [each.id for each in await runner.standing_rules()] == [asked.id]

    await until(listed)
    with pytest.MonkeyPatch.context() as patch:  # an owner whose worker hangs holds up no list
        patch.setattr(approvals, "LISTED_SECONDS", 0.05)
        patch.setattr(Reader, "standing_rules", lambda *_: asyncio.Event().wait())
        assert await runner.standing_rules() == []
    assert (await runner.revoke_rule(rule, "ben")).status == "applied"
    assert await session.standing_rules() == []
    [ended] = await session.standing_rules(ended=True)
    assert (ended.id, ended.revoked) == (asked.id, "ben")
    _, status = await asked_to_pay(runner, model, "Kim")
    assert status == "waiting"
    with pytest.raises(CommandRefusedError, match="there are: none"):
        await session.revoke_rule(asked.id, "ben")
    assert not await runner.verify(second)


async def test_a_rule_of_the_session_rejects_and_its_predicate_is_not_asked(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    said = iter([True])  # of a later call, that nobody need decide
    told: list[str] = []

    def asks(arguments: dict[str, Any]) -> bool:
        told.append(arguments["to"])
        return next(said, False)

    runner = await make_runner(paying(world, asks))
    first, _ = await asked_to_pay(runner, model, "Kim")
    asked = await ask(runner, first)
    await runner.reject(asked, "ann", "never", always=IN_SESSION)
    model.reply("done")
    await runner.run_task(first)
    await runner.finalize_response(first)
    second, status = await asked_to_pay(runner, model, "Kim")
    assert (status, told) == ("done", ["Kim"])
    assert world.done == []
    [source] = (await runner.get_completed_steps(second))[0].sources
    assert "rejected by ann: never" in source.content
    third, status = await asked_to_pay(runner, model, "Bob")
    assert (status, told) == ("done", ["Kim", "Bob"])
    assert not await runner.verify(second)
    assert not await runner.verify(third)
