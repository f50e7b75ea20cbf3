"""What a parent says to its child at bad moments: while that undoes, closes or rolls over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentRunner, tool
from holdfast.activities import task_end as closing
from holdfast.agents.tools.decorator import Tool
from holdfast.archive import segments
from holdfast.errors import (
    UndoRefusedError,
)
from holdfast.task.data.children import REPORTS, SAYS, ChildReport, ParentSays
from holdfast.testing import FakeOpenAI
from tests.support.people import World, ask
from tests.support.rig import MakeAgent, Rig, event_types, until, until_status
from tests.support.runs import pay


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def book(world: World) -> Tool:
    @tool(undo=lambda effect: world.done.append("cancel"))
    async def book() -> str:
        """Book."""
        world.done.append("book")
        return "booked"

    return book


class Gate:
    """Stands in for a function of an activity that waits, and then fails or does its work."""

    def __init__(self, real: Any, *, fails: bool = False, open_: bool = False) -> None:
        self.real = real
        self.fails = fails
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        if open_:
            self.opened.set()

    async def __call__(self, *given: Any) -> Any:
        self.reached.set()
        await self.opened.wait()
        if self.fails:
            self.fails = False
            msg = "the disk is full"
            raise ValueError(msg)
        return await self.real(*given)


async def until_said(runner: AgentRunner, child: str, count: int) -> None:
    """Wait until a child has got this many signals."""

    async def condition() -> bool:
        types = await event_types(runner.client, child)
        return types.count("WORKFLOW_EXECUTION_SIGNALED") >= count

    await until(condition)


async def test_an_undo_said_to_a_child_that_then_fails_to_close_is_answered(  # noqa: PLR0917  fixtures
    rig: Rig,
    make_agent: MakeAgent,
    model: FakeOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    world: World,
    book: Tool,
) -> None:
    gate = Gate(segments.write_record, fails=True)
    helper = make_agent(book, name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.call("book", {})
    model.reply("helped")
    task = await runner.create_task("q")
    await runner.run_step(task)
    monkeypatch.setattr(closing, "write_record", gate)
    child = f"{task.task_id}~0.1.0.0"
    await runner.abandon(child, "enough")
    await gate.reached.wait()
    undoing = asyncio.create_task(runner.undo_step(task))
    await until_said(runner, child, 2)
    gate.opened.set()
    async with asyncio.timeout(100):
        with pytest.raises(UndoRefusedError, match=r"closed|is to be abandoned"):
            await undoing
    assert world.done == ["book"]
    await until_status(runner, child, "abandoned")


async def refusals(runner: AgentRunner, task: str, count: int) -> list[str]:
    """Wait until a task has recorded so many refusals, and return their reasons."""
    found: list[str] = []

    async def condition() -> bool:
        events = await runner.audit(task)
        found[:] = [event.reason for event in events if event.kind == "refused"]
        return len(found) >= count

    await until(condition)
    return found


async def test_signals_in_the_name_of_parent_and_child_are_refused_and_change_nothing(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(pay, name="helper")
    await rig.serve(make_agent(helper.as_tool(tool_description="Helps."), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "how?"})
    model.call("pay", {})
    model.reply("like this")
    model.reply("all done")
    task = await runner.create_task("please")
    await runner.run_task(task)
    asked = await ask(runner, task)
    child = asked.id.rpartition(":")[0]
    for number, said in enumerate(
        (
            ParentSays(number=99, end="abandon", by="mallory"),
            ParentSays(number=99, undo="do", secret="guessed"),
            ParentSays(number=99, paused="mallory", secret=child),
        ),
        1,
    ):
        await runner.client.get_workflow_handle(child).signal(SAYS, said)
        await refusals(runner, child, number)
    parent = runner.client.get_workflow_handle(task.task_id)
    for number, secret in enumerate(("", "guessed"), 1):
        report = ChildReport(id=child, secret=secret, status="failed", closed=True, heard=99)
        await parent.signal(REPORTS, report)
        await refusals(runner, task.task_id, number)
    await parent.signal(SAYS, ParentSays(number=1, end="abandon", secret=""))
    [first, _, last] = await refusals(runner, task.task_id, 3)
    assert "did not come from that task" in first
    assert "did not come from a task that this one works for" in last
    await runner.approve(asked, "ann")
    assert str(await runner.run_task(task)) == "all done"
