"""A worker process is killed; the next one goes on without repeating what was completed."""

import asyncio

import pytest

from holdfast import Attempt, event_text
from tests.crash.lab import Lab


async def test_a_lost_worker_is_no_attempt_that_failed(lab: Lab) -> None:
    lab.hold_model(0)
    worker = await lab.serve(agent="asking-once")
    task = await lab.create("look:a")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.api.until_held()
    await lab.kill(worker)
    lab.start(agent="asking-once")
    assert (await running).output == "final look(a)"
    assert lab.asked == [0, 0, 1]  # only the call in flight was made again


async def test_killed_inside_a_repeatable_tool(lab: Lab) -> None:
    lab.hold("book")
    worker = await lab.serve()
    task = await lab.create("charge:a,book:b book:c")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", thing="b")
    await lab.until_event("end", thing="a")
    await lab.until_recorded(task, 3)
    await lab.kill(worker)
    lab.let_go("book")
    lab.start()
    assert (await running).output == "final charge(a) book(b) book(c)"
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
    assert event_text(lost) == "  s1 book: worker lost; attempt 2"
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


@pytest.mark.parametrize(("grace", "again"), [(20.0, {"a": 1, "b": 1}), (0.2, {"a": 2, "b": 1})])
async def test_a_call_that_outlasts_the_grace_is_made_again_only_if_it_may_be_repeated(
    lab: Lab, grace: float, again: dict[str, int]
) -> None:
    is_kept = again["a"] == 1
    for tool in ("book", "charge"):
        lab.hold(tool)
    worker = await lab.serve(grace=grace)
    task = await lab.create("book:a,charge:b")
    running = asyncio.create_task(lab.runner.run_task(task))
    await lab.until_event("start", 2)
    worker.terminate()
    if not is_kept:
        await lab.until_dead(worker)
    for tool in ("book", "charge"):
        lab.let_go(tool)
    await lab.until_dead(worker)
    assert lab.events("stopped", pid=worker.pid)
    lab.start()
    assert (await running).status == ("done" if is_kept else "waiting")
    await lab.until_event("end", thing="a")
    assert (lab.starts, lab.ends) == (again, {"a": 1, "b": 1} if is_kept else {"a": 1})
