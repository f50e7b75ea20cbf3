"""Steps that follow in the activity of the first one, as long as they are fast."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentRunner, Task
from holdfast.errors import CommandRefusedError
from holdfast.task.data.wire import STEPS_DONE, StepsDone
from holdfast.testing import FakeOpenAI, Reply, hang
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.fast_steps import count_as_fast, look, looks
from tests.support.rig import MakeRunner, activities_of, assert_replays

ONE = ["describe", "step"]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every step as fast, on a machine of any speed; nothing is reported before the end."""
    count_as_fast(monkeypatch)


def hang_then_look(what: str) -> Reply:
    return hang(looks(what))


def look_thrice(model: FakeOpenAI) -> None:
    for what in "abc":
        model.call("look", {"what": what})
    model.reply("done")


async def end(runner: AgentRunner, task: Task) -> None:
    """Close a task, and check what is kept of it."""
    await runner.finalize_response(task)
    assert await runner.verify(task) == []
    await assert_replays(runner, task)


async def story(runner: AgentRunner, task: Task) -> list[tuple[Any, ...]]:
    """Return what the audit says of a task, without times and names of processes."""
    found = await runner.audit(task)
    times = [each.time for each in found if each.kind == "step"]
    assert times == sorted(times)
    return [
        (e.kind, e.step, e.tool, e.arguments, e.result, e.status, e.attempts, e.tokens)
        for e in found
    ]


async def test_fast_steps_share_an_activity_and_are_recorded_as_by_themselves(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    kept: list[Any] = []
    for most in (1, 8):
        runner = await make_runner(look, worker=FunctionCallingAgentWorker(steps_per_activity=most))
        look_thrice(model)
        task = await runner.create_task("q")
        assert str(await runner.run_task(task)) == "done"
        steps = [each.output for each in await runner.get_completed_steps(task)]
        await end(runner, task)
        kept.append((steps, (await runner.get_task(task)).usage, await story(runner, task)))
        ran = await activities_of(runner.client, task.task_id)
        assert ran == (["describe", *["step"] * 4] if most == 1 else ONE)
    assert kept[0] == kept[1]
    asked = [[each.role for each in request.messages] for request in model.requests]
    assert asked[:4] == asked[4:]


async def test_feedback_is_in_the_next_request_whichever_step_it_meets(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner, held = await make_runner(look), 2
    for k, what in enumerate("abc", start=1):
        model.add(*([hang_then_look(what)] if k == held else []))
        if k != held:
            model.call("look", {"what": what})
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    await runner.give_feedback(task, "mind the gap", by="ann")
    model.release()
    assert str(await running) == "done"
    heard = [request.holds("mind the gap") for request in model.requests]
    assert heard == [k >= held for k in range(4)]
    said = [m.text for m in model.requests[-1].messages if "mind the gap" in m.text]
    assert len(said) == 1
    await end(runner, task)


async def test_an_undo_of_the_newest_step_takes_back_none_that_nobody_has_seen(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    for what in "ab":
        model.call("look", {"what": what})
    model.add(hang_then_look("c"))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    with pytest.raises(CommandRefusedError, match=r"'s1' .* another step has begun since: .* 's3'"):
        await runner.undo_step(task)
    assert len(await runner.get_completed_steps(task)) >= 2
    model.release()
    assert str(await running) == "done"
    await end(runner, task)


async def test_a_report_that_no_activity_has_sent_is_refused(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(hang_then_look("a"))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    handle = runner.client.get_workflow_handle(task.task_id)
    await handle.signal(STEPS_DONE, StepsDone(n=1, events=0, done=(), began=0.0, secret="guessed"))
    await handle.signal(STEPS_DONE, {"n": "one"})
    await handle.signal(STEPS_DONE)
    model.release()
    assert str(await running) == "done"
    refused = [each for each in await runner.audit(task) if each.kind == "refused"]
    assert ["did not come" in each.reason for each in refused] == [True, False, False]
    await end(runner, task)
