"""An undo that may have taken effect: no later undo calls it again as if nothing had been tried."""

import re

from holdfast import AgentRunner, Task, tool
from holdfast.agents.tools.context import Effect
from holdfast.errors import CommandRefusedError
from holdfast.values.steps import UndoReceipt
from tests.support.people import ask, kinds
from tests.support.rig import Rig, roll, until, until_status
from tests.support.undos import cut_off, until_undone

TRIED = r"(?s)undo of book.*was tried before.*not known whether it took effect.*Approve:.*Respond:"


async def reject(runner: AgentRunner, task: Task) -> None:
    """Reject the question about an undo; that ends the undo, soon."""
    await runner.reject(await ask(runner, task), "bo", "do not repeat it")
    await until_status(runner, task, "running")


async def undo(runner: AgentRunner, task: Task) -> UndoReceipt:
    """Undo the newest step, once the undo before has ended."""

    async def begun() -> UndoReceipt | None:
        try:
            return await runner.undo_step(task)
        except CommandRefusedError as error:
            if "in progress" not in str(error):
                raise
            return None

    receipt = await until(begun)
    assert receipt is not None
    return receipt


async def until_failed(runner: AgentRunner, task: Task) -> None:
    """Wait until an undo has failed."""

    async def condition() -> bool:
        return "undo_failed" in await kinds(runner, task)

    await until(condition)
    await until_status(runner, task, "running")


async def test_after_a_rejection_the_next_undo_asks_again_and_says_what_was_tried(rig: Rig) -> None:
    runner, task, undone = await cut_off(rig, rig.world, roll_events=50)
    first = await ask(runner, task)
    assert first.kind == "undo"
    assert "It is not known whether it took effect" in first.text
    assert (await undone).status == "waiting"
    await reject(runner, task)
    rig.model.reply("still booked")
    await runner.run_step(task)
    told = "it is unknown whether this was undone: book"
    assert any(told in message.text for message in rig.model.requests[-1].messages)
    await runner.undo_step(task)  # the answer alone
    await roll(runner, task)
    for _ in range(2):
        assert (await undo(runner, task)).status == "waiting"
        asked = await ask(runner, task)
        assert asked.kind == "undo"
        assert re.search(TRIED, asked.text)
        assert rig.world.done == ["cancel rome"]
        await reject(runner, task)
    assert (await undo(runner, task)).status == "waiting"
    await runner.respond(await ask(runner, task), by="bo", result="cancelled, says the hotel")
    await until_undone(runner, task)
    assert rig.world.done == ["cancel rome"]
    events = [(e.kind, e.actor, e.reason) for e in await runner.audit(task)]
    assert ("effect_undone", "bo", "cancelled, says the hotel") in events


async def test_an_effect_of_which_a_person_said_that_it_is_undone_is_never_undone_again(
    rig: Rig,
) -> None:
    """Not by the same undo, which fails at an older effect, nor by the next one."""
    broken = ["the hotel does not answer"]

    def cancel(_effect: Effect) -> None:
        rig.world.done.append("cancel old")
        if broken:
            raise ValueError(broken[0])

    @tool(undo=cancel)
    def book_first() -> str:
        """Book."""
        return "booked"

    runner, task, undone = await cut_off(rig, rig.world, before=book_first)
    assert (await undone).status == "waiting"
    await runner.respond(await ask(runner, task), by="bo", result="cancelled, says the hotel")
    await until_failed(runner, task)
    broken.clear()
    assert (await runner.undo_step(task)).status == "done"
    assert rig.world.done == ["cancel rome", "cancel old", "cancel old"]


async def test_an_idempotent_undo_that_was_cut_off_is_called_again(rig: Rig) -> None:
    _, _, undone = await cut_off(rig, rig.world, undo_idempotent=True)
    receipt = await undone
    assert receipt.undone == ('book({"city": "rome"})',)
    assert rig.world.done == ["cancel rome"] * 2
