"""Calls of reading tools run in the activity that made the model call, where nothing forbids it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import pytest

from holdfast import Agent, AgentRunner, RunConfig, Runner, Task, ToolContext, tool
from holdfast.activities import heartbeat
from holdfast.activities.tools import inline
from holdfast.agents.guardrails import GuardrailFunctionOutput, InputGuardrail
from holdfast.errors import InvalidArgumentError
from holdfast.testing import FakeOpenAI
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.rig import MakeAgent, MakeRunner, Rig, activities_of, until, until_status

APART = ["describe", "step", "tool", "step"]
INLINE = ["describe", "step", "step"]


class Looking(NamedTuple):
    """A task in whose step a call runs; the texts of calls that were cancelled."""

    runner: AgentRunner
    task: Task
    cancelled: list[str]


def always(_ctx: object, _agent: object) -> bool:
    """Offer a tool to the model by a predicate, which depends on the task."""
    return True


async def finished(runner: AgentRunner, model: FakeOpenAI, **options: Any) -> list[str]:
    """Run a task that calls `look` once; return the types of its activities."""
    model.call("look", {"what": "x"})
    model.reply("done")
    task = await runner.create_task("q", **options)
    await runner.run_task(task)
    await runner.finalize_response(task)
    assert await runner.verify(task) == []
    return await activities_of(runner.client, task.task_id)


async def test_a_call_of_a_reading_tool_takes_no_activity_of_its_own(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    runner = await make_runner(look, worker=FunctionCallingAgentWorker(steps_per_activity=1))
    assert await finished(runner, model) == INLINE
    assert model.requests[1].holds("saw x")


async def test_the_server_is_not_asked_before_calls_that_may_be_made_twice(
    rig: Rig, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask: Any = vars(heartbeat)["_ask"]

    async def noted(what: str, **options: Any) -> None:
        asked.append(what)
        await ask(what, **options)

    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    monkeypatch.setattr(heartbeat, "_ask", noted)
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests-1")
    await rig.serve(Agent(name="agent", model="gpt-5-mini", tools=[look]), own_loop=True)
    runner = rig.runner()
    await finished(runner, model)  # from here on the process knows the server's clock
    asked.clear()
    await finished(runner, model)
    assert asked == []  # nor before the record of a closed task, which would be the same


@pytest.mark.parametrize(
    "options",
    [{"effect": "irreversible", "idempotent": True}, {"effect": "read", "is_enabled": always}],
)
async def test_other_calls_have_activities_of_their_own(
    options: dict[str, Any], make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(**options)
    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    assert await finished(await make_runner(look), model) == APART


async def test_no_tool_runs_before_a_guardrail_beside_the_model_call_has_passed(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    seen: list[str] = []
    passes = asyncio.Event()

    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        seen.append(what)
        return f"saw {what}"

    async def guard(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await passes.wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    await rig.serve(make_agent(look, input_guardrails=[InputGuardrail(guard)]))
    runner = rig.runner()
    model.call("look", {"what": "x"})
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))

    async def answered() -> bool:
        return bool(model.requests)

    await until(answered)
    assert seen == []
    passes.set()
    await running
    assert seen == ["x"]
    assert (await activities_of(runner.client, task.task_id)).count("tool") == 1


async def test_a_call_that_takes_longer_goes_on_in_its_own_activity_and_is_run_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    starts: list[int] = []
    goes = asyncio.Event()

    @tool(effect="read", inline_seconds=0.05)
    async def slow(what: str) -> str:
        """Look for long."""
        starts.append(1)
        await goes.wait()
        return f"slowly saw {what}"

    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    runner = await make_runner(slow, look)
    model.calls([("slow", {"what": "a"}), ("look", {"what": "b"})])
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))

    async def is_apart() -> bool:
        return "tool" in await activities_of(runner.client, task.task_id)

    await until(is_apart)
    assert (await runner.get_task(task)).status == "running"
    goes.set()
    assert str(await running) == "done"
    assert starts == [1]
    assert model.requests[1].holds("slowly saw a")
    assert model.requests[1].holds("saw b")
    done = [e for e in await runner.audit(task) if e.kind == "tool_call" and e.status == "done"]
    assert [e.attempts for e in done] == [1, 1]
    assert (await activities_of(runner.client, task.task_id)).count("tool") == 1


@pytest.fixture
async def looking(make_runner: MakeRunner, model: FakeOpenAI) -> AsyncGenerator[Looking]:
    """Run a task whose first answer calls `look`, which goes on until it is cancelled."""
    cancelled: list[str] = []
    began = asyncio.Event()

    @tool(effect="read", inline_seconds=30.0)
    async def look(what: str) -> str:
        """Look for ever."""
        if what == "y":
            return "seen"
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(what)
            raise
        return ""

    runner = await make_runner(look)
    model.calls([("look", {"what": "x"}), ("look", {"what": "y"})])
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await began.wait()
    yield Looking(runner, task, cancelled)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def of_calls(runner: AgentRunner, task: Task) -> dict[str, str]:
    """Return what the audit says of each call of a tool."""
    return {e.call_id: e.status for e in await runner.audit(task) if e.kind == "tool_call"}


async def test_abandoning_a_task_records_calls_that_run_in_the_activity_of_its_step(
    looking: Looking,
) -> None:
    runner, task, cancelled = looking
    await runner.abandon(task, reason="enough", by="ann")
    await until_status(runner, task, "abandoned")
    assert cancelled == ["x"]
    assert await of_calls(runner, task) == {"call_1": "unknown", "call_2": "done"}
    assert (await runner.get_task(task)).usage.requests == 1


async def test_a_call_that_goes_on_when_its_step_is_left_is_recorded_and_cancelled(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline, "LEFT_SECONDS", 0.5)
    began, was_cancelled = asyncio.Event(), asyncio.Event()

    @tool(effect="read", inline_seconds=0.3)
    async def look(what: str) -> str:
        """Look for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return what

    runner = await make_runner(look)
    model.call("look", {"what": "x"})
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_step(task))
    await began.wait()
    await runner.undo_step(task, by="ann", reason="enough")
    await asyncio.gather(running, return_exceptions=True)
    assert await of_calls(runner, task) == {"call_1": "unknown"}
    await was_cancelled.wait()


