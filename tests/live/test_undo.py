"""Undo and rewind: the task is as it was, the world as far as tools can take it back."""

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import pytest

from holdfast import AgentRunner, Task, TaskStepOutput, ToolContext, tool
from holdfast.activities.data.source import Source
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.client.agent_runner.task_client.task_client import TaskClient
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    StepNotFoundError,
    UndoRefusedError,
)
from holdfast.task.data.wire import View, ViewRequest
from holdfast.task.queries import readable
from holdfast.testing import call
from holdfast.values.steps import UndoReceipt
from tests.support.people import ask
from tests.support.rig import Rig, World, roll, step_a_task, until, until_status, until_steps
from tests.support.workers import Counting


@pytest.fixture
def book(world: World) -> Tool:
    """A tool whose calls can be taken back."""

    async def cancel(effect: Effect) -> str:
        assert effect.status == "done"
        world.done.append(f"cancel {effect.arguments['city']}")
        return f"cancelled {effect.result}"

    @tool(undo=cancel)
    async def book(ctx: ToolContext, city: str) -> str:
        """Book."""
        world.done.append(f"book {city}")
        world.keys.append(ctx.idempotency_key)
        ctx.state["trips"] = [*ctx.state.get("trips", []), city]
        return f"booked {city}"

    return book


async def picture(runner: AgentRunner, task: Task) -> str:
    """Return everything of a task that an undo must bring back, as text."""
    found = await runner.get_task(task)
    head = await runner.client.get_workflow_handle(task.task_id).query(
        "view", ViewRequest(head=True, have=0, upto=10_000), result_type=View
    )
    return json.dumps(
        {
            "queue": [s.wire() for s in await runner.get_upcoming_steps(task)],
            "done": [o.wire() for o in await runner.get_completed_steps(task)],
            "state": found.extra_state,
            "steps": found.steps,
            "status": found.status,
            "transcript": [m.wire() for m in await runner.transcript(task)],
            "base": head.base,
        },
        sort_keys=True,
    )


async def test_an_id_of_another_request_is_not_answered_as_if_it_had_undone(
    rig: Rig, book: Tool
) -> None:
    runner = await rig.make(book)
    rig.model.add(call("book", {"city": "rome"}), call("book", {"city": "oslo"}), "done")
    task = await runner.create_task("q")
    steps = [(await runner.run_step(task, request_id=f"r{k}")).task_step.step_id for k in range(3)]
    assert (await runner.undo_step(task, request_id="r0")).steps == (steps[2],)
    assert (await runner.rewind(task, steps[0], request_id="r0")).steps == (steps[1],)
    assert (await runner.get_task(task)).steps == 1


async def test_undo_of_done_steps_restores_the_task_byte_for_byte_and_tells_the_model(
    rig: Rig, book: Tool
) -> None:
    runner = await rig.make(book)
    rig.model.add(call("book", {"city": "rome"}), call("book", {"city": "oslo"}), "done")
    task = await runner.create_task("q", extra_state={"trips": [], "who": {"name": "bo"}})
    pictures = [await picture(runner, task)]
    outputs: list[TaskStepOutput] = []
    for _ in range(3):
        outputs.append(await runner.run_step(task))
        pictures.append(await picture(runner, task))
    assert len(set(pictures)) == 4
    calls = [('book({"city": "rome"})',), ('book({"city": "oslo"})',), ()]
    for k in (2, 1, 0):
        receipt = await runner.undo_step(task, by="ann", reason="wrong month", request_id=f"u{k}")
        assert receipt.steps == (outputs[k].task_step.step_id,)
        assert receipt == await runner.undo_step(task, request_id=f"u{k}")
        assert receipt == await runner.undo_step(task, request_id=f"undo::u{k}")
        assert await picture(runner, task) == pictures[k]
        assert (receipt.undone, receipt.remains, receipt.check) == (calls[k], (), ())
    assert rig.world.done == ["book rome", "book oslo", "cancel oslo", "cancel rome"]
    undone = await runner.get_completed_steps(task, undone=True)
    assert [(o.status, o.output) for o in undone] == [("undone", o.output) for o in outputs]
    events = [e.reason for e in await runner.audit(task) if e.kind == "effect_undone"]
    assert events == ["cancelled booked oslo", "cancelled booked rome"]
    assert await runner.verify(task) == []
    with pytest.raises(InvalidArgumentError, match="no step to undo"):
        await runner.undo_step(task)
    rig.model.add(call("book", {"city": "rome"}), "done")
    await runner.run_task(task)
    assert len(set(rig.world.keys)) == 3  # the same call has another key
    second, third = ([m.text for m in r.messages] for r in rig.model.requests[-2:])
    [note] = [text for text in second if 'book({"city": "rome"})' in text]
    assert "undone by ann" in note
    assert "wrong month" in note
    assert third.count(note) == 1  # it stays in the transcript, once
    assert "booked rome" not in "".join(second)


