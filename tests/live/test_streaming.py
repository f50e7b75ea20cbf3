"""Streams: what a run tells while it goes on, in order, once, and again from any offset."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Agent, AgentRunner, Runner, TaskStep, TaskStepOutput, tool
from holdfast.activities.heartbeat import Pulse
from holdfast.agents.hooks import RunHooks
from holdfast.errors import MaxTurnsExceeded, TaskExistsError, UserError
from holdfast.reading.reader import Reader
from holdfast.reading.streams.hub import LocalHub
from holdfast.reading.streams.reader import (
    AgentUpdatedStreamEvent,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    StepUndoneStreamEvent,
    StreamEvent,
    StreamReader,
)
from holdfast.testing import call, paced
from holdfast.values.messages import ToolCall, user
from holdfast.workers import StepContext
from tests.support.rig import Rig, event_types, histories
from tests.support.runs import Runs, Served, look, pay
from tests.support.workers import Doing, ends


@tool(effect="read", return_direct=True)
def direct_look(where: str) -> str:
    """Look somewhere, and leave it at that."""
    return f"seen {where}"


async def read(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    """Read a stream to its end."""
    async with asyncio.timeout(60):
        return [event async for event in events]


def word_of(event: StreamEvent) -> str:
    """Say in a word what an event is."""
    match event:
        case AgentUpdatedStreamEvent():
            return f"agent {event.new_agent.name}"
        case RawResponsesStreamEvent():
            kind: str = event.data.type
            return kind.removeprefix("response.")
        case RunItemStreamEvent():
            return event.name
        case StepUndoneStreamEvent():
            return "step_undone"


def words(events: Iterable[StreamEvent]) -> list[str]:
    """Say in a word what each event is; deltas that follow each other are one."""
    found: list[str] = []
    for event in events:
        word = word_of(event)
        if not (word.endswith(".delta") and found and found[-1] == word):
            found.append(word)
    return found


def said(events: Iterable[StreamEvent]) -> str:
    """Put the text together that was told; an answer that is made anew begins anew."""
    text = ""
    for event in events:
        if isinstance(event, RawResponsesStreamEvent):
            if event.data.type == "response.created":
                text = ""
            elif event.data.type == "response.output_text.delta":
                text += event.data.delta
    return text


TEXT = [
    "created",
    "in_progress",
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]


class Streaming(Served):
    """Runs agents on the test's own worker."""

    async def __call__(self, *tools: Any, agent: Agent | None = None, **options: Any) -> Any:
        self.agent = agent or self.rig.agent(*tools)
        await self.rig.serve(self.agent)
        return Runner.run_streamed(self.agent, "Q", runner=self.runner, **options)

    async def plain(self, *tools: Any) -> Any:
        agent = self.rig.agent(*tools)
        await self.rig.serve(agent)
        return await Runner.run(agent, "Q", runner=self.runner)


@pytest.fixture
def streaming(rig: Rig) -> Streaming:
    return Streaming(rig)


