"""Undo and rewind: the task is as it was, the world as far as tools can take it back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast import AgentRunner, Budget, Task, TaskStep, TaskStepOutput, ToolContext, tool
from holdfast.agents.items.run_items import ToolCallItem, ToolCallOutputItem
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    TaskClosedError,
    UndoFailedError,
    UndoRefusedError,
)
from holdfast.reading.streams.events import RunItemStreamEvent
from holdfast.task.queries.views import View, ViewRequest
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import ToolCall, assistant
from holdfast.workers import StepContext
from holdfast.workflows import agent_task
from holdfast.workflows.undo import effect_undo
from tests.support.people import World, ask, kinds
from tests.support.rig import (
    MakeAgent,
    MakeRunner,
    Rig,
    activities_of,
    event_types,
    histories,
    until,
    until_status,
)
from tests.support.workers import Doing, ends


@pytest.fixture
def world() -> World:
    return World()


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


@pytest.fixture
def send(world: World) -> Tool:
    """A tool whose calls cannot be taken back."""

    @tool
    async def send(text: str) -> str:
        """Send."""
        world.done.append(f"send {text}")
        return f"sent {text}"

    return send


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


async def test_undo_of_a_done_step_restores_the_task_byte_for_byte(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool, world: World
) -> None:
    runner = await make_runner(book)
    model.call("book", {"city": "rome"})
    model.call("book", {"city": "oslo"})
    model.reply("done")
    task = await runner.create_task("q", extra_state={"trips": [], "who": {"name": "bo"}})
    pictures = [await picture(runner, task)]
    outputs: list[TaskStepOutput] = []
    for _ in range(3):
        outputs.append(await runner.run_step(task))
        pictures.append(await picture(runner, task))
    assert len(set(pictures)) == 4
    for k in (2, 1, 0):
        receipt = await runner.undo_step(task, by="ann", reason="wrong")
        assert receipt.steps == (outputs[k].task_step.step_id,)
        assert await picture(runner, task) == pictures[k]
    assert world.done == ["book rome", "book oslo", "cancel oslo", "cancel rome"]
    undone = await runner.get_completed_steps(task, undone=True)
    assert [o.status for o in undone] == ["undone"] * 3
    assert [o.output for o in undone] == [o.output for o in outputs]
    assert await runner.verify(task) == []
    with pytest.raises(InvalidArgumentError, match="no step to undo"):
        await runner.undo_step(task)


async def test_the_receipt_names_what_was_undone_newest_first(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool, world: World
) -> None:
    runner = await make_runner(book)
    model.calls([("book", {"city": "rome"}), ("book", {"city": "oslo"})])
    model.call("book", {"city": "bern"})
    model.reply("done")
    task = await runner.create_task("q")
    outputs = [await runner.run_step(task) for _ in range(3)]
    done = list(world.done)
    receipt = await runner.rewind(task, to=outputs[0])
    assert receipt.undone == ('book({"city": "bern"})',)
    assert receipt.steps == ("s2", "s3")
    receipt = await runner.undo_step(task)
    assert receipt.undone == ('book({"city": "oslo"})', 'book({"city": "rome"})')
    assert (receipt.remains, receipt.check, receipt.status) == ((), (), "done")
    assert world.done[len(done) :] == ["cancel bern", "cancel oslo", "cancel rome"]
    events = [e for e in await runner.audit(task) if e.kind == "effect_undone"]
    assert [e.reason for e in events] == [f"cancelled booked {c}" for c in ("bern", "oslo", "rome")]


async def test_after_an_undo_the_model_is_told_and_the_key_of_the_same_call_differs(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool, world: World
) -> None:
    runner = await make_runner(book)
    model.call("book", {"city": "rome"})
    model.call("book", {"city": "rome"})
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.undo_step(task, by="ann", reason="wrong month")
    await runner.run_step(task)
    assert str(await runner.run_step(task)) == "done"
    assert len(set(world.keys)) == 2
    assert world.done == ["book rome", "cancel rome", "book rome"]
    second, third = model.requests[1:]
    notes = [m.text for m in second.messages if m.role in ("system", "developer")]
    [note] = [text for text in notes if "undone" in text]
    assert "by ann" in note
    assert "wrong month" in note
    assert 'book({"city": "rome"})' in note
    texts = [m.text for m in third.messages]
    assert texts.count(note) == 1  # it stays in the transcript, once
    assert "booked rome" not in "".join(m.text for m in second.messages)


async def test_an_effect_that_cannot_be_undone_refuses_with_a_list_and_changes_nothing(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool, send: Tool, world: World
) -> None:
    runner = await make_runner(book, send)
    model.calls([("book", {"city": "rome"}), ("send", {"text": "hi"})])
    model.call("send", {"text": "ho"})
    model.reply("done")
    task = await runner.create_task("q")
    for _ in range(3):
        await runner.run_step(task)
    before = await picture(runner, task)
    with pytest.raises(UndoRefusedError) as caught:
        await runner.rewind(task, to="s1")
    assert 'step 2: send({"text": "ho"})' in str(caught.value)
    assert '"hi"' not in str(caught.value)
    await runner.undo_step(task)  # the last one had no effects
    with pytest.raises(UndoRefusedError):
        await runner.undo_step(task)
    assert sorted(world.done) == ["book rome", "send hi", "send ho"]
    model.reply("done again")
    assert str(await runner.run_step(task)) == "done again"
    assert json.loads(await picture(runner, task))["state"] == json.loads(before)["state"]


async def test_residue_keep_undoes_the_rest_and_writes_down_what_remains(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool, send: Tool, world: World
) -> None:
    runner = await make_runner(book, send)
    model.calls([("book", {"city": "rome"}), ("send", {"text": "hi"})])
    model.reply("done")
    task = await runner.create_task("q")
    before = await picture(runner, task)
    await runner.run_step(task)
    receipt = await runner.undo_step(task, residue="keep", by="ann")
    assert receipt.undone == ('book({"city": "rome"})',)
    [remains] = receipt.remains
    assert 'send({"text": "hi"})' in remains
    assert receipt.check == ()
    assert await picture(runner, task) == before
    handle = runner.client.get_workflow_handle(task.task_id)
    booked, sent = await handle.query("effects")
    assert (sent["tool"], sent["status"], sent["remains"]) == ("send", "done", True)
    assert (booked["tool"], booked["undone"]["by"]) == ("book", "ann")
    assert str(await runner.run_step(task)) == "done"
    assert any(
        "Still in the world" in m.text and "hi" in m.text for m in model.requests[1].messages
    )
    [undone] = [e for e in await runner.audit(task) if e.kind == "undone"]
    assert undone.body["remains"] == [remains]
    assert undone.actor == "ann"


async def test_reads_and_failed_calls_do_not_stand_in_the_way(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    runner = await make_runner(look, fail)
    model.calls([("look", {}), ("fail", {}), ("nope", {}), ("fail", "{bad")])
    task = await runner.create_task("q")
    await runner.run_step(task)
    receipt = await runner.undo_step(task)
    assert (receipt.undone, receipt.remains) == ((), ())


async def test_an_undo_that_fails_is_asked_again_and_nothing_is_undone_twice(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    broken = {"oslo"}

    def cancel(effect: Effect) -> None:
        city = effect.arguments["city"]
        if city in broken:
            raise ValueError(f"{city} does not answer")
        world.done.append(f"cancel {city}")

    @tool(undo=cancel)
    def book(city: str) -> str:
        """Book."""
        world.done.append(f"book {city}")
        return "booked"

    runner = await make_runner(book)
    model.call("book", {"city": "rome"})
    model.calls([("book", {"city": city}) for city in ("oslo", "bern")])
    model.reply("done")
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    before = await picture(runner, task)
    await runner.run_step(task)
    world.done.clear()
    for _ in range(2):
        with pytest.raises(UndoFailedError, match="oslo does not answer"):
            await runner.undo_step(task)
        assert world.done == ["cancel bern"]
    assert str(await runner.run_step(task)) == "done"
    assert any("bern" in m.text and "stand" in m.text for m in model.requests[2].messages)
    await runner.undo_step(task)  # only the answer
    with pytest.raises(UndoFailedError):
        await runner.undo_step(task)
    broken.clear()
    receipt = await runner.rewind(task, to=first)
    assert world.done == ["cancel bern", "cancel oslo"]
    assert receipt.undone == ('book({"city": "bern"})', 'book({"city": "oslo"})')
    assert await picture(runner, task) == before


async def test_an_idempotent_undo_that_fails_for_a_while_is_called_again(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    from holdfast.errors import ArchiveError

    def cancel(effect: Effect) -> None:
        world.done.append("try")
        if len(world.done) < 3:
            raise ArchiveError("for a moment")

    @tool(undo=cancel, undo_idempotent=True)
    def book(city: str) -> str:
        """Book."""
        return "booked"

    runner = await make_runner(book)
    model.call("book", {"city": "rome"})
    task = await runner.create_task("q")
    await runner.run_step(task)
    receipt = await runner.undo_step(task)
    assert receipt.undone == ('book({"city": "rome"})',)
    assert world.done == ["try"] * 3


async def test_an_undo_that_needs_approval_waits_and_is_done_after_it(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    @tool(undo=lambda effect: world.done.append("cancel"), undo_needs_approval=True)
    def book(city: str) -> str:
        """Book."""
        world.done.append("book")
        return "booked"

    runner = await make_runner(book)
    model.call("book", {"city": "rome"})
    model.call("book", {"city": "oslo"})
    task = await runner.create_task("q")
    before = await picture(runner, task)
    await runner.run_step(task)
    after = await picture(runner, task)
    receipt = await runner.undo_step(task, by="ann", request_id="u1")
    assert receipt.status == "waiting"
    approval = await ask(runner, task)
    assert (approval.kind, approval.tool, approval.arguments) == (
        "undo",
        "book",
        '{"city": "rome"}',
    )
    assert world.done == ["book"]
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
        return (await picture(runner, task)) == after

    await until(is_over)
    assert world.done == ["book"]
    assert (await runner.undo_step(task, request_id="u2")).status == "waiting"  # asks anew
    second = await ask(runner, task)
    assert second.id != approval.id
    await runner.approve(second, "ben")

    async def is_undone() -> bool:
        return (await runner.get_task(task)).steps == 0

    await until(is_undone)
    assert world.done == ["book", "cancel"]
    assert await picture(runner, task) == before
    again = await runner.undo_step(task, request_id="u2")
    assert (again.status, again.undone) == ("done", ('book({"city": "rome"})',))
    assert (await runner.run_step(task)).status == "done"  # the task goes on


async def test_an_undo_that_waits_for_approval_survives_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    @tool(undo=lambda effect: world.done.append("cancel"), undo_needs_approval=True)
    def book(city: str) -> str:
        """Book."""
        return "booked"

    runner = await make_runner(book, roll_events=50)
    model.call("book", {"city": "rome"})
    task = await runner.create_task("q")
    before = await picture(runner, task)
    await runner.run_step(task)
    assert (await runner.undo_step(task)).status == "waiting"
    while len(await histories(runner.client, task.task_id)) < 2:
        await runner.pause(task, by="ann")
        await runner.resume(task, by="ann")
    approval = await ask(runner, task)
    await runner.approve(approval, "ann")

    async def is_undone() -> bool:
        return (await runner.get_task(task)).steps == 0

    await until(is_undone)
    assert world.done == ["cancel"]
    assert await picture(runner, task) == before


async def test_undo_of_a_step_that_waits_for_approval_withdraws_it(
    make_runner: MakeRunner, model: FakeOpenAI, world: World, book: Tool
) -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError

    runner = await make_runner(pay, book)
    model.calls([("book", {"city": "rome"}), ("pay", {"amount": 5})])
    model.reply("done")
    task = await runner.create_task("q", extra_state={"trips": []})
    before = await picture(runner, task)
    assert (await runner.run_step(task)).status == "waiting"
    receipt = await runner.undo_step(task, by="ann")
    assert receipt.status == "done"
    assert receipt.undone == ('book({"city": "rome"})',)
    assert await picture(runner, task) == before
    assert await runner.pending_approvals(task) == []
    assert "withdrawn" in await kinds(runner, task)
    assert world.done == ["book rome", "cancel rome"]
    assert str(await runner.run_task(task)) == "done"


async def test_undo_of_a_running_step_cancels_the_model_call(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.hang()
    model.reply("second")
    task = await runner.create_task("q")
    before = await picture(runner, task)
    waiting = asyncio.create_task(runner.run_step(task))
    await model.until_held()
    receipt = await runner.undo_step(task)
    assert receipt.steps == ("s1",)
    with pytest.raises(CommandRefusedError, match="undone"):
        await waiting
    assert await picture(runner, task) == before
    model.release()
    assert str(await runner.run_step(task)) == "second"


class Slow:
    """A tool in flight: it says when it began, and heeds its cancellation, or not."""

    def __init__(self, world: World, *, heeds: bool = True, **options: Any) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = asyncio.Event()

        @tool(**options)
        async def slow(thing: str) -> str:
            """Take long."""
            world.done.append(f"begin {thing}")
            self.began.set()
            while not self.go.is_set():
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    if heeds:
                        raise
            world.done.append(f"end {thing}")
            self.ended.set()
            return f"slow {thing}"

        self.tool = slow


async def test_undo_of_a_step_with_a_tool_in_flight_counts_the_call_as_unknown(
    make_runner: MakeRunner, model: FakeOpenAI, world: World, book: Tool
) -> None:
    slow = Slow(world)
    runner = await make_runner(slow.tool, book)
    model.calls([("book", {"city": "rome"}), ("slow", {"thing": "a"})])
    model.reply("done")
    task = await runner.create_task("q", extra_state={"trips": []})
    before = await picture(runner, task)
    waiting = asyncio.create_task(runner.run_step(task))
    await slow.began.wait()

    async def booked() -> bool:
        names = await event_types(runner.client, task.task_id)
        return names.count("ACTIVITY_TASK_COMPLETED") == 3  # describe, step, book

    await until(booked)
    receipt = await runner.undo_step(task, residue="keep", by="ann")
    assert receipt.undone == ('book({"city": "rome"})',)
    assert len(receipt.remains) == 1
    assert receipt.check == receipt.remains
    assert "nobody knows" in receipt.check[0]
    found = await runner.client.get_workflow_handle(task.task_id).query("effects")
    assert {each["tool"]: each.get("remains", False) for each in found} == {
        "book": False,
        "slow": True,
    }
    with pytest.raises(CommandRefusedError, match="undone"):
        await waiting
    assert await picture(runner, task) == before
    assert sorted(world.done[:2]) == ["begin a", "book rome"]
    assert world.done[2:] == ["cancel rome"]
    assert str(await runner.run_task(task)) == "done"


async def test_run_task_in_flight_is_told_of_an_undo_and_the_task_waits_to_be_run(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    slow = Slow(world, effect="read")
    runner = await make_runner(slow.tool)
    model.call("slow", {"thing": "a"})
    model.reply("done")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_task(task))
    await slow.began.wait()
    await runner.undo_step(task)
    with pytest.raises(CommandRefusedError, match="undone"):
        await waiting
    assert (await runner.get_task(task)).status == "running"
    assert len(model.requests) == 1
    assert str(await runner.run_task(task)) == "done"


async def test_a_refused_undo_of_a_running_step_never_repeats_the_call_that_it_cut_off(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    slow = Slow(world)
    runner = await make_runner(slow.tool)
    model.call("slow", {"thing": "a"})
    model.reply("done")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await slow.began.wait()
    with pytest.raises(UndoRefusedError, match="nobody knows"):
        await runner.undo_step(task)
    output = await waiting
    assert output.status == "waiting"
    approval = await ask(runner, task)
    assert approval.kind == "unknown"
    assert world.done == ["begin a"]
    await runner.respond(approval, "ann", "it went through")
    assert str(await runner.run_task(task)) == "done"
    assert model.requests[1].results == {"call_1": "it went through"}
    assert world.done == ["begin a"]


async def test_a_tool_that_outlives_its_cancellation_has_no_say_in_later_steps(
    make_runner: MakeRunner,
    model: FakeOpenAI,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_task, "CANCEL_GRACE_SECONDS", 0.3)
    slow = Slow(world, heeds=False)

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        return "paid"

    runner = await make_runner(slow.tool, pay)
    model.call("slow", {"thing": "a"})
    model.call("pay", {"amount": 5})
    model.reply("done")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await slow.began.wait()
    receipt = await runner.undo_step(task, residue="keep")
    assert "nobody knows" in receipt.check[0]
    with pytest.raises(CommandRefusedError):
        await waiting
    assert (await runner.run_step(task)).status == "waiting"
    slow.go.set()  # only now does the undone step's tool end, in the place of the new call
    await slow.ended.wait()

    async def recorded() -> bool:
        [history] = await histories(runner.client, task.task_id)
        done = [e for e in history.events if e.HasField("activity_task_completed_event_attributes")]
        return len(done) >= 4  # describe, step, step, slow

    await until(recorded)
    assert (await runner.run_step(task)).status == "waiting"
    await runner.approve(await ask(runner, task), "ann")

    async def is_done() -> bool:
        return (await runner.get_task(task)).steps == 1

    await until(is_done)
    output = await runner.run_step(task)
    assert [str(source) for source in output.sources] == ["paid"]
    assert str(await runner.run_step(task)) == "done"
    assert world.done == ["begin a", "end a", "pay 5"]
    assert len(model.requests) == 3
    assert (await activities_of(runner.client, task.task_id)).count("step") == 3


async def test_undo_of_a_step_that_waits_on_an_unknown_effect_tells_of_it(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, world: World
) -> None:
    from datetime import timedelta

    slow = Slow(world)
    agent = make_agent(slow.tool)
    await rig.serve(agent, graceful_shutdown_timeout=timedelta(0))
    runner = rig.runner()
    model.call("slow", {"thing": "a"})
    task = await runner.create_task("q", step_mode="automatic")
    await slow.began.wait()
    await rig.serve(agent)
    approval = await ask(runner, task)
    assert approval.kind == "unknown"
    with pytest.raises(UndoRefusedError, match="nobody knows"):
        await runner.undo_step(task)
    assert (await ask(runner, task)).id == approval.id
    receipt = await runner.undo_step(task, residue="keep")
    assert "nobody knows" in receipt.check[0]
    assert world.done == ["begin a"]


async def test_a_call_resolved_as_happened_is_undone_with_its_result(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, world: World
) -> None:
    from datetime import timedelta

    def take_back(effect: Effect) -> None:
        world.done.append(f"undo {effect.arguments} {effect.result}")

    slow = Slow(world, undo=take_back)
    agent = make_agent(slow.tool)
    await rig.serve(agent, graceful_shutdown_timeout=timedelta(0))
    runner = rig.runner()
    model.call("slow", {"thing": "a"})
    task = await runner.create_task("q")
    stepping = asyncio.create_task(runner.run_step(task))
    await slow.began.wait()
    await rig.serve(agent)
    assert (await stepping).status == "waiting"
    await runner.respond(await ask(runner, task), "ann", {"id": 7})

    async def is_done() -> bool:
        return (await runner.get_task(task)).steps == 1

    await until(is_done)
    await runner.undo_step(task)
    assert world.done == ["begin a", "undo {'thing': 'a'} {'id': 7}"]


async def test_undo_after_finalize_and_abandon_is_refused_with_the_reason(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("done")
    model.reply("done")
    task = await runner.create_task("q", session="s")
    await runner.run_task(task)
    await runner.finalize_response(task)
    with pytest.raises(TaskClosedError, match="closed"):
        await runner.undo_step(task)
    assert [m.text for m in await runner.session("s").chat_history()] == ["q", "done"]
    task = await runner.create_task("q")
    await runner.run_task(task)
    await runner.abandon(task, "enough", by="ann")
    await until_status(runner, task, "abandoned")
    with pytest.raises(TaskClosedError):
        await runner.rewind(task, to="s1")


async def test_undo_of_an_answered_task_leaves_its_session_untouched(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("first")
    model.reply("second")
    task = await runner.create_task("q", session="s")
    assert str(await runner.run_task(task)) == "first"
    assert (await runner.get_task(task)).status == "answered"
    await runner.undo_step(task)
    assert (await runner.get_task(task)).status == "running"
    assert await runner.session("s").chat_history() == []
    with pytest.raises(InvalidArgumentError):
        await runner.finalize_response(task)
    assert str(await runner.run_task(task)) == "second"
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert [m.text for m in history if m.role != "system"] == ["q", "second"]


async def test_rewind_over_archived_steps(
    make_runner: MakeRunner, book: Tool, world: World
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        call = ToolCall(id=f"c{ctx.n}", name="book", arguments=f'{{"city": "{ctx.n}"}}')
        await ctx.call_tools([call])
        ctx.add(assistant(f"step {ctx.n}"))
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))

    runner = await make_runner(book, worker=Doing(body), roll_events=50)
    task = await runner.create_task("q", extra_state={"trips": []})
    outputs: list[TaskStepOutput] = []
    pictures: list[str] = []
    for _ in range(14):
        outputs.append(await runner.run_step(task))
        pictures.append(await picture(runner, task))
    assert len(await histories(runner.client, task.task_id)) >= 2
    world.done.clear()
    for at in (11, 2):
        await runner.rewind(task, to=outputs[at])
        found, before = (json.loads(p) for p in (await picture(runner, task), pictures[at]))
        assert found | {"base": 0} == before | {"base": 0}
    assert world.done == [f"cancel {n}" for n in range(14, 3, -1)]
    again = await runner.run_step(task)
    assert again.output == 4
    assert [m.text for m in await runner.transcript(task)][-1] == "step 4"
    for _ in range(6):
        await runner.run_step(task)
    assert [o.output for o in await runner.get_completed_steps(task)] == list(range(1, 11))
    assert await runner.verify(task) == []


async def test_undo_restores_the_budget(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    runner = await make_runner(look)
    for _ in range(2):
        model.call("look")
    model.reply("done")
    budget = Budget(max_turns=2, on_exceeded="fail")
    task = await runner.create_task("q", budget=budget)
    await runner.run_step(task)
    await runner.undo_step(task)
    await runner.run_step(task)
    assert str(await runner.run_step(task)) == "done"
    assert (await runner.get_task(task)).usage.requests == 3  # what was paid stays paid


async def test_a_waiting_step_of_a_number_that_was_undone_shows_as_waiting(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool
) -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    runner = await make_runner(pay, book)
    model.call("book", {"city": "rome"})
    model.call("pay", {"amount": 5})
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.undo_step(task)
    output = await runner.run_step(task)
    assert output.status == "waiting"
    assert "pay" in output.waiting_for[0]
    await runner.approve(await ask(runner, task), "ann")
    assert str(await runner.run_task(task)) == "done"


async def test_an_abandon_ends_an_undo_in_progress(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    began = asyncio.Event()

    async def cancel(effect: Effect) -> None:
        began.set()
        await asyncio.Event().wait()

    @tool(undo=cancel)
    def book(city: str) -> str:
        """Book."""
        return "booked"

    runner = await make_runner(book)
    model.call("book", {"city": "rome"})
    task = await runner.create_task("q")
    await runner.run_step(task)
    undoing = asyncio.create_task(runner.undo_step(task))
    await began.wait()
    await runner.abandon(task, "enough", by="ann")
    with pytest.raises((TaskClosedError, UndoFailedError)):
        await undoing
    await until_status(runner, task, "abandoned")
    handle = runner.client.get_workflow_handle(task.task_id)

    async def is_closed() -> bool:
        return (await handle.describe()).close_time is not None

    await until(is_closed)


@pytest.mark.parametrize("in_time", [True, False])
async def test_what_an_undo_did_before_an_abandon_is_known_or_said_to_be_unknown(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    monkeypatch.setattr(effect_undo, "GRACE_SECONDS", 100 if in_time else 1)
    monkeypatch.setattr(agent_task, "CANCEL_GRACE_SECONDS", 100)
    began, may_end = asyncio.Event(), asyncio.Event()

    async def cancel(effect: Effect) -> str:
        began.set()
        await may_end.wait()
        return "cancelled"

    @tool(undo=cancel)
    def book(city: str) -> str:
        """Book."""
        return "booked"

    runner = await make_runner(book)
    model.calls([("book", {"city": "rome"}), ("book", {"city": "bern"})])
    task = await runner.create_task("q")
    await runner.run_step(task)
    undone = asyncio.create_task(runner.undo_step(task))
    await began.wait()
    await runner.abandon(task, "enough", by="ann")
    if in_time:
        may_end.set()
    with pytest.raises(TaskClosedError):
        await undone
    await until_status(runner, task, "abandoned")
    found = [(e.kind, e.reason) for e in await runner.audit(task) if "undo" in e.kind]
    known, unknown = ("effect_undone", "cancelled"), ("undo_failed", effect_undo.CUT)
    assert found == [known if in_time else unknown]


async def test_undo_of_a_failed_step_puts_it_back_into_the_queue(
    make_runner: MakeRunner, book: Tool, world: World
) -> None:
    from holdfast.errors import StepFailedError

    broken = [True]

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        await ctx.call_tools([ToolCall(id="c", name="book", arguments='{"city": "rome"}')])
        if broken:
            raise RuntimeError("in the middle")
        return ends(step)

    runner = await make_runner(book, worker=Doing(body))
    task = await runner.create_task("q", extra_state={"trips": []})
    before = await picture(runner, task)
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    receipt = await runner.undo_step(task)
    assert receipt.undone == ('book({"city": "rome"})',)
    assert await picture(runner, task) == before
    broken.clear()
    assert (await runner.run_step(task)).is_last
    assert world.done == ["book rome", "cancel rome", "book rome"]
    assert len(set(world.keys)) == 2


async def test_an_undone_request_id_runs_no_second_step_and_two_undos_of_one_id_are_one(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool
) -> None:
    runner = await make_runner(book)
    for city in ("rome", "oslo"):
        model.call("book", {"city": city})
    task = await runner.create_task("q")
    for _ in range(2):
        await runner.run_step(task)
    first = await runner.undo_step(task, request_id="u")
    second = await runner.undo_step(task, request_id="u")
    assert first == second
    assert (await runner.get_task(task)).steps == 1


async def test_an_undo_gets_the_result_of_its_own_call_where_a_provider_repeats_ids(
    make_runner: MakeRunner, world: World
) -> None:
    def cancel(effect: Effect) -> None:
        world.done.append(f"cancel {effect.result}")

    @tool(undo=cancel)
    def book(city: str) -> str:
        """Book."""
        return f"booking of {city}"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        for city in ("rome", "oslo"):
            call = ToolCall(id="call_0", name="book", arguments=json.dumps({"city": city}))
            ctx.add(assistant("").model_copy(update={"calls": (call,)}))
            for result in await ctx.call_tools([call]):
                ctx.add(result.message)
        call = ToolCall(id="call_0", name="book", arguments=json.dumps({"city": "bern"}))
        return TaskStepOutput(task_step=step, calls=(call,), is_last=True)

    runner = await make_runner(book, worker=Doing(body))
    task = await runner.create_task("q")
    stream = runner.stream_step(task)
    items = [e.item async for e in stream.stream_events() if isinstance(e, RunItemStreamEvent)]
    results = [f"booking of {city}" for city in ("rome", "oslo", "bern")]
    assert [i.output for i in items if isinstance(i, ToolCallOutputItem)] == results
    assert len([i for i in items if isinstance(i, ToolCallItem)]) == 3
    output = await stream.result()
    assert [str(source) for source in output.sources] == results
    made = [event for event in await runner.audit(task) if event.kind == "tool_call"]
    assert [event.result for event in made] == results
    await runner.undo_step(task)
    assert world.done == [f"cancel {result}" for result in reversed(results)]
