"""Turns of streamed runs: the next one begins once the readers in this process have come back."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from holdfast import RunHooks, Runner, tool
from holdfast.client.runner.streamed_run import RunResultStreaming
from holdfast.reading.streams.hub import local_turns
from holdfast.reading.streams.reader import StreamEvent
from holdfast.testing import call
from tests.support import forked
from tests.support.rig import Rig, histories, until
from tests.support.runs import Runs, look, outputs

NEVER = 1000.0


@pytest.fixture
def run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Run agents whose turns wait for their readers as long as it takes."""
    monkeypatch.setattr(local_turns, "patience", NEVER)
    return Runs(rig)


async def start(run: Runs, *given: Any, **options: Any) -> RunResultStreaming:
    return Runner.run_streamed(await run.serve(*given), "q", runner=run.runner, **options)


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


def scheduled(history: WorkflowHistory) -> list[str]:
    """List the activities of a task."""
    return [
        each.activity_task_scheduled_event_attributes.activity_type.name
        for each in history.events
        if each.HasField("activity_task_scheduled_event_attributes")
    ]


async def test_a_stop_in_reaction_to_the_last_event_of_a_turn_begins_no_other_turn(
    run: Runs,
) -> None:
    told: list[str] = []

    class Told(RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            del context
            told.append(agent.name)

        async def on_llm_start(
            self, context: Any, agent: Any, system_prompt: Any, input_items: Any
        ) -> None:
            del context, agent, system_prompt, input_items
            told.append("asks")

    run.model.call("look")
    agent = await run.serve(look)
    stream = Runner.run_streamed(agent, "q", runner=run.runner, hooks=Told(), by="ann")
    async with asyncio.timeout(60):
        async for event in stream.stream_events():
            if is_output(event):
                await until_second_turn(run, stream.task_id)
                stream.cancel(mode="after_turn")
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
    [history] = await histories(run.runner.client, stream.task_id)
    assert scheduled(history).count("step") == 3  # the second one did not begin at first
    failed = [e for e in await run.runner.audit(stream.task_id) if e.status == "failed"]
    assert failed == []


async def test_a_run_begun_without_a_stream_is_stopped_after_its_turn_as_well(run: Runs) -> None:
    run.model.call("pay")
    agent = await run.serve(tool(needs_approval=True)(pay))
    asking = await Runner.run(agent, "q", runner=run.runner, by="ann")
    state = asking.to_state()
    state.approve(asking.interruptions[0])
    stream = Runner.run_streamed(agent, state, runner=run.runner, by="ann")
    async with asyncio.timeout(60):
        async for event in stream.stream_events():
            if is_output(event):
                await until_second_turn(run, stream.task_id)
                stream.cancel(mode="after_turn")
    assert (stream.final_output, len(run.model.requests)) == (None, 1)
    run.model.reply("done")
    result = await Runner.run(agent, stream.to_state(), runner=run.runner, by="ann")
    assert (result.final_output, len(run.model.requests)) == ("done", 2)


def pay() -> str:
    return "paid"


@pytest.mark.parametrize("how", ["dropped", "cancelled"])
async def test_a_turn_does_not_wait_for_a_reader_that_is_gone(run: Runs, how: str) -> None:
    run.model.add(call("look"), "done")
    stream = await start(run, look)
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


async def test_a_stop_reaches_a_worker_in_the_loop_of_the_engine_and_an_open_iterator_no_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *forked.command("program.py"), cwd=tmp_path, stdout=pipe, stderr=pipe
    )
    out, err = await child.communicate()
    assert out.decode().split() == ["None", "1", "done", "2", "read"]
    assert b"generator" not in err


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