async def test_what_is_handed_over_stays_at_the_server_while_a_tool_is_repeated(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    kept: list[bool] = []
    client = rig.engine.client

    @tool(effect="read", max_attempts=2, inline_seconds=20.0)
    async def look(ctx: ToolContext, what: str) -> str:
        """Look."""
        described = await client.get_workflow_handle(ctx.task_id).describe()
        [pending] = described.raw_description.pending_activities
        kept.append(any(b'"paid"' in each.data for each in pending.heartbeat_details.payloads))
        if len(kept) == 1:
            raise ValueError("not yet")
        return f"saw {what}"

    await rig.serve(make_agent(look))
    # Before it is repeated, the server is asked whose attempt it is.
    assert await finished(rig.runner(heartbeat=1.0), model) == INLINE
    assert kept == [True, True]


async def test_streamed_runs_show_calls_as_they_begin(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    agent = make_agent(look)
    await rig.serve(agent)
    model.call("look", {"what": "x"})
    model.reply("done")
    result = Runner.run_streamed(agent, "q", runner=rig.runner(), run_config=RunConfig())
    names = [e.name async for e in result.stream_events() if e.type == "run_item_stream_event"]
    assert names == ["tool_called", "tool_output", "message_output_created"]
    assert "tool" in await activities_of(rig.engine.client, result.task_id)


@pytest.mark.parametrize("seconds", [0, -1, "2", 31])
def test_a_bound_that_is_none_is_refused(seconds: Any) -> None:
    def look() -> None:
        """Look."""

    with pytest.raises(InvalidArgumentError, match="inline_seconds="):
        tool(look, effect="read", inline_seconds=seconds)
