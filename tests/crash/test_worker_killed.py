"""A worker process is killed; the next one goes on without repeating what was completed."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Attempt, Task, event_text
from holdfast.errors import StepFailedError
from holdfast.testing import fail
from tests.crash.lab import SOON, Lab
from tests.crash.programs import POLL_SECONDS


async def looks_with_a_worker_lost(lab: Lab, agent: str) -> Task:
    """Run a task whose worker is killed while a model call is held; another one ends it."""
    worker = await lab.serve(agent=agent)
    task = await lab.create("look:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)
    lab.start(agent=agent)
    assert (await running).output == "final look(a)"
    return task


async def test_a_lost_worker_is_no_attempt_that_failed(lab: Lab) -> None:
    lab.hold_model(0)
    await looks_with_a_worker_lost(lab, "asking-once")
    assert lab.asked == [0, 0, 1]  # only the call in flight was made again


@pytest.mark.exhaustive
async def test_failed_attempts_are_counted_across_lost_workers(lab: Lab) -> None:
    lab.api.when(lab.is_mine, fail(500), times=1)
    lab.hold_model(0)
    task = await looks_with_a_worker_lost(lab, "asking-again")
    assert lab.asked == [0, 0, 0, 1]
    assert (await lab.runner.get_task(task)).usage.requests == 2 + 1


@pytest.mark.exhaustive
async def test_a_live_reader_learns_of_the_lost_worker_and_of_the_next_attempt(lab: Lab) -> None:
    lab.hold_model(0, times=2)
    worker = await lab.serve()
    task = await lab.create("look:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)
    # A release before the API has noticed that its client is gone would use up the second hold.
    await lab.api.until_held(0)
    lab.start()
    async with asyncio.timeout(SOON):
        events = lab.runner.step_events(task, poll=POLL_SECONDS)
        again = await anext(event async for event in events if isinstance(event, Attempt))
    assert (again.name, again.attempt, again.why) == ("model", 2, "worker lost")
    assert event_text(again).startswith("  s1 model: worker lost; attempt 2")
    await lab.api.until_held()
    lab.api.release()
    assert (await running).output == "final look(a)"


async def test_killed_inside_a_repeatable_tool(lab: Lab) -> None:
    tool = "book"
    lab.hold(tool)
    worker = await lab.serve()
    task = await lab.create(f"charge:a,{tool}:b {tool}:c")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="b")
    await lab.until_event("end", thing="a")
    await lab.until_recorded(task, "tool", 1)
    await lab.kill(worker)
    lab.let_go(tool)
    lab.start()
    assert (await running).output == f"final charge(a) {tool}(b) {tool}(c)"
    assert lab.asked == [0, 2, 3]
    # The call that was interrupted ran again as the same call and the same action.
    assert lab.starts == {"a": 1, "b": 2, "c": 1}
    assert lab.ends == {"a": 1, "b": 1, "c": 1}
    first, second = lab.events("start", thing="b")
    assert (first["key"], first["call"]) == (second["key"], second["call"])
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["pid"] != second["pid"]
    assert 0 < first["token"] < second["token"] < 2**53
    # The loss is recorded: later readers get it as well.
    events = [event async for event in lab.runner.step_events(task, until="answered")]
    [lost] = [event for event in events if isinstance(event, Attempt)]
    assert event_text(lost) == f"  s1 {tool}: worker lost; attempt 2"
    assert lost.number not in {event.number for event in events if event is not lost}


async def test_a_read_that_was_done_beside_the_one_that_was_killed_is_not_repeated(
    lab: Lab,
) -> None:
    lab.hold("peek")
    worker = await lab.serve()
    task = await lab.create("look:a,peek:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="b")
    await lab.until_event("end", thing="a")
    await lab.until_kept(task)
    await lab.kill(worker)
    lab.let_go("peek")
    lab.start()
    assert (await running).output == "final look(a) peek(b)"
    assert lab.asked == [0, 2]
    assert lab.starts == {"a": 1, "b": 2}
    assert lab.ends == {"a": 1, "b": 1}


@pytest.mark.exhaustive
async def test_an_answer_that_was_handed_over_survives_two_workers_in_a_row(lab: Lab) -> None:
    lab.hold("peek")
    first = await lab.serve(agent="signing")
    task = await lab.create("peek:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="a")
    lab.hold("worker")
    await lab.kill(first)
    second = lab.start(agent="signing")
    await lab.until_beaten(task, attempt=2)
    await lab.kill(second)
    lab.let_go("worker")
    lab.let_go("peek")
    lab.start(agent="signing")
    assert (await running).output == "v1: final peek(a)"
    assert lab.asked == [0, 1]


async def test_killed_inside_a_tool_that_must_not_be_repeated(lab: Lab) -> None:
    lab.hold("charge")
    worker = await lab.serve()
    task = await lab.create("look:a,charge:b,book:c")
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.until_event("start", thing="b")
    await lab.until_recorded(task, "tool", 1)
    await lab.kill(worker)
    lab.let_go("charge")
    lab.start()
    output = await running
    assert output.status == "waiting"
    assert len(output.waiting_for) == 1
    assert "charge" in output.waiting_for[0]
    assert (await lab.runner.get_task(task)).status == "waiting"
    # Asked again while nobody has decided, it says the same, and runs nothing.
    again = await lab.runner.run_task(task)
    assert (again.status, again.waiting_for) == (output.status, output.waiting_for)
    assert lab.asked == [0]
    assert lab.starts == {"a": 1, "b": 1, "c": 1}
    assert lab.ends == {"a": 1, "c": 1}
    receipt = await lab.runner.abandon(task, reason="the charge cannot be checked", by="anna")
    assert receipt.status == "applied"
    await lab.until_status(task, "abandoned")
    assert lab.starts == {"a": 1, "b": 1, "c": 1}


@pytest.mark.exhaustive
async def test_a_tool_waits_for_facts_that_a_killed_worker_held(lab: Lab) -> None:
    # One worker runs the workflow, the others run activities.
    steady = lab.start(options={"no_remote_activities": True})
    acting: dict[str, object] = {"workflows": []}
    lab.hold_model(0)
    first = lab.start(options=acting)
    task = await lab.create("charge:a")
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.api.until_held()
    await lab.kill(first)
    poorer = lab.start(agent="without-charge", options=acting)
    with pytest.raises(StepFailedError, match="charge"):
        await running
    await lab.kill(poorer)
    # The next one knows nothing of the task, and the one it would ask is killed.
    lab.hold("begin.tool")
    lab.start(options=acting)
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.until_event("held")
    await lab.kill(steady)
    lab.start(options={"no_remote_activities": True})
    lab.let_go("begin.tool")
    assert (await running).status == "done"
    assert (await lab.runner.run_step(task)).output == "final charge(a)"
    assert lab.starts == {"a": 1}
    assert lab.asked == [0, 0, 1]


@pytest.mark.exhaustive
async def test_two_workers_share_a_task_and_one_is_killed(lab: Lab) -> None:
    # Without eager dispatch the server deals out the activities, so both get some.
    shared = {"disable_eager_activity_execution": True, "max_concurrent_activities": 1}
    workers = [await lab.serve(options=shared) for _ in range(2)]
    task = await lab.create("look:a look:b look:c look:d look:e look:f look:g look:h")
    for _ in range(5):
        await lab.runner.run_step(task)
    lab.hold("look")
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.until_event("start", thing="f")
    [held] = lab.events("start", thing="f")
    victim = next(each for each in workers if each.pid == held["pid"])
    await lab.kill(victim)
    lab.let_go("look")
    await running
    assert (await lab.runner.run_task(task)).output == (
        "final look(a) look(b) look(c) look(d) look(e) look(f) look(g) look(h)"
    )
    assert lab.asked == list(range(9))
    assert lab.starts == {**dict.fromkeys("abcdegh", 1), "f": 2}
    assert {each["pid"] for each in lab.events("end")} == {each.pid for each in workers}
    # Each record's digest covers all messages before it, whoever ran them.
    assert len(await lab.runner.transcript(task)) == 1 + 8 * 2 + 1


async def test_a_call_that_ends_within_the_grace_is_kept(lab: Lab) -> None:
    lab.hold("charge")
    worker = await lab.serve(grace=20.0)
    task = await lab.create("charge:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start")
    worker.terminate()
    lab.let_go("charge")
    await lab.until_dead(worker)
    assert lab.events("stopped", pid=worker.pid)
    lab.start()
    assert (await running).output == "final charge(a)"
    assert lab.starts == lab.ends == {"a": 1}


async def test_of_calls_that_outlast_the_grace_only_one_that_may_be_repeated_is(lab: Lab) -> None:
    lab.hold("book")
    lab.hold("charge")
    worker = await lab.serve(grace=0.2)
    task = await lab.create("book:a,charge:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", 2)
    worker.terminate()
    await lab.until_dead(worker)
    assert lab.events("stopped", pid=worker.pid)
    lab.let_go("book")
    lab.let_go("charge")
    lab.start()
    assert (await running).status == "waiting"
    await lab.until_event("end", thing="a")
    assert (lab.starts, lab.ends) == ({"a": 2, "b": 1}, {"a": 1})
    assert lab.asked == [0]


@pytest.mark.exhaustive
async def test_an_answer_that_was_long_in_coming_is_kept_by_a_worker_that_stops(lab: Lab) -> None:
    lab.hold("look")
    lab.hold_model(0)
    worker = await lab.serve(grace=0.2)
    task = await lab.create("look:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.until_beaten(task, 1, times=2)  # of these, the worker sends the newest once more
    lab.api.release()
    await lab.until_event("start")
    worker.terminate()
    await lab.until_dead(worker)
    lab.let_go("look")
    lab.start()
    assert (await running).output == "final look(a)"
    assert lab.asked == [0, 1]


@pytest.mark.exhaustive
async def test_the_late_answer_of_a_worker_that_counts_as_lost_is_dropped(lab: Lab) -> None:
    lab.hold_model(1)
    lab.start(mute=True)
    task = await lab.create("look:a")
    assert (await lab.runner.run_task(task)).output == "final look(a)"
    lab.api.release()
    await lab.api.until_held(0)
    response = await lab.runner.finalize_response(task)
    assert str(response) == "final look(a)"
    assert lab.asked == [0, 1, 1]
    assert lab.starts == {"a": 1}
    assert response.usage.requests == 2


async def test_a_call_whose_worker_counts_as_lost_is_not_repeated(lab: Lab) -> None:
    lab.hold("charge")
    lab.start(mute=True)
    task = await lab.create("charge:a")
    assert (await lab.runner.run_task(task)).status == "waiting"
    lab.let_go("charge")
    await lab.until_event("end")
    assert (await lab.runner.run_task(task)).status == "waiting"
    assert lab.starts == lab.ends == {"a": 1}
    assert lab.asked == [0]
