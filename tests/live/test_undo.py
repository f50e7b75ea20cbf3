"""Undo and rewind: the task is as it was, the world as far as tools can take it back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, ToolContext, tool
from holdfast.agents.items.run_items import ToolCallItem, ToolCallOutputItem
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import (
    ArchiveError,
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
from tests.support.people import World, ask
from tests.support.rig import (
    MakeRunner,
    activities_of,
    event_types,
    histories,
    roll,
    until,
    until_status,
    until_steps,
)
from tests.support.workers import Doing


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


async def test_an_undo_that_fails_is_asked_again_and_nothing_is_undone_twice(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    broken = {"oslo"}

    def cancel(effect: Effect) -> None:
        city = effect.arguments["city"]
        if city in broken:
            raise ArchiveError(f"{city} does not answer")  # no trouble of ours
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

    await until_steps(runner, task, 1)
    output = await runner.run_step(task)
    assert [str(source) for source in output.sources] == ["paid"]
    assert str(await runner.run_step(task)) == "done"
    assert world.done == ["begin a", "end a", "pay 5"]
    assert len(model.requests) == 3
    assert (await activities_of(runner.client, task.task_id)).count("step") == 3


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
    assert (await runner.client.get_workflow_handle(task.task_id).describe()).close_time is not None
    found = [(e.kind, e.reason) for e in await runner.audit(task) if "undo" in e.kind]
    known, unknown = ("effect_undone", "cancelled"), ("undo_failed", effect_undo.CUT)
    assert found == [known if in_time else unknown]


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


async def test_undo_of_done_steps_restores_the_task_byte_for_byte_and_tells_the_model(
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
    calls = [('book({"city": "rome"})',), ('book({"city": "oslo"})',), ()]
    for k in (2, 1, 0):
        receipt = await runner.undo_step(task, by="ann", reason="wrong month", request_id=f"u{k}")
        assert receipt.steps == (outputs[k].task_step.step_id,)
        assert receipt == await runner.undo_step(task, request_id=f"u{k}")
        assert await picture(runner, task) == pictures[k]
        assert (receipt.undone, receipt.remains, receipt.check) == (calls[k], (), ())
    assert world.done == ["book rome", "book oslo", "cancel oslo", "cancel rome"]
    undone = await runner.get_completed_steps(task, undone=True)
    assert [(o.status, o.output) for o in undone] == [("undone", o.output) for o in outputs]
    events = [e.reason for e in await runner.audit(task) if e.kind == "effect_undone"]
    assert events == ["cancelled booked oslo", "cancelled booked rome"]
    assert await runner.verify(task) == []
    with pytest.raises(InvalidArgumentError, match="no step to undo"):
        await runner.undo_step(task)
    model.call("book", {"city": "rome"})
    model.reply("done")
    await runner.run_task(task)
    assert len(set(world.keys)) == 3  # the same call has another key
    second, third = ([m.text for m in r.messages] for r in model.requests[-2:])
    [note] = [text for text in second if 'book({"city": "rome"})' in text]
    assert "undone by ann" in note
    assert "wrong month" in note
    assert third.count(note) == 1  # it stays in the transcript, once
    assert "booked rome" not in "".join(second)


async def test_an_effect_that_cannot_be_undone_refuses_with_a_list_or_is_kept_as_residue(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool, send: Tool, world: World
) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    runner = await make_runner(book, send, look, fail)
    model.calls(
        [
            ("book", {"city": "rome"}),
            ("send", {"text": "hi"}),
            ("look", {}),  # what follows is not in the way
            ("fail", {}),
            ("nope", {}),
            ("fail", "{bad"),
        ]
    )
    model.call("send", {"text": "ho"})
    model.reply("done")
    task = await runner.create_task("q")
    before = await picture(runner, task)
    for _ in range(3):
        await runner.run_step(task)
    with pytest.raises(UndoRefusedError) as caught:
        await runner.rewind(task, to="s1")
    assert 'step 2: send({"text": "ho"})' in str(caught.value)
    assert '"hi"' not in str(caught.value)
    assert (await runner.get_task(task)).steps == 3
    assert sorted(world.done) == ["book rome", "send hi", "send ho"]
    await runner.rewind(task, to="s1", residue="keep")
    receipt = await runner.undo_step(task, residue="keep", by="ann")
    assert receipt.undone == ('book({"city": "rome"})',)
    [remains] = receipt.remains
    assert 'send({"text": "hi"})' in remains
    assert receipt.check == ()
    assert await picture(runner, task) == before
    found = await runner.client.get_workflow_handle(task.task_id).query("effects")
    sent = next(each for each in found if each["tool"] == "send")
    assert (sent["status"], sent["remains"]) == ("done", True)
    assert next(each for each in found if each["tool"] == "book")["undone"]["by"] == "ann"
    model.reply("done")
    assert str(await runner.run_step(task)) == "done"
    told = [m.text for m in model.requests[-1].messages]
    assert any("Still in the world" in text and "hi" in text for text in told)
    undone = [e for e in await runner.audit(task) if e.kind == "undone"][-1]
    assert (undone.body["remains"], undone.actor) == ([remains], "ann")


async def test_an_undo_that_needs_approval_waits_for_it_also_over_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    @tool(undo=lambda effect: world.done.append("cancel"), undo_needs_approval=True)
    def book(city: str) -> str:
        """Book."""
        world.done.append("book")
        return "booked"

    runner = await make_runner(book, roll_events=50)
    model.call("book", {"city": "rome"})
    model.call("book", {"city": "oslo"})
    task = await runner.create_task("q")
    before = await picture(runner, task)
    await runner.run_step(task)
    after = await picture(runner, task)
    receipt = await runner.undo_step(task, by="ann", request_id="u1")
    assert receipt.status == "waiting"
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
        return (await picture(runner, task)) == after

    await until(is_over)
    assert world.done == ["book"]
    assert (await runner.undo_step(task, request_id="u2")).status == "waiting"  # asks once more
    second = await ask(runner, task)
    assert second.id != approval.id
    await roll(runner, task)
    await runner.approve(second, "ben")
    await until_steps(runner, task, 0)
    assert world.done == ["book", "cancel"]
    assert json.loads(await picture(runner, task)) | {"base": 0} == json.loads(before)
    again = await runner.undo_step(task, request_id="u2")
    assert (again.status, again.undone) == ("done", ('book({"city": "rome"})',))
    assert (await runner.run_step(task)).status == "done"  # the task goes on


async def test_undo_of_a_running_step_cancels_the_model_call(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.hang()
    model.reply("second")
    task = await runner.create_task("q")
    before = await picture(runner, task)
    waiting = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    receipt = await runner.undo_step(task)
    assert receipt.steps == ("s1",)
    with pytest.raises(CommandRefusedError, match="undone"):
        await waiting
    assert await picture(runner, task) == before
    assert len(model.requests) == 1  # it waits to be run
    model.release()
    assert str(await runner.run_step(task)) == "second"


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
    with pytest.raises(CommandRefusedError, match="undone"):
        await waiting
    assert await picture(runner, task) == before
    assert sorted(world.done[:2]) == ["begin a", "book rome"]
    assert world.done[2:] == ["cancel rome"]
    assert str(await runner.run_task(task)) == "done"


async def test_a_refused_undo_never_repeats_the_call_that_it_cut_off_and_a_later_one_has_its_result(
    make_runner: MakeRunner, model: FakeOpenAI, world: World
) -> None:
    def take_back(effect: Effect) -> None:
        world.done.append(f"undo {effect.arguments} {effect.result}")

    slow = Slow(world, undo=take_back)
    runner = await make_runner(slow.tool)
    model.call("slow", {"thing": "a"})
    model.reply("done")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await slow.began.wait()
    with pytest.raises(UndoRefusedError, match="nobody knows"):
        await runner.undo_step(task)
    assert (await waiting).status == "waiting"
    approval = await ask(runner, task)
    assert approval.kind == "unknown"
    with pytest.raises(UndoRefusedError, match="nobody knows"):
        await runner.undo_step(task)
    assert (await ask(runner, task)).id == approval.id
    await runner.respond(approval, "ann", {"id": 7})
    await until_steps(runner, task, 1)
    await runner.undo_step(task)
    assert world.done == ["begin a", "undo {'thing': 'a'} {'id': 7}"]
    assert str(await runner.run_task(task)) == "done"
