"""Runs that their caller cancels: what ends at once, what is finished, and what goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Runner, RunState, tool
from holdfast.reading.streams.hub import local_turns
from holdfast.reading.streams.reader import RunItemStreamEvent, StreamEvent
from holdfast.testing.fake_api.replies import call, paced
from tests.support.rig import Rig, until_status, until_task
from tests.support.runs import Runs, look, outputs


@pytest.fixture
def run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Run agents whose turns do not wait for readers, as if those were in another process."""
    monkeypatch.setattr(local_turns, "patience", 0.0)
    return Runs(rig)


def is_output(event: StreamEvent) -> bool:
    return isinstance(event, RunItemStreamEvent) and event.name == "tool_output"


async def read_and(
    stream: Any, when: Callable[[StreamEvent], bool], act: Callable[[], Awaitable[None]]
) -> list[StreamEvent]:
    """Read a stream to its end, act once, and return the events that were told after that."""
    rest: list[StreamEvent] | None = None
    async with asyncio.timeout(100):
        async for event in stream.stream_events():
            if rest is not None:
                rest.append(event)
            elif when(event):
                await act()
                rest = []
    assert rest is not None
    return rest


async def until_asked(runs: Runs, task_id: str, times: int) -> None:
    """Wait until a task has so many answers of a model."""
    await until_task(runs.runner, task_id, lambda found: found.usage.requests >= times)


async def test_a_cancelled_stream_tells_nothing_more(run: Runs) -> None:
    run.model.call("look")
    run.model.paced("one two three", hold_after=1)
    stream = Runner.run_streamed(await run.serve(look), "q", runner=run.runner)

    async def cancel() -> None:
        await run.model.until_held()  # all of the first turn is there to be read
        stream.cancel()

    assert await read_and(stream, lambda event: event.type == "raw_response_event", cancel) == []
    assert stream.is_complete
    await until_status(run.runner, stream.task_id, "abandoned")
    run.model.release()


async def test_reading_ends_when_the_abandon_is_recorded_though_no_worker_heeds_it_yet(
    run: Runs,
) -> None:
    run.model.call("look")
    run.model.paced("one two three", hold_after=1)
    agent = await run.serve(look)
    stream = Runner.run_streamed(agent, "q", runner=run.runner)

    async def stop_and_cancel() -> None:
        await run.model.until_held()
        await run.rig.stop()
        stream.cancel()

    assert await read_and(stream, is_output, stop_and_cancel) == []
    assert [item.type for item in stream.new_items] == ["tool_call_item", "tool_call_output_item"]
    assert stream.run_loop_exception is None
    run.model.release()
    # The call is tried again where the worker gets it before it gets the abandon.
    run.model.when(lambda _: True, "too late")
    await run.rig.serve(agent)
    await until_status(run.runner, stream.task_id, "abandoned")


async def test_stopping_after_a_turn_keeps_the_next_answer_and_runs_no_tool_of_it(
    run: Runs,
) -> None:
    run.model.add(call("look", id="c1"), paced(call("look", id="c2"), hold_after=1))
    stream = Runner.run_streamed(await run.serve(look), "q", runner=run.runner, by="ann")

    async def cancel() -> None:
        await run.model.until_held()
        stream.cancel(mode="after_turn")

    await read_and(stream, is_output, cancel)
    assert len(outputs(stream)) == 1
    assert stream.waiting_for == ("paused by ann: cancelled after the turn; resume the task first",)
    run.model.release()
    await until_asked(run, stream.task_id, 2)
    run.model.reply("done")
    result = await run(stream.to_state(), by="eve")
    assert (result.final_output, len(outputs(result)), len(run.model.requests)) == ("done", 2, 3)
    events = await run.runner.audit(stream.task_id)
    [resumed] = [event.time for event in events if event.verb == "resume"]
    starts = [event.started for event in events if event.kind == "tool_call"]
    assert [start > resumed for start in starts] == [False, True]


async def test_a_cancelled_call_of_run_leaves_its_task_running(run: Runs) -> None:
    called, go = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Wait until told to go on."""
        called.set()
        await go.wait()
        return "held"

    run.model.add(call("hold"), "all is well")
    agent, task_id = await run.serve(hold), f"{run.rig.app}-order"
    running = asyncio.create_task(Runner.run(agent, "q", runner=run.runner, task_id=task_id))
    await called.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go.set()
    await until_status(run.runner, task_id, "finished")
    result = await Runner.run(agent, RunState.of(task_id), runner=run.runner)
    assert (result.final_output, len(run.model.requests)) == ("all is well", 2)