async def test_an_answer_is_told_while_it_is_made(streaming: Streaming) -> None:
    streaming.model.paced("one two three", piece=4, hold_after=2)
    run = await streaming()
    got: list[StreamEvent] = []
    async with asyncio.timeout(100):
        async for event in run.stream_events():
            got.append(event)
            if said(got) == "one two ":
                break
        assert not run.is_complete
        streaming.model.release()
        rest = await read(run.stream_events(got[-1].offset))
    assert said([*got, *rest]) == "one two three"
    assert words([*got, *rest]) == ["agent agent", *TEXT, "completed", "message_output_created"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the heartbeats that were wanted for progress alone."""
    told: list[str] = []

    def tell(_own: Pulse) -> None:
        told.append("told")

    monkeypatch.setattr(Pulse, "tell_progress", tell)
    return told


async def test_an_answer_that_is_read_in_the_process_of_its_worker_costs_no_heartbeats(
    streaming: Streaming, told: list[str]
) -> None:
    streaming.model.paced("one two three", piece=4, hold_after=1)
    run = await streaming()
    got: list[StreamEvent] = []
    async for event in run.stream_events():
        got.append(event)
        if said(got) == "one ":
            told.clear()  # it may have begun before its reader
            streaming.model.release()
    assert (said(got), told) == ("one two three", [])


async def test_readers_elsewhere_see_answers_by_heartbeats(streaming: Streaming) -> None:
    streaming.model.paced("one two three", piece=4, hold_after=2)
    run = await streaming()
    await streaming.model.until_held()
    got: list[StreamEvent] = []
    async with asyncio.timeout(100):
        async for event in elsewhere(streaming.runner, run.task_id):
            got.append(event)
            if said(got) == "one two ":
                break
    streaming.model.release()
    rest = await read(elsewhere(streaming.runner, run.task_id, got[-1].offset))
    assert said([*got, *rest]) == "one two three"
    assert words([*got, *rest]) == ["agent agent", *TEXT, "completed", "message_output_created"]
    await run.result()


async def elsewhere(
    runner: AgentRunner, task_id: str, offset: int = 0
) -> AsyncGenerator[StreamEvent]:
    """Read as a process does that gets nothing from the worker's hub."""
    engine = Reader(runner.client, runner.archive)
    reader = StreamReader(engine, task_id, offset=offset, hub=LocalHub())
    async for batch in reader.batches():
        for event in batch:
            yield event


async def test_a_step_is_streamed(streaming: Streaming) -> None:
    streaming.model.add(call("look"), paced("all is well", hold_after=1))
    await streaming.rig.serve(streaming.rig.agent(look))
    runner = streaming.runner
    task = await runner.create_task("Q")
    first = runner.stream_step(task)
    assert words(await read(aiter(first)))[-2:] == ["tool_called", "tool_output"]
    assert not (await first.result()).is_last
    second = runner.stream_step(task)
    got: list[StreamEvent] = []
    async for event in second:
        got.append(event)
        if word_of(event) == "output_text.delta" and streaming.model.held:
            streaming.model.release()
    assert words(got) == [*TEXT, "completed", "message_output_created"]
    assert (await second.result()).is_last
    assert [r.is_stream for r in streaming.model.requests] == [True, True]


async def done_in(client: Client, task_id: str) -> Counter[str]:
    """Count the events of a task, but for those whose number the load of the machine decides."""
    split = ("WORKFLOW_TASK_", "UPSERT_")
    return Counter(e for e in await event_types(client, task_id) if not e.startswith(split))


async def test_streaming_adds_nothing_to_history(streaming: Streaming) -> None:
    text = "some words " * 18
    for _ in range(2):
        streaming.model.add(call("look", {"where": "a"}, text=text), text)
    apart = replace(look, inline=False)  # in a streamed run every call has its own activity
    plain = await streaming.plain(apart)
    run = await streaming(apart)
    await read(run.stream_events())
    client = streaming.runner.client
    assert await done_in(client, run.task_id) == await done_in(client, plain.task_id)
    sizes = [
        sum(event.ByteSize() for event in history.events)
        for task_id in (plain.task_id, run.task_id)
        for history in await histories(client, task_id)
    ]
    assert sizes[1] <= 1.1 * sizes[0]


async def ask_act_ask(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Ask the model twice, with a call of its own between, all in one step."""
    where = json.dumps({"where": (await ctx.call_model([user("first")])).text})
    [result] = await ctx.call_tools([ToolCall(id="own", name="look", arguments=where)])
    second = await ctx.call_model([user(result.content)])
    ctx.add(second.message)
    return ends(step, second.text)


@pytest.mark.parametrize("kind", ["direct", "own"])
async def test_steps_of_other_shapes_are_told_alike_live_and_later(
    streaming: Streaming, kind: str
) -> None:
    if kind == "direct":
        streaming.model.call("direct_look", {"where": "a"})
        agent = streaming.rig.agent(direct_look)
    else:
        streaming.model.add("one", "two")
        agent = streaming.rig.agent(look, worker=Doing(ask_act_ask))
    run = await streaming(agent=agent)
    live = await read(run.stream_events())
    if kind == "direct":
        assert [e.item for e in live if isinstance(e, RunItemStreamEvent)] == run.new_items
    else:
        turn = [*TEXT, "completed"]
        told = ["tool_called", "tool_output"]
        assert words(live) == ["agent agent", *turn, *told, *turn, "message_output_created"]
    for k in (-1, *range(0, len(live), 3)):
        offset = live[k].offset if k >= 0 else 0
        rest = await read(streaming.runner.stream_events(run.task_id, offset=offset))
        assert words([*live[: k + 1], *rest]) == words(live)


# ---- streamed runs in trouble: ids that are taken, cancels, errors, lost connections


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
