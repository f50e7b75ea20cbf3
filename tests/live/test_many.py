"""Very many of something at one task: calls, approvals, clients, commands, requests."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, ToolCall, tool
from holdfast.activities import long_calls
from holdfast.engine.dev_server import command
from holdfast.errors import CommandRefusedError
from holdfast.task.ledger.recording import NOTES_APART
from holdfast.testing import call
from holdfast.testing.fake_api.replies import Answer, CallSpec
from holdfast.values.checks.gate import MOST_CALLS
from holdfast.workers import StepContext
from holdfast.workflows.core import MOST_CARDS
from holdfast.workflows.requests.updates import MOST_WAITING
from tests.support.lent import ephemeral_server
from tests.support.rig import Engine, Rig, event_types, histories, make_engine, step_a_task, until
from tests.support.workers import Counting, Doing


@tool(effect="read")
def look(k: int) -> int:
    """Look."""
    return k


@tool(needs_approval=True)
def pay(k: int) -> int:
    """Pay."""
    return k


def many(name: str, count: int) -> Answer:
    calls = tuple(CallSpec(id=f"c{k}", name=name, arguments={"k": k}) for k in range(count))
    return Answer(calls=calls)


async def most_open(runner: AgentRunner, task: Task) -> int:
    """Count the activities of a task that were on the way at the same time, at most."""
    found = 0
    for run in await histories(runner.client, task.task_id):
        now = 0
        for event in run.events:
            name = EventType.Name(event.event_type)
            now += name.endswith("ACTIVITY_TASK_SCHEDULED")
            now -= name.endswith("ACTIVITY_TASK_COMPLETED")
            found = max(found, now)
    return found


AT_ONCE = 40


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a task take further fewer things at once, for as long as its worker is up."""
    for place in ("task.tool_calls", "workflows.tools.tool_calls"):
        monkeypatch.setattr(f"holdfast.{place}.MOST_AT_ONCE", AT_ONCE)
    monkeypatch.setattr("holdfast.workflows.requests.updates.COMMANDS_AT_ONCE", AT_ONCE)


