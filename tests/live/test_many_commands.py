"""Very many commands: taken in batches, each once, while the task and others go on."""

from __future__ import annotations

import asyncio

import pytest
from temporalio import workflow
from temporalio.client import WorkflowUpdateStage

from holdfast import AgentRunner, Task, tool
from holdfast.errors import CommandRefusedError
from holdfast.task.data.commands import RunReply, RunRequest
from holdfast.task.ledger.references import NOTES_APART
from holdfast.testing import FakeOpenAI
from holdfast.workflows.children.children import Children
from holdfast.workflows.requests import commands
from holdfast.workflows.requests.commands import COMMANDS_AT_ONCE
from tests.support.people import ask
from tests.support.rig import MakeAgent, MakeRunner, Rig, event_types
from tests.support.workers import Counting


async def send(runner: AgentRunner, task: Task, ids: list[str]) -> None:
    """Send feedback as signals, without waiting for receipts."""
    handle = runner.client.get_workflow_handle(task.task_id)
    for start in range(0, len(ids), 50):
        await asyncio.gather(
            *(
                handle.signal("feedback", {"id": id, "text": f"say {id}"})
                for id in ids[start : start + 50]
            )
        )


async def test_commands_sent_while_no_worker_is_up_are_taken_in_batches_before_the_next_step(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    runner = rig.runner()
    task = await runner.create_task("q", step_mode="automatic")
    ids = [f"c{k}" for k in range(2 * COMMANDS_AT_ONCE + 50)]
    await send(runner, task, ids)
    model.reply("done")
    await rig.serve(make_agent())
    assert (await runner.run_task(task)).output == "done"
    heard = model.requests[0].text
    assert all(f"say {id}" in heard for id in ids)
    assert len(model.requests[0].messages) <= NOTES_APART
    found = await event_types(runner.client, task.task_id)
    assert found.count("TIMER_FIRED") == 2
    assert found.count("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES") <= 1


async def test_feedback_is_refused_with_words_while_a_task_cannot_continue_as_new(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    await runner.run_step(task)
    monkeypatch.setattr("holdfast.client.agent_runner.task_client.task_client.MOST_EVENTS", 5)
    with pytest.raises(CommandRefusedError, match="events"):
        await runner.give_feedback(task, "more")
    await runner.pause(task, by="ann")


async def test_a_request_that_was_accepted_waits_for_commands_that_came_after_it(
    monkeypatch: pytest.MonkeyPatch, rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    async def heard_late(_: Children) -> None:
        await workflow.sleep(1)

    @tool(needs_approval=True)
    def book() -> str:
        """Book."""
        return "booked"

    helper = make_agent(book, name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.call("book", {})
    task = await runner.create_task("q")
    await runner.run_step(task)
    await ask(runner, task)
    monkeypatch.setattr(Children, "ask", heard_late)
    monkeypatch.setattr(commands, "COMMANDS_AT_ONCE", 1)
    monkeypatch.setattr(commands, "TURN_SECONDS", 0.2)
    handle = runner.client.get_workflow_handle(task.task_id)
    asked = await handle.start_update(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        "run",
        RunRequest(),
        id="mine",
        wait_for_stage=WorkflowUpdateStage.ACCEPTED,
        result_type=RunReply,
    )
    await send(runner, task, [f"c{k}" for k in range(20)])
    assert (await asked.result()).status == "waiting"
