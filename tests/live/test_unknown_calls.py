"""Calls that may have happened: never made again blindly, never told as failed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio import activity

from holdfast import AgentRunner, Task, ToolContext, tool
from holdfast.activities.data import large_values
from holdfast.activities.data.source import Source
from holdfast.activities.tools import lookup
from holdfast.agents.tools.context import Effect
from holdfast.archive.archive import Archive
from holdfast.errors import (
    ArchiveError,
    StepFailedError,
    ToolTimeoutError,
    UndoRefusedError,
    UserError,
)
from holdfast.testing import FakeOpenAI
from tests.support.people import World, ask
from tests.support.rig import MakeAgent, MakeRunner, Rig, until_status
from tests.support.undos import cut_off, hanging


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the archive refuse what is large, and nobody wait for it."""
    put = Archive.put

    def failing(self: Archive, data: bytes) -> str:
        if len(data) > 50_000:
            raise ArchiveError("the disk is full")
        return put(self, data)

    monkeypatch.setattr(Archive, "put", failing)
    monkeypatch.setattr(large_values, "PATIENCE_SECONDS", (0.01,))


def not_found(effect: Effect) -> None:
    return None


def slow(world: World, **options: Any) -> Any:
    """Make a tool that acts and then takes too long."""

    @tool(timeout_seconds=0.2, **options)
    async def pay(account: str) -> str:
        """Pay."""
        world.done.append(f"pay {account}")
        await asyncio.Event().wait()
        return "late"

    return pay


async def run_to_question(runner: AgentRunner, model: FakeOpenAI) -> Task:
    """Start a task that calls `pay`, and return it once it waits for a person."""
    model.call("pay", {"account": "bo"})
    task = await runner.create_task("q")
    output = await runner.run_step(task)
    assert output.status == "waiting"
    return task


async def test_a_timeout_of_a_call_that_is_not_repeatable_is_unknown(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    pay = slow(world, timeout_behavior="raise_exception", max_attempts=3)
    runner = await make_runner(pay)
    task = await run_to_question(runner, model)
    asked = await ask(runner, task)
    assert asked.kind == "unknown"
    assert "timed out after 0.2 seconds. It is not known" in asked.text
    with pytest.raises(UndoRefusedError, match="may have happened"):
        await runner.undo_step(task)
    model.reply("paid")
    asked = await ask(runner, task)
    await runner.respond(asked, by="ann", result="paid, says the bank")
    assert str(await runner.run_task(task)) == "paid"
    assert world.done == ["pay bo"]


async def test_a_timeout_of_a_repeatable_call_is_told_to_the_model(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    runner = await make_runner(slow(world, idempotent=True))
    model.call("pay", {"account": "bo"})
    model.reply("sorry")
    response = await runner.chat("q")
    assert "timed out after 0.2 seconds" in response.sources[0].content
    assert response.sources[0].status == "failed"


async def test_a_timeout_that_a_probe_knows_to_have_done_nothing_ends_the_task_if_it_is_to(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    pay = slow(world, probe=not_found, timeout_behavior="raise_exception")
    runner = await make_runner(pay)
    model.call("pay", {"account": "bo"})
    task = await runner.create_task("q")
    with pytest.raises(ToolTimeoutError):
        await runner.run_task(task)
    await until_status(runner, task, "failed")


@pytest.mark.usefixtures("full_disk")
async def test_a_call_whose_result_cannot_be_stored_is_unknown(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    @tool
    def pay(account: str) -> str:
        """Pay, with much to say."""
        world.done.append(f"pay {account}")
        return "x" * 60_000

    runner = await make_runner(pay)
    task = await run_to_question(runner, model)
    asked = await ask(runner, task)
    assert (asked.kind, "the disk is full" in asked.text) == ("unknown", True)
    assert (await runner.run_step(task)).status == "waiting"
    assert world.done == ["pay bo"]


@pytest.mark.usefixtures("full_disk")
async def test_a_call_whose_change_of_the_state_cannot_be_recorded_is_made_once(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    @tool
    def pay(ctx: ToolContext, account: str) -> str:
        """Pay, and change the state."""
        world.done.append(f"pay {account}")
        ctx.state["kept"] = "x" * 300_000
        return "paid"

    runner = await make_runner(pay)
    model.call("pay", {"account": "bo"})
    model.reply("done")
    task = await runner.create_task("q")
    output = await runner.run_step(task)
    [told] = output.sources
    assert told.status == "done"
    assert "pay' ran, but its change of the state was not kept" in told.content
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay bo"]
    assert (await runner.get_task(task)).extra_state == {}


# Undo


async def test_an_idempotent_undo_that_was_cut_off_is_called_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World
) -> None:
    _, _, undone = await cut_off(rig, make_agent, model, world, undo_idempotent=True)
    receipt = await undone
    assert receipt.undone == ('book({"city": "rome"})',)
    assert world.done == ["cancel rome"] * 2


async def test_an_undo_whose_task_cannot_be_read_is_called_once_it_can(
    make_runner: MakeRunner, model: FakeOpenAI, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.activities.data.source import Source

    status, failed = Source.status, list[int]()

    async def failing(self: Source) -> Any:
        if not failed:
            failed.append(1)
            raise ArchiveError("for a moment")
        return await status(self)

    cut = asyncio.Event()
    world.done.append("before")
    runner = await make_runner(hanging(world, cut))
    model.call("book", {"city": "rome"})
    task = await runner.create_task("q")
    await runner.run_step(task)
    monkeypatch.setattr(Source, "status", failing)
    await runner.undo_step(task)
    assert (failed, world.done) == ([1], ["before", "cancel rome"])


async def test_a_deploy_that_fits_no_more_hides_no_effect_of_the_attempt_before(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    booked: list[str] = []
    undone: list[str] = []
    written, fits = Source.written, lookup.check_fits

    async def lost_once(source: Source, outcome: Any) -> None:
        if activity.info().attempt == 1:
            raise ArchiveError("the disk is full")
        await written(source, outcome)

    def fits_at_first(*given: Any) -> None:
        if activity.info().attempt > 1:
            raise UserError("Tool 'book' is another one since a deploy.")
        fits(*given)

    monkeypatch.setattr(Source, "written", lost_once)
    monkeypatch.setattr(lookup, "check_fits", fits_at_first)

    def cancel(effect: Effect) -> None:
        undone.append(str(effect.arguments["city"]))

    @tool(effect="reversible", undo=cancel, idempotent=True)
    async def book(city: str) -> str:
        """Book."""
        booked.append(city)
        return "booked"

    runner = await make_runner(book)
    model.call("book", {"city": "Rome"})
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="another one since a deploy"):
        await runner.run_task(task)
    with pytest.raises(UndoRefusedError, match="may have happened"):
        await runner.undo_step(task, by="ann")
    await runner.undo_step(task, by="ann", residue="keep")
    assert (booked, undone) == (["Rome"], [])
    [told] = [event for event in await runner.audit(task) if event.kind == "tool_call"]
    assert told.status == "unknown"
