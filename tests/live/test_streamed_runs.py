"""Streamed runs in trouble: ids that are taken, cancels, errors, lost connections."""

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import pytest

from holdfast import Runner
from holdfast.agents.hooks import RunHooks
from holdfast.errors import MaxTurnsExceeded, TaskExistsError, UserError
from holdfast.reading.streams.reader import RunItemStreamEvent, StepUndoneStreamEvent, StreamEvent
from holdfast.testing import call, paced
from tests.support.runs import Runs, look, pay


async def take(stream: AsyncIterable[StreamEvent], got: list[StreamEvent]) -> None:
    """Read a stream to its end; what was read stays when it raises."""
    async with asyncio.timeout(60):
        async for event in stream:
            got.append(event)  # noqa: PERF401  as said


async def test_a_run_with_a_taken_id_tells_nothing_of_the_other_run_and_stops_nobody(
    run: Runs,
) -> None:
    told: list[Any] = []

    class Broken(RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            del context
            told.append(agent.name)
            raise RuntimeError("the hook is broken")

    agent, name = await run.serve(), f"{run.rig.app}-taken"
    given: Any = {"runner": run.runner, "task_id": name}
    run.model.hang("done")
    running = asyncio.create_task(Runner.run(agent, "q", **given))
    await run.model.until_held()
    with pytest.raises(TaskExistsError):
        await Runner.run(agent, "q", hooks=Broken(), **given)
    modes: Any = ("immediate", "after_turn", "")
    for mode in modes:
        stream = Runner.run_streamed(agent, "q", **given)
        if mode:
            with pytest.raises(UserError, match="after_turn"):
                stream.cancel("afterturn")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            stream.cancel(mode)
        with pytest.raises(TaskExistsError):
            await take(stream, told)
        assert isinstance(stream.run_loop_exception, TaskExistsError)
    with pytest.raises(TaskExistsError):
        await take(run.runner.stream_chat("q", task_id=name), told)
    assert told == []
    run.model.release()
    assert (await running).final_output == "done"


MEMBERS: dict[str, Any] = {
    "raw_responses": [],
    "interruptions": [],
    "input_guardrail_results": [],
    "output_guardrail_results": [],
    "tool_input_guardrail_results": [],
    "tool_output_guardrail_results": [],
    "last_response_id": None,
    "final_output": None,
}
"""What a run has that has made nothing, as the Agents SDK has it."""


async def test_what_a_run_has_before_it_is_complete_and_after_it_failed(run: Runs) -> None:
    run.model.call("look")
    agent = await run.serve(look)
    context = {"a": 1}
    stream = Runner.run_streamed(agent, "q", runner=run.runner, max_turns=1, context=context)
    assert {name: getattr(stream, name) for name in MEMBERS} == MEMBERS
    assert stream.context_wrapper.context is context
    assert stream.usage.requests == 0
    assert stream.to_state().task_id == stream.task_id
    assert stream.final_output_as(str) is None
    with pytest.raises(MaxTurnsExceeded):
        await stream.result()
    assert [item.type for item in stream.new_items] == ["tool_call_item", "tool_call_output_item"]
    assert len(stream.raw_responses) == stream.usage.requests == 1
    assert stream.last_response_id
    assert stream.input_guardrail_results == []
    assert len(stream.to_input_list()) == 3
    with pytest.raises(AttributeError):
        _ = stream.no_such_thing


def standing(events: list[StreamEvent]) -> list[str]:
    """List the calls and outputs that were told and count."""
    told: dict[int, str] = {}
    for event in events:
        if isinstance(event, StepUndoneStreamEvent):
            told = {at: word for at, word in told.items() if not event.is_void(at)}
        elif isinstance(event, RunItemStreamEvent):
            told[event.offset] = f"{event.item.type} {event.item.call_id}"
    return list(told.values())


async def test_what_was_undone_is_told_to_be_void_to_readers_of_then_and_of_later(
    run: Runs,
) -> None:
    run.model.add(call("look", id="c1"), call("pay", id="c2"))
    result = await run("q", look, pay)
    state, task_id, runner = result.to_state(), result.task_id, run.runner
    live: list[StreamEvent] = []

    async def catch_up() -> list[StreamEvent]:
        """Read on, and all anew."""
        offset = live[-1].offset if live else 0
        await take(runner.stream_events(task_id, offset=offset, until="waiting"), live)
        anew: list[StreamEvent] = []
        await take(runner.stream_events(task_id, until="waiting"), anew)
        return anew

    await catch_up()
    calls = ["tool_call_item c1", "tool_call_output_item c1", "tool_call_item c2"]
    assert standing(live) == calls
    await runner.undo_step(task_id, by="ann", reason="not so much")
    run.model.call("pay", id="c3")
    await run(state)
    anew = await catch_up()
    assert standing(anew) == standing(live) == [*calls[:2], "tool_call_item c3"]
    [undone] = [event for event in live if isinstance(event, StepUndoneStreamEvent)]
    assert undone in anew
    assert (undone.steps, undone.by, undone.reason) == (("s2",), "ann", "not so much")
    await runner.undo_step(task_id)
    await runner.undo_step(task_id)
    run.model.add(call("look", id="c4"), call("pay", id="c5"))
    again = await run(state)
    anew = await catch_up()
    items = [item for item in again.new_items if item.type.startswith("tool_call")]
    made = [f"{item.type} {item.call_id}" for item in items]
    assert made[0] == "tool_call_item c4"
    assert standing(anew) == standing(live) == made
    await runner.abandon(task_id, "enough")
    events = [e async for e in runner.step_events(task_id)]
    numbers = [event.number for event in events]
    assert numbers == sorted(set(numbers))
    assert [e.steps for e in events if e.kind == "step_undone"] == [("s2",), ("s2",), ("s1",)]


async def test_a_printed_stream_says_how_far_the_run_is(run: Runs) -> None:
    run.model.add(paced("done", hold_after=1))
    agent = await run.serve(look)
    stream = Runner.run_streamed(agent, "q", runner=run.runner)
    await run.model.until_held()
    assert str(stream).startswith("RunResultStreaming (in progress, turn 0):\n  task: ")
    assert "final output: none" in str(stream)
    run.model.release()
    await stream.result()
    assert str(stream).startswith("RunResultStreaming (complete):")
    assert "final output (str): done" in str(stream)
    run.model.call("look", {})
    failed = Runner.run_streamed(agent, "q", runner=run.runner, max_turns=1)
    with pytest.raises(MaxTurnsExceeded) as caught:
        await failed.result()
    assert str(failed).startswith("RunResultStreaming (failed with MaxTurnsExceeded):")
    assert "new items: 2" in str(failed)
    assert str(caught.value.run_data).startswith("RunData:")
    run.model.add(paced("done", hold_after=1))
    left = Runner.run_streamed(agent, "q", runner=run.runner)
    await run.model.until_held()
    left.cancel()
    assert str(left).startswith("RunResultStreaming (cancelled):")
    run.model.release()
    await take(left, [])
