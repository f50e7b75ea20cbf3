"""Signals: pause, resume, abandon, and whatever else is sent to a task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue

from holdfast import Agent, AgentRunner, TaskStep, TaskStepOutput, tool
from holdfast.errors import CommandRefusedError, StepFailedError, TaskAbandonedError
from holdfast.task.data.commands import BODIES, VERBS
from holdfast.task.data.records import Entry, EventRecord
from holdfast.testing import FakeOpenAI
from holdfast.workers import StepContext
from tests.support.people import ask
from tests.support.rig import MakeAgent, MakeRunner, Rig, until, until_status
from tests.support.workers import Counting, Doing, ends


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


def told(entries: list[Entry]) -> list[EventRecord]:
    """List the events of a ledger after the task's creation."""
    return [e.event for e in entries if e.event is not None and e.event.kind != "created"]


async def test_a_paused_task_begins_no_step_until_it_is_resumed(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(3))
    task = await runner.create_task("q")
    await runner.pause(task, reason="lunch", by="ann")
    output = await runner.run_step(task)
    assert output.status == "waiting"
    assert "ann: lunch" in output.waiting_for[0]
    found = await runner.get_task(task)
    assert (found.status, found.paused, found.steps) == ("paused", "ann: lunch", 0)
    await runner.resume(task, by="bob")
    assert (await runner.run_step(task)).output["count"] == 1


async def test_a_pause_lets_the_step_in_progress_end(make_runner: MakeRunner) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        begun.set()
        await gate.wait()
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q", step_mode="automatic")
    await begun.wait()  # a task that is paused before runs no step
    await runner.pause(task)
    gate.set()
    assert (await until_status(runner, task, "paused")).steps in (0, 1)

    async def stepped() -> bool:
        return (await runner.get_task(task)).steps == 1

    await until(stepped)
    await asyncio.sleep(0.3)
    assert (await runner.get_task(task)).steps == 1


async def test_an_automatic_task_goes_on_after_a_resume(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(5))
    task = await runner.create_task("q")
    await runner.pause(task)
    waiting = await runner.run_task(task)
    assert waiting.status == "waiting"
    await runner.resume(task)
    assert (await runner.run_task(task)).output["count"] == 5


async def test_resuming_a_task_that_is_not_paused_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    with pytest.raises(CommandRefusedError, match="not paused"):
        await runner.resume(task)