@pytest.mark.usefixtures("few_at_once")
async def test_the_calls_of_an_answer_are_done_so_many_at_a_time_over_rollovers(rig: Rig) -> None:
    count = 2 * AT_ONCE
    runner = await rig.make(look, roll_events=200)
    rig.model.add(many("look", count), "done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "done"
    assert rig.model.requests[1].results == {f"c{k}": str(k) for k in range(count)}
    assert await most_open(runner, task) == AT_ONCE
    await until(lambda: histories(runner.client, task.task_id), lambda found: len(found) > 1)


async def test_an_answer_with_more_calls_than_a_task_holds_is_refused_and_asked_again(
    rig: Rig,
) -> None:
    runner = await rig.make(look)
    rig.model.add(many("look", MOST_CALLS + 1), "done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output == "done"
    assert len(rig.model.requests) == 2


async def test_lists_show_the_oldest_of_many_approvals_and_the_task_tells_of_all(rig: Rig) -> None:
    count = MOST_CARDS + 10
    runner = await rig.make(pay)
    rig.model.add(many("pay", count), "done")
    task = await step_a_task(runner)

    async def listed() -> bool:
        mine = [a for a in await runner.pending_approvals() if a.id.startswith(task.task_id)]
        return len(mine) == count

    await until(listed)
    memo = await (await runner.client.get_workflow_handle(task.task_id).describe()).memo()
    assert len(memo["approvals"]) == MOST_CARDS
    [first, *_] = await runner.pending_approvals(task)
    await runner.approve(first, by="ann", always=True)
    assert (await runner.run_task(task)).output == "done"
    assert len(rig.model.requests[1].results) == count


async def test_clients_that_wait_for_a_task_keep_nobody_from_undoing_its_step(rig: Rig) -> None:
    begun = asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look for a long time."""
        begun.set()
        await asyncio.sleep(60)
        return "seen"

    runner = await rig.make(look)
    rig.model.when(lambda _: True, call("look"))  # a client that asks again has the step run anew
    task = await runner.create_task("q", step_mode="automatic")
    await begun.wait()
    waiting = [asyncio.create_task(runner.run_task(task)) for _ in range(14)]

    async def all_sent() -> bool:
        found = await event_types(runner.client, task.task_id)
        return found.count("WORKFLOW_EXECUTION_UPDATE_ACCEPTED") >= MOST_WAITING

    await until(all_sent)
    async with asyncio.timeout(100):
        receipt = await runner.undo_step(task)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert receipt.status != "waiting"
    await runner.abandon(task, reason="enough")


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


@pytest.mark.usefixtures("few_at_once")
async def test_commands_sent_while_no_worker_is_up_are_taken_in_batches_before_the_next_step(
    rig: Rig,
) -> None:
    runner = rig.runner()
    task = await runner.create_task("q", step_mode="automatic")
    ids = [f"c{k}" for k in range(2 * AT_ONCE + 30)]
    await send(runner, task, ids)
    rig.model.reply("done")
    await rig.serve(rig.agent())
    assert (await runner.run_task(task)).output == "done"
    heard = rig.model.requests[0].text
    assert all(f"say {id}" in heard for id in ids)
    assert len(rig.model.requests[0].messages) <= NOTES_APART
    found = await event_types(runner.client, task.task_id)
    assert found.count("TIMER_FIRED") == 2
    assert found.count("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES") <= 1


async def test_feedback_is_refused_with_words_while_a_task_cannot_continue_as_new(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await rig.make(worker=Counting())
    task = await step_a_task(runner)
    monkeypatch.setattr("holdfast.client.agent_runner.task_client.task_client.MOST_EVENTS", 5)
    with pytest.raises(CommandRefusedError, match="events"):
        await runner.give_feedback(task, "more")
    await runner.pause(task, by="ann")


LIMIT = 10


@pytest.fixture
async def strict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncGenerator[Engine]:
    """Run a server that takes few updates in one run of a workflow."""
    limits = {**command.DYNAMIC_CONFIG, "history.maxTotalUpdates": str(LIMIT)}
    monkeypatch.setattr(command, "DYNAMIC_CONFIG", limits)
    async with await ephemeral_server() as running:
        yield await make_engine(running.info, tmp_path)


@pytest.fixture
async def few(strict: Engine) -> AsyncGenerator[Rig]:
    """Serve tasks on that server."""
    rig = Rig(strict)
    yield rig
    await rig.stop()
    await rig.assert_replays()


async def runs(runner: AgentRunner, task: Task) -> int:
    return len(await histories(runner.client, task.task_id))


async def test_a_task_takes_more_requests_than_one_run_of_a_workflow_while_a_tool_runs(
    few: Rig, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = list[str](), asyncio.Event()

    @tool(effect="irreversible")
    async def dig() -> str:
        """Dig."""
        begun.append("dig")
        await let_go.wait()
        return "found"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        output: Any = ctx.n
        if step.input == "dig":
            [result] = await ctx.call_tools([ToolCall(id="c", name="dig", arguments="{}")])
            output = result.content
        return TaskStepOutput(output=output, task_step=step, next_steps=(step.get_next_step(),))

    monkeypatch.setattr(long_calls, "LONG_SECONDS", 0.0)
    await few.serve(rig.agent(dig, worker=Doing(body)))
    runner = few.runner()
    task = await runner.create_task("q")
    ids = [f"r{k}" for k in range(LIMIT + 5)]
    async with asyncio.timeout(60):
        outputs = [(await runner.run_step(task, request_id=id)).output for id in ids]
        assert outputs == list(range(1, LIMIT + 6))
        assert await runs(runner, task) > 1
        digging = asyncio.create_task(runner.run_step(task, input="dig"))
        await until(lambda: bool(begun))
        before = await runs(runner, task)
        again = [(await runner.run_step(task, request_id=id)).output for id in ids]
        assert again == list(range(1, LIMIT + 6))
        assert await runs(runner, task) > before
        let_go.set()
        assert (await digging).output == "found"
    assert begun == ["dig"]