async def test_an_effect_that_cannot_be_undone_refuses_with_a_list_or_is_kept_as_residue(
    rig: Rig, book: Tool, send: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    runner = await rig.make(book, send, look, fail)
    rig.model.calls(
        [
            ("book", {"city": "rome"}),
            ("send", {"text": "hi"}),
            ("look", {}),  # what follows is not in the way
            ("fail", {}),
            ("nope", {}),
            ("fail", "{bad"),
        ]
    )
    rig.model.call("send", {"text": "ho"})
    rig.model.reply("done")
    task = await runner.create_task("q")
    before = await picture(runner, task)
    for _ in range(3):
        await runner.run_step(task)
    with pytest.raises(UndoRefusedError) as caught:
        await runner.rewind(task, to="s1")
    assert 'step 2: send({"text": "ho"})' in str(caught.value)
    assert '"hi"' not in str(caught.value)
    assert (await runner.get_task(task)).steps == 3
    assert sorted(rig.world.done) == ["book rome", "send hi", "send ho"]
    await runner.rewind(task, to="s1", residue="keep")
    receipt = await runner.undo_step(task, residue="keep", by="ann")
    assert receipt.undone == ('book({"city": "rome"})',)
    [remains] = receipt.remains
    assert 'send({"text": "hi"})' in remains
    assert receipt.check == ()
    assert await picture(runner, task) == before
    for room in (readable.WHOLE_BYTES, 0):  # also where there is no room for a call in whole
        monkeypatch.setattr(readable, "WHOLE_BYTES", room)
        found = await runner.client.get_workflow_handle(task.task_id).query("effects")
        sent = next(each for each in found if each["tool"] == "send")
        assert (sent["status"], sent["remains"]) == ("done", True)
        assert next(each for each in found if each["tool"] == "book")["undone"]["by"] == "ann"
    rig.model.reply("done")
    assert str(await runner.run_step(task)) == "done"
    told = [m.text for m in rig.model.requests[-1].messages]
    assert any("Still in the world" in text and "hi" in text for text in told)
    undone = [e for e in await runner.audit(task) if e.kind == "undone"][-1]
    assert (undone.body["remains"], undone.actor) == ([remains], "ann")


async def test_an_undo_that_takes_the_effect_alone_asks_the_task_nothing(
    rig: Rig, book: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await rig.make(book)
    rig.model.call("book", {"city": "rome"})
    task = await step_a_task(runner)
    monkeypatch.delattr(Source, "status")
    receipt = await runner.undo_step(task, by="ann")
    assert (receipt.undone, rig.world.done[-1]) == (('book({"city": "rome"})',), "cancel rome")


async def test_an_undo_that_needs_approval_waits_for_it_also_over_a_rollover(rig: Rig) -> None:
    @tool(undo=lambda effect: rig.world.done.append("cancel"), undo_needs_approval=True)
    def book(city: str) -> str:
        """Book."""
        rig.world.done.append("book")
        return "booked"

    runner = await rig.make(book, roll_events=50)
    rig.model.add(call("book", {"city": "rome"}), call("book", {"city": "oslo"}))
    task = await runner.create_task("q")
    before = await picture(runner, task)
    await runner.run_step(task)
    after = await picture(runner, task)
    assert (await runner.undo_step(task, by="ann", request_id="u1")).status == "waiting"
    approval = await ask(runner, task)
    assert (approval.kind, approval.arguments) == ("undo", '{"city": "rome"}')
    output = await runner.run_step(task)
    assert output.status == "waiting"
    assert "undo" in output.waiting_for[0]
    with pytest.raises(CommandRefusedError, match="Another undo"):
        await runner.undo_step(task)
    assert (await runner.undo_step(task, request_id="u1")).status == "waiting"
    with pytest.raises(CommandRefusedError):
        await runner.approve(approval, "ann", {"city": "x"})
    await runner.reject(approval, "ben", "keep it")

    async def is_over() -> bool:
        now = json.loads(await picture(runner, task))
        return bool(now | {"base": 0} == json.loads(after) | {"base": 0})  # it may have rolled over

    await until(is_over)
    assert rig.world.done == ["book"]
    assert (await runner.undo_step(task, request_id="u2")).status == "waiting"  # asks once more
    second = await ask(runner, task)
    assert second.id != approval.id
    await roll(runner, task)
    await runner.approve(second, "ben")
    await until_steps(runner, task, 0)
    assert rig.world.done == ["book", "cancel"]
    assert json.loads(await picture(runner, task)) | {"base": 0} == json.loads(before)
    again = await runner.undo_step(task, request_id="u2")
    assert (again.status, again.undone) == ("done", ('book({"city": "rome"})',))
    assert (await runner.run_step(task)).status == "done"  # the task goes on
    assert (await runner.undo_step(task, request_id="u3")).status == "waiting"
    await runner.approve(await ask(runner, task), "ben")
    await until_steps(runner, task, 0)
    third = await runner.undo_step(task, request_id="u3")  # the server has kept "waiting"
    assert (third.status, third.undone) == ("done", ('book({"city": "oslo"})',))


async def test_a_refused_undo_never_repeats_the_call_that_it_cut_off_and_a_later_one_has_its_result(
    rig: Rig,
) -> None:
    def take_back(effect: Effect) -> None:
        rig.world.done.append(f"undo {effect.arguments} {effect.result}")

    began = asyncio.Event()

    @tool(undo=take_back)
    async def slow(thing: str) -> None:
        """Take long."""
        rig.world.done.append(f"begin {thing}")
        began.set()
        await asyncio.Event().wait()

    runner = await rig.make(slow)
    rig.model.add(call("slow", {"thing": "a"}), "done")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await began.wait()
    with pytest.raises(UndoRefusedError, match="its outcome is unknown"):
        await runner.undo_step(task)
    assert (await waiting).status == "waiting"
    approval = await ask(runner, task)
    assert approval.kind == "unknown"
    with pytest.raises(UndoRefusedError, match="its outcome is unknown"):
        await runner.undo_step(task)
    assert (await ask(runner, task)).id == approval.id
    await runner.respond(approval, "ann", {"id": 7})
    await until_steps(runner, task, 1)
    await runner.undo_step(task)
    assert rig.world.done == ["begin a", "undo {'thing': 'a'} {'id': 7}"]
    assert str(await runner.run_task(task)) == "done"


# ---- undo and rewind name the steps that they are for; the task undoes no others in their place


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    return await rig.make(worker=Counting(9))


async def counted(runner: AgentRunner, steps: int, **options: Any) -> Task:
    task = await runner.create_task("q", **options)
    for _ in range(steps):
        await runner.run_step(task)
    return task


async def counts(runner: AgentRunner, task: Task) -> list[tuple[int, int]]:
    """List branch and number of the steps that stand."""
    return [(o.branch, o.output["count"]) for o in await runner.get_completed_steps(task)]


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Have something happen after an undo was asked for, and before the task gets it."""
    real = TaskClient.undo

    async def undo(self: TaskClient, *args: Any) -> Any:
        monkeypatch.undo()
        await happens()
        return await real(self, *args)

    monkeypatch.setattr(TaskClient, "undo", undo)


async def test_a_rewind_to_a_step_that_was_undone_and_run_again_undoes_nothing(
    runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await counted(runner, 1)
    second = await runner.run_step(task)
    await runner.run_step(task)

    async def happens() -> None:
        await runner.rewind(task, to="s1", by="ben")
        for _ in range(3):
            await runner.run_step(task)

    meanwhile(monkeypatch, happens)
    with pytest.raises(StepNotFoundError, match=r"'s2', number 2 of branch 0, was undone"):
        await runner.rewind(task, to="s2", by="ann")
    with pytest.raises(StepNotFoundError, match="was undone meanwhile, and nothing was changed"):
        await runner.rewind(task, to=second)
    assert await counts(runner, task) == [(0, 1), (1, 2), (1, 3), (1, 4)]


async def test_an_undo_of_the_newest_step_does_not_take_back_a_newer_one(
    runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await counted(runner, 1)

    async def happens() -> None:
        await runner.run_step(task)

    meanwhile(monkeypatch, happens)
    with pytest.raises(CommandRefusedError, match=r"'s1'.*another step has begun.*'s2'"):
        await runner.undo_step(task)
    first = await runner.undo_step(task, request_id="u")
    await runner.run_step(task)
    assert await runner.undo_step(task, request_id="u") == first  # it was done
    assert await counts(runner, task) == [(0, 1), (1, 2)]


# ---- an undo that may have taken effect: no later undo calls it again as if nothing had been tried

TRIED = r"(?s)undo of book.*was tried before.*not known whether it took effect.*Approve:.*Respond:"


def hanging(world: World, cut: asyncio.Event, **options: Any) -> Tool:
    """Make a tool whose `undo=` acts and then does not end, the first time."""

    async def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['city']}")
        if len(world.done) == 1:
            cut.set()
            await asyncio.Event().wait()
        return "cancelled"

    @tool(undo=cancel, **options)
    def book(city: str) -> str:
        """Book."""
        return f"booked {city}"

    return book


async def cut_off(
    rig: Rig, *, roll_events: int = 2000, **options: Any
) -> tuple[AgentRunner, Task, asyncio.Task[Any]]:
    """Undo a booking and stop the worker while the undo runs; another one takes its place."""
    cut = asyncio.Event()
    agent = rig.agent(hanging(rig.world, cut, **options))
    await rig.serve(agent, graceful_shutdown_timeout=timedelta(seconds=0))
    runner = rig.runner(roll_events=roll_events)
    rig.model.call("book", {"city": "rome"})
    task = await step_a_task(runner)
    undone = asyncio.create_task(runner.undo_step(task, by="ann"))
    await cut.wait()
    await rig.serve(agent)
    return runner, task, undone


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


async def test_after_a_rejection_the_next_undo_asks_again_and_says_what_was_tried(rig: Rig) -> None:
    runner, task, undone = await cut_off(rig, roll_events=50)
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
    await until_steps(runner, task, 0)
    assert rig.world.done == ["cancel rome"]
    events = [(e.kind, e.actor, e.reason) for e in await runner.audit(task)]
    assert ("effect_undone", "bo", "cancelled, says the hotel") in events


async def test_an_idempotent_undo_that_was_cut_off_is_called_again(rig: Rig) -> None:
    _, _, undone = await cut_off(rig, undo_idempotent=True)
    assert (await undone).undone == ('book({"city": "rome"})',)
    assert rig.world.done == ["cancel rome"] * 2