async def test_abandon_ends_a_task_with_its_reason(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q", session="s")
    await runner.run_step(task)
    await runner.abandon(task, reason="wrong question", by="ann")
    found = await until_status(runner, task, "abandoned")
    assert "ann: wrong question" in found.error
    assert await runner.session("s").chat_history() == []
    events = told(await runner.ledger(task))
    assert [(e.kind, e.by, e.text) for e in events if e.kind == "command"] == [
        ("command", "ann", "wrong question")
    ]


async def test_abandon_cancels_the_model_call_in_flight(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.hang("never")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await model.until_held()
    await runner.abandon(task, reason="enough", by="ann")
    with pytest.raises(TaskAbandonedError, match="ann: enough"):
        await waiting
    await asyncio.to_thread(model.wait_held, 0)


async def test_abandon_tells_a_running_tool(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Be slow."""
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "late"

    runner = await make_runner(slow)
    model.call("slow")
    task = await runner.create_task("q", session="s")
    waiting = asyncio.create_task(runner.run_step(task))
    await begun.wait()
    await runner.abandon(task, reason="enough")
    with pytest.raises(TaskAbandonedError):
        await waiting
    await asyncio.wait_for(cancelled.wait(), 100)
    assert (await until_status(runner, task, "abandoned")).status == "abandoned"
    assert await runner.session("s").chat_history() == []


async def test_a_failed_task_can_be_abandoned(make_runner: MakeRunner) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        raise RuntimeError("never works")

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    await runner.abandon(task, reason="hopeless")
    assert (await until_status(runner, task, "abandoned")).status == "abandoned"


async def test_a_paused_task_can_be_abandoned(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    await runner.pause(task)
    await runner.abandon(task, reason="enough")
    await until_status(runner, task, "abandoned")


async def test_commands_are_recorded_with_no_worker_up_and_take_effect_later(
    rig: Rig, make_agent: MakeAgent
) -> None:
    runner = rig.runner()
    task = await runner.create_task("q")
    receipt = await runner.pause(task, reason="lunch", by="ann")
    assert receipt.status == "recorded"
    await rig.serve(make_agent(worker=Counting()))
    assert (await runner.get_task(task)).paused == "ann: lunch"
    assert (await runner.resume(task)).status == "applied"


async def test_an_abandon_sent_with_no_worker_up_ends_the_task_later(
    rig: Rig, make_agent: MakeAgent
) -> None:
    runner = rig.runner()
    task = await runner.create_task("q")
    await runner.abandon(task, reason="enough")
    await rig.serve(make_agent(worker=Counting()))
    await until_status(runner, task, "abandoned")


async def test_a_cancellation_by_temporal_is_an_abandon(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.client.get_workflow_handle(task.task_id).cancel()
    found = await until_status(runner, task, "abandoned")
    assert "temporal" in found.error
    assert [o.output["count"] for o in await runner.get_completed_steps(task)] == [1]


async def test_a_cancellation_by_temporal_in_mid_step_is_an_abandon(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.hang("never")
    task = await runner.create_task("q")
    waiting = asyncio.create_task(runner.run_step(task))
    await model.until_held()
    await runner.client.get_workflow_handle(task.task_id).cancel()
    with pytest.raises(TaskAbandonedError, match="temporal"):
        await waiting
    await until_status(runner, task, "abandoned")


GARBAGE: dict[str, tuple[str, list[Any]]] = {
    "not JSON": ("pause", [raw(b"{")]),
    "not UTF-8": ("pause", [raw(b"\xff\xfe\x00")]),
    "a number": ("pause", [7]),
    "null": ("pause", [None]),
    "a text": ("feedback", ["be brief"]),
    "a list": ("pause", [["pause"]]),
    "nothing": ("feedback", []),
    "two values": ("pause", [{"id": "a"}, 1]),
    "an id that is no text": ("pause", [{"id": {"a": 1}}]),
    "a sender that is no text": ("pause", [{"by": ["ann"]}]),
    "an unknown signal": ("explode", [{"id": "a"}]),
    "an unknown signal with two values": ("explode", [{"id": "a"}, raw(b"{")]),
    "binary": ("pause", [b"\x00\x01\x02"]),
    "an unknown encoding": ("pause", [raw(b"x", b"binary/strange")]),
    "deep nesting": ("pause", [raw(b"[" * 100_000 + b"]" * 100_000)]),
    "a huge number": ("pause", [raw(b'{"id":"a","n":1e999999}')]),
    "a huge integer": ("pause", [raw(b'{"id":"a","n":' + b"9" * 5000 + b"}")]),
    "lone surrogates in the id": ("pause", [raw(b'{"id":"\\ud800"}')]),
    "a signal of one sign": ("\U0001f4a5", [raw(b'{"id":"a"}')]),
    "lone surrogates in the reason": ("pause", [raw(b'{"by":"x","reason":"\\udfff"}')]),
    "a megabyte of reason": ("pause", [raw(b'{"reason":"' + b"x" * 1_000_000 + b'"}')]),
    "a megabyte of sender": ("pause", [raw(b'{"by":"' + b"x" * 10**6 + b'"}')]),
    "a megabyte of id": ("pause", [raw(b'{"id":"' + b"x" * 1_000_000 + b'"}')]),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_whatever_signal_comes_the_task_goes_on(make_runner: MakeRunner, name: str) -> None:
    runner = await make_runner(worker=Counting(20), roll_events=30)
    task = await runner.create_task("q")
    await runner.run_step(task)
    signal, args = GARBAGE[name]
    await runner.client.get_workflow_handle(task.task_id).signal(signal, args=args)
    if (await runner.get_task(task)).status == "paused":
        await runner.resume(task)
    for _ in range(8):  # over a rollover, which writes out all that the task keeps
        assert (await runner.run_step(task)).status == "done"
    events = told(await runner.ledger(task))
    [first] = [e for e in events if e.kind in ("command", "refused")][:1]
    assert len(first.text) <= 2000
    assert first.kind == "command" or first.text


async def test_a_command_with_a_repeated_id_is_dropped(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    handle = runner.client.get_workflow_handle(task.task_id)
    for _ in range(3):
        await handle.signal("pause", {"id": "same", "by": "ann"})
    events = told(await runner.ledger(task))
    assert [e.kind for e in events] == ["command"]


async def test_commands_without_an_id_count_each(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    handle = runner.client.get_workflow_handle(task.task_id)
    for reason in ("lunch", "tea"):
        await handle.signal("pause", {"by": "ann", "reason": reason})
    events = told(await runner.ledger(task))
    assert [(e.kind, e.by, e.text) for e in events] == [
        ("command", "ann", "lunch"),
        ("command", "ann", "tea"),
    ]
    assert (await runner.get_task(task)).paused == "ann: tea"


async def test_each_signal_describes_itself_to_temporals_ui(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    handle = runner.client.get_workflow_handle(task.task_id)
    found: WorkflowMetadata = await handle.query("__temporal_workflow_metadata")
    described = {each.name: each.description for each in found.definition.signal_definitions}
    assert {verb: described.get(verb) for verb in VERBS} == BODIES


async def test_a_refused_command_is_recorded_with_its_reason(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    with pytest.raises(CommandRefusedError):
        await runner.resume(task, by="ann")
    [event] = told(await runner.ledger(task))
    assert (event.kind, event.by) == ("refused", "ann")
    assert "not paused" in event.text


async def test_a_misspelt_edit_approves_nothing(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    sent: list[str] = []

    @tool(needs_approval=True)
    async def mail(to: str) -> str:
        """Mail."""
        sent.append(to)
        return "sent"

    runner = await make_runner(mail)
    model.call("mail", {"to": "bob"})
    model.reply("Mailed.")
    task = await runner.create_task("q")
    await runner.run_task(task)
    approval = await ask(runner, task)
    decision: dict[str, Any] = {"id": "x", "approval": approval.id, "by": "ann"}
    handle = runner.client.get_workflow_handle(task.task_id)
    await handle.signal("approve", {**decision, "argument": {"to": "eve"}})
    event = told(await runner.ledger(task))[-1]
    assert (event.kind, event.by) == ("refused", "ann")
    assert "argument. Did you mean 'arguments'?" in event.text
    assert (await ask(runner, task)).id == approval.id
    assert not sent
    await handle.signal("approve", {**decision, "id": "y", "arguments": {"to": "eve"}})
    await runner.run_task(task)
    assert sent == ["eve"]


@pytest.mark.parametrize(
    ("update", "sent", "near"),
    [
        ("run", {"alll": True}, "all"),
        ("undo", {"too": 0}, "to"),
        ("undo", {"to": 0, "residu": "keep"}, "residue"),
    ],
)
async def test_a_misspelt_update_is_refused_and_does_nothing(
    make_runner: MakeRunner, update: str, sent: dict[str, Any], near: str
) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.run_step(task)
    handle: Any = runner.client.get_workflow_handle(task.task_id)
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await handle.execute_update(update, sent)
    assert f"Did you mean {near!r}?" in str(caught.value.cause)
    assert (await runner.get_task(task)).steps == 2


async def test_secrets_are_in_no_ledger_entry_and_no_history(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "very-secret-value-123"
    monkeypatch.setenv("MY_SERVICE_TOKEN", secret)

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if ctx.n == 2:
            return ends(step)
        try:
            raise ValueError(f"inner {secret}")
        except ValueError as error:
            raise RuntimeError(f"refused for {secret}") from error

    await rig.serve(Agent(name="agent", model="offline", worker=Doing(body)))
    runner: AgentRunner = rig.runner()
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError) as caught:
        await runner.run_step(task)
    assert secret not in str(caught.value)
    history = await runner.client.get_workflow_handle(task.task_id).fetch_history()
    assert secret not in history.to_json()
    assert secret not in str(await runner.ledger(task))
