"""Streams: what a run tells while it goes on, in order, once, and again from any offset."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Agent, AgentRunner, RunHooks, Runner, TaskStep, TaskStepOutput, tool
from holdfast.activities.heartbeat import Pulse
from holdfast.client.runner.streamed_run import RunResultStreaming
from holdfast.errors import MaxTurnsExceeded, TaskExistsError, UserError
from holdfast.reading.reader import Reader
from holdfast.reading.streams.hub import LocalHub, local_turns
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
from tests.support import forked
from tests.support.programs import ran
from tests.support.rig import Rig, activities_of, event_types, histories, until
from tests.support.runs import Runs, Served, look, outputs, pay
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


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_an_answer_is_told_while_it_is_made_and_elsewhere_by_heartbeats(
    streaming: Streaming, where: str
) -> None:
    streaming.model.paced("one two three", piece=4, hold_after=2)
    run = await streaming()

    def events(offset: int = 0) -> AsyncIterator[StreamEvent]:
        if where == "here":
            return run.stream_events(offset)  # type: ignore[no-any-return]
        return elsewhere(streaming.runner, run.task_id, offset)

    await streaming.model.until_held()
    got: list[StreamEvent] = []
    async with asyncio.timeout(100):
        async for event in events():
            got.append(event)
            if said(got) == "one two ":
                break
        assert not run.is_complete
        streaming.model.release()
        got += await read(events(got[-1].offset))
    assert said(got) == "one two three"
    assert words(got) == ["agent agent", *TEXT, "completed", "message_output_created"]
    await run.result()


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


async def test_what_a_run_has_and_says_before_it_is_complete_and_after_it_failed(run: Runs) -> None:
    run.model.call("look")
    agent = await run.serve(look)
    context = {"a": 1}
    stream = Runner.run_streamed(agent, "q", runner=run.runner, max_turns=1, context=context)
    assert str(stream).startswith("RunResultStreaming (in progress, turn 0):\n  task: ")
    assert "final output: none" in str(stream)
    assert {name: getattr(stream, name) for name in MEMBERS} == MEMBERS
    assert stream.context_wrapper.context is context
    assert stream.usage.requests == 0
    assert stream.to_state().task_id == stream.task_id
    assert stream.final_output_as(str) is None
    with pytest.raises(MaxTurnsExceeded) as caught:
        await stream.result()
    assert str(stream).startswith("RunResultStreaming (failed with MaxTurnsExceeded):")
    assert "new items: 2" in str(stream)
    assert str(caught.value.run_data).startswith("RunData:")
    assert caught.value.run_data.context_wrapper.context is context
    assert [item.type for item in stream.new_items] == ["tool_call_item", "tool_call_output_item"]
    assert len(stream.raw_responses) == stream.usage.requests == 1
    assert stream.last_response_id
    assert stream.input_guardrail_results == []
    assert len(stream.to_input_list()) == 3
    with pytest.raises(AttributeError):
        _ = stream.no_such_thing
    run.model.reply("done")
    done = Runner.run_streamed(agent, "q", runner=run.runner)
    await done.result()
    assert str(done).startswith("RunResultStreaming (complete):")
    assert "final output (str): done" in str(done)
    run.model.hang("done")
    left = Runner.run_streamed(agent, "q", runner=run.runner)
    await run.model.until_held()
    left.cancel()
    assert str(left).startswith("RunResultStreaming (cancelled):")
    run.model.release()
    await take(left, [])


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


# ---- turns: the next one begins once the readers in this process have come back


NEVER = 1000.0


@pytest.fixture
def run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Run agents whose turns wait for their readers as long as it takes."""
    monkeypatch.setattr(local_turns, "patience", NEVER)
    return Runs(rig)


def is_output(event: StreamEvent) -> bool:
    return event.type == "run_item_stream_event" and event.name == "tool_output"


async def until_output(events: AsyncGenerator[StreamEvent]) -> None:
    """Read until a tool has an output, and do not come back."""
    async with asyncio.timeout(60):
        while not is_output(await anext(events)):
            pass


async def until_second_turn(run: Runs, task_id: str) -> None:
    """Wait until the activity of the second step runs."""

    async def runs() -> bool:
        found = await run.runner.client.get_workflow_handle(task_id).describe()
        pending = found.raw_description.pending_activities
        count = [each.activity_type.name for each in pending].count("step")
        assert found.raw_description.workflow_execution_info.status == 1, "the run has gone on"
        return count == 1 and (await run.runner.get_task(task_id)).steps == 1

    await until(runs)


