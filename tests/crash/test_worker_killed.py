"""A worker process is killed; the next one goes on without repeating what was completed."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Attempt, Task, event_text
from holdfast.errors import StepFailedError
from holdfast.testing import fail
from tests.crash.lab import SOON, Lab, Labs
from tests.crash.programs import POLL_SECONDS


async def test_killed_while_a_model_call_is_in_flight(lab: Lab) -> None:
    lab.hold_model(1)
    worker = await lab.serve()
    task = await lab.create("look:a look:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.until_steps_kept(task, 1)
    await lab.kill(worker)
    lab.start()
    assert (await running).output == "final look(a) look(b)"
    # Only the call in flight was asked again.
    assert lab.asked == [0, 1, 1, 2]
    assert lab.starts == {"a": 1, "b": 1}
    assert await lab.scheduled(task, "tool") == 0


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
    assert lab.asked == [0, 0, 1]


@pytest.mark.parametrize("fails_first", [True, False])
async def test_failed_attempts_are_counted_across_lost_workers_which_are_none(
    lab: Lab, *, fails_first: bool
) -> None:
    if not fails_first:
        lab.hold_model(0)
    lab.api.when(lab.is_mine, fail(500), times=1)
    if fails_first:
        lab.hold_model(0)
    task = await looks_with_a_worker_lost(lab, "asking-again")
    assert lab.asked == [0, 0, 0, 1]
    assert (await lab.runner.get_task(task)).usage.requests == 2 + 1


async def test_killed_after_the_model_answered_and_before_the_tool_ran(lab: Lab) -> None:
    worker = lab.start(die=(("schedule:tool", 2),))
    task = await lab.create("charge:a charge:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_dead(worker)
    assert lab.asked == [0, 1]
    assert lab.starts == {"a": 1}
    lab.start()
    assert (await running).output == "final charge(a) charge(b)"
    assert lab.asked == [0, 1, 2]
    assert lab.starts == lab.ends == {"a": 1, "b": 1}


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


@pytest.mark.parametrize("tool", ["look", "book"])
async def test_killed_inside_a_repeatable_tool(lab: Lab, tool: str) -> None:
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
    # The loss is recorded: later readers get it as well.
    events = [event async for event in lab.runner.step_events(task, until="answered")]
    [lost] = [event for event in events if isinstance(event, Attempt)]
    assert event_text(lost) == f"  s1 {tool}: worker lost; attempt 2"
    assert lost.number not in {event.number for event in events if event is not lost}


async def test_killed_inside_a_reading_tool_of_the_step_pays_for_no_answer_again(lab: Lab) -> None:
    lab.hold("look")
    worker = await lab.serve()
    task = await lab.create("look:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="a")
    await lab.kill(worker)
    lab.let_go("look")
    lab.start()
    assert (await running).output == "final look(a)"
    assert lab.asked == [0, 1]
    assert lab.starts == {"a": 2}
    assert lab.ends == {"a": 1}
    first, second = lab.events("start", thing="a")
    assert (first["key"], first["attempt"]) == (second["key"], 1)
    assert second["attempt"] == 2
    assert await lab.runner.verify(task) == []


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


@pytest.mark.parametrize("by", ["run_step", "run_task"])
async def test_killed_inside_a_tool_that_must_not_be_repeated(lab: Lab, by: str) -> None:
    lab.hold("charge")
    worker = await lab.serve()
    task = await lab.create("look:a,charge:b,book:c")
    ask = getattr(lab.runner, by)
    running = asyncio.create_task(ask(task))
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
    again = await ask(task)
    assert (again.status, again.waiting_for) == (output.status, output.waiting_for)
    assert lab.asked == [0]
    assert lab.starts == {"a": 1, "b": 1, "c": 1}
    assert lab.ends == {"a": 1, "c": 1}
    receipt = await lab.runner.abandon(task, reason="the charge cannot be checked", by="anna")
    assert receipt.status == "applied"
    await lab.until_status(task, "abandoned")
    assert lab.starts == {"a": 1, "b": 1, "c": 1}


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


async def test_killed_between_steps(lab: Lab) -> None:
    worker = await lab.serve()
    task = await lab.create("look:a charge:b look:c")
    for _ in range(2):
        output = await lab.runner.run_step(task)
        assert not output.is_last
        await lab.kill(worker)
        worker = lab.start()
    outputs = [await lab.runner.run_step(task), await lab.runner.run_step(task)]
    assert [each.is_last for each in outputs] == [False, True]
    assert outputs[-1].output == "final look(a) charge(b) look(c)"
    assert lab.asked == [0, 1, 2, 3]
    assert lab.starts == {"a": 1, "b": 1, "c": 1}
    assert await lab.scheduled(task, "step") == 4


async def test_killed_while_it_describes_the_agent(lab: Lab) -> None:
    worker = lab.start(die=(("begin:describe", 1),))
    task = await lab.create("look:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_dead(worker)
    lab.start()
    assert (await running).output == "final look(a)"
    assert lab.asked == [0, 1]


POINTS = {
    "in the first model call": ("begin:step", 1),
    "between the first answer and the tools": ("schedule:tool", 1),
    "in the tool": ("begin:tool", 1),
    "after the tool, before it was reported": ("end:tool", 1),
    "between the tools and the second call": ("schedule:step", 2),
    "in the second model call": ("begin:step", 2),
}


async def test_killed_at_each_point_of_a_step_of_several_calls(labs: Labs) -> None:
    async with asyncio.TaskGroup() as group:
        for name, point in POINTS.items():
            group.create_task(kill_within_step(labs, name, point))


async def kill_within_step(labs: Labs, name: str, point: tuple[str, int]) -> None:
    async with labs.named(name) as lab:
        worker = lab.start(agent="ask-act-ask", die=(point,))
        task = await lab.create("look:a,book:b")
        running = asyncio.create_task(lab.runner.run_step(task))
        await lab.until_dead(worker)
        lab.start(agent="ask-act-ask")
        output = await running
        assert output.is_last
        assert output.output == "final look(a) book(b)"
        assert [source.content for source in output.sources] == ["look(a)", "book(b)"]
        assert lab.asked == [0, 2]
        assert await lab.scheduled(task, "step") == 2
        assert await lab.scheduled(task, "tool") == 1


@pytest.mark.parametrize("asked", [0, 1])
async def test_killed_in_a_model_call_of_a_step_of_several(lab: Lab, asked: int) -> None:
    lab.hold_model(asked)
    worker = await lab.serve(agent="ask-act-ask")
    task = await lab.create("charge:a")
    running = asyncio.create_task(lab.runner.run_step(task))
    await lab.api.until_held()
    await lab.kill(worker)
    lab.start(agent="ask-act-ask")
    assert (await running).output == "final charge(a)"
    assert lab.asked == ([0, 0, 1] if asked == 0 else [0, 1, 1])
    assert lab.starts == {"a": 1}


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


@pytest.mark.parametrize("tool", ["look", "charge"])
async def test_a_call_that_ends_within_the_grace_is_kept(lab: Lab, tool: str) -> None:
    lab.hold(tool)
    worker = await lab.serve(grace=20.0)
    task = await lab.create(f"{tool}:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start")
    assert worker.pid is not None
    worker.terminate()
    lab.let_go(tool)
    await lab.until_dead(worker)
    assert lab.events("stopped", pid=worker.pid)
    lab.start()
    assert (await running).output == f"final {tool}(a)"
    assert lab.starts == lab.ends == {"a": 1}


@pytest.mark.parametrize("tool", ["look", "charge"])
async def test_a_call_that_outlasts_the_grace(lab: Lab, tool: str) -> None:
    lab.hold(tool)
    worker = await lab.serve(grace=0.2)
    task = await lab.create(f"{tool}:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start")
    worker.terminate()
    await lab.until_dead(worker)
    assert lab.events("stopped", pid=worker.pid)
    lab.let_go(tool)
    lab.start()
    output = await running
    assert lab.asked == ([0, 1] if tool == "look" else [0])
    if tool == "look":
        assert output.output == "final look(a)"
        assert lab.starts == {"a": 2}
    else:
        assert output.status == "waiting"
        assert lab.starts == {"a": 1}
    assert lab.ends == ({"a": 1} if tool == "look" else {})


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


async def test_terminated_in_a_model_call(lab: Lab) -> None:
    lab.hold_model(1)
    worker = await lab.serve(grace=0.2)
    task = await lab.create("look:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    worker.terminate()
    await lab.until_dead(worker)
    lab.start()
    assert (await running).output == "final look(a)"
    assert lab.asked == [0, 1, 1]


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
