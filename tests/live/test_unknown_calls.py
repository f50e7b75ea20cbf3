"""Calls that may have happened: never made again blindly, never told as failed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentRunner, Task, tool
from holdfast.activities.data import source
from holdfast.archive.archive import Archive
from holdfast.errors import ArchiveError, UndoRefusedError
from holdfast.testing import FakeOpenAI
from tests.support.people import World, ask
from tests.support.rig import MakeAgent, MakeRunner, Rig
from tests.support.undos import cut_off


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the archive refuse what is large, and nobody wait for it."""
    put = Archive.put

    def failing(self: Archive, data: bytes) -> str:
        if len(data) > 50_000:
            raise ArchiveError("the disk is full")
        return put(self, data)

    monkeypatch.setattr(Archive, "put", failing)
    monkeypatch.setattr(source, "PATIENCE_SECONDS", (0.01,))


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


# Undo


async def test_an_idempotent_undo_that_was_cut_off_is_called_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World
) -> None:
    _, _, undone = await cut_off(rig, make_agent, model, world, undo_idempotent=True)
    receipt = await undone
    assert receipt.undone == ('book({"city": "rome"})',)
    assert world.done == ["cancel rome"] * 2