async def stopped(run: Runs, stream: RunResultStreaming) -> None:
    """Read a stream, and stop it at the last event of its turn, when the next one is to begin."""
    async with asyncio.timeout(60):
        async for event in stream.stream_events():
            if is_output(event):
                await until_second_turn(run, stream.task_id)
                stream.cancel(mode="after_turn")


async def test_a_stop_in_reaction_to_the_last_event_of_a_turn_begins_no_other_turn(
    run: Runs,
) -> None:
    told: list[str] = []

    class Told(RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            told.append(agent.name)

        async def on_llm_start(self, *_: Any, **__: Any) -> None:
            told.append("asks")

    run.model.call("look")
    agent = await run.serve(look)
    stream = Runner.run_streamed(agent, "q", runner=run.runner, hooks=Told(), by="ann")
    await stopped(run, stream)
    assert stream.is_complete
    assert (stream.final_output, outputs(stream)) == (None, ["seen here"])
    assert stream.context_wrapper.usage.requests == len(run.model.requests) == 1
    assert told == ["agent", "asks"]
    [step] = await run.runner.get_upcoming_steps(stream.task_id)
    assert step.step_id == "s2"
    assert (await run.runner.get_task(stream.task_id)).status == "paused"

    run.model.reply("done")
    state = stream.to_state()
    state.add_input("be brief")
    result = await Runner.run(agent, state, runner=run.runner, by="eve")
    assert (result.final_output, outputs(result)) == ("done", ["seen here"])
    said = [m.text for m in run.model.requests[-1].messages if m.role == "user"]
    assert said == ["q", "be brief"]
    assert result.context_wrapper.usage.requests == len(run.model.requests) == 2
    scheduled = await activities_of(run.runner.client, stream.task_id)
    assert scheduled.count("step") == 3  # the second one did not begin at first
    failed = [e for e in await run.runner.audit(stream.task_id) if e.status == "failed"]
    assert failed == []


async def test_a_run_begun_without_a_stream_is_stopped_after_its_turn_as_well(run: Runs) -> None:
    run.model.call("pay")
    agent = await run.serve(pay)
    asking = await Runner.run(agent, "q", runner=run.runner, by="ann")
    state = asking.to_state()
    state.approve(asking.interruptions[0])
    stream = Runner.run_streamed(agent, state, runner=run.runner, by="ann")
    await stopped(run, stream)
    assert (stream.final_output, len(run.model.requests)) == (None, 1)
    run.model.reply("done")
    result = await Runner.run(agent, stream.to_state(), runner=run.runner, by="ann")
    assert (result.final_output, len(run.model.requests)) == ("done", 2)


@pytest.mark.parametrize("how", ["dropped", "cancelled"])
async def test_a_turn_does_not_wait_for_a_reader_that_is_gone(run: Runs, how: str) -> None:
    run.model.add(call("look"), "done")
    stream = Runner.run_streamed(await run.serve(look), "q", runner=run.runner)
    events, read = stream.stream_events(), asyncio.Event()

    async def consume() -> None:
        await until_output(events)
        read.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        if how == "dropped":
            await until_output(events)
            await until_second_turn(run, stream.task_id)
            del events
        else:
            consumer = asyncio.create_task(consume())
            await read.wait()
            await until_second_turn(run, stream.task_id)
            consumer.cancel()
            await asyncio.gather(consumer, return_exceptions=True)
        assert (await stream.result()).final_output == "done"


def test_a_stop_reaches_a_worker_in_the_loop_of_the_engine_and_an_open_iterator_no_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    ended = ran(forked.command("program.py"), tmp_path)
    assert ended.stdout.split() == ["None", "1", "done", "2", "read"]
    assert "generator" not in ended.stderr


PROGRAM = """
import asyncio
from holdfast import Agent, Runner, tool
from holdfast.client.runner.engines import configure
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall

@tool
def look():
    return "seen"

@tool(effect="read")
async def wait():
    await asyncio.Event().wait()

async def main():
    looks, waits = (ToolCall(id="c", name=name, arguments="{}") for name in ("look", "wait"))
    model = ScriptedModel([looks, "done", waits])
    agent = Agent(name="a", model=model, tools=[look, wait])
    stream = Runner.run_streamed(agent, "Q")
    async for event in stream:
        if getattr(event, "name", "") == "tool_output":
            stream.cancel(mode="after_turn")
    print(stream.final_output, model.calls)
    result = await Runner.run(agent, stream.to_state())
    print(result.final_output, model.calls)
    events = Runner.run_streamed(agent, "Q").stream_events()
    async for event in events:
        if event.type == "run_item_stream_event":
            break
    print("read")

configure(data_dir="data")
asyncio.run(main())
"""
