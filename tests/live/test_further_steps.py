"""Steps that follow in the activity of the first one, as long as they are fast."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from holdfast import AgentHooks, AgentRunner, Attempt, Task, ToolContext, tool
from holdfast.activities.steps import further
from holdfast.errors import HoldfastError, StepFailedError
from holdfast.task.data.wire import STEPS_DONE, StepsDone
from holdfast.testing import FakeOpenAI, Reply, call, hang
from holdfast.testing.fake_api.replies import Answer, CallSpec
from holdfast.values.settings import Budget, ModelSettings
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.fast_steps import count_as_fast, look, looks
from tests.support.rig import (
    MakeAgent,
    MakeRunner,
    Rig,
    activities_of,
    assert_replays,
    steps_handed_over,
    until,
    until_status,
)
from tests.support.spans import Spans, assert_joined

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


async def test_an_activity_runs_so_many_steps_at_most(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look, worker=FunctionCallingAgentWorker(steps_per_activity=3))
    look_thrice(model)
    task = await runner.create_task("q")
    await runner.run_task(task)
    await end(runner, task)
    assert await activities_of(runner.client, task.task_id) == ["describe", "step", "step"]


@pytest.mark.parametrize("budget", [Budget(max_tokens=10_000), Budget(max_seconds=600)])
async def test_steps_between_which_the_budget_decides_have_activities_of_their_own(
    make_runner: MakeRunner, model: FakeOpenAI, budget: Budget
) -> None:
    runner = await make_runner(look)
    model.call("look", {"what": "a"})
    model.reply("done")
    task = await runner.create_task("q", budget=budget)
    assert str(await runner.run_task(task)) == "done"
    assert await activities_of(runner.client, task.task_id) == ["describe", "step", "step"]


async def test_a_budget_of_turns_is_kept_to_the_turn(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(looks("a"), looks("b"))
    task = await runner.create_task("q", budget=Budget(max_turns=2, on_exceeded="fail"))
    with pytest.raises(HoldfastError, match=r"Max turns \(2\) exceeded"):
        await runner.run_task(task)
    assert len(model.requests) == 2
    assert await activities_of(runner.client, task.task_id) == ["describe", "step", "step"]


async def test_a_request_for_one_step_runs_one(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    runner = await make_runner(look)
    look_thrice(model)
    task = await runner.create_task("q")
    for k in (1, 2):
        await runner.run_step(task)
        assert len(model.requests) == k
    assert str(await runner.run_task(task)) == "done"
    assert await activities_of(runner.client, task.task_id) == ["describe", *["step"] * 3]


@pytest.mark.parametrize("held", [1, 2])
async def test_feedback_is_in_the_next_request_whichever_step_it_meets(
    make_runner: MakeRunner, model: FakeOpenAI, held: int
) -> None:
    runner = await make_runner(look)
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


@pytest.mark.parametrize("held", [1, 2])
async def test_a_pause_holds_the_next_step(
    make_runner: MakeRunner, model: FakeOpenAI, held: int
) -> None:
    runner = await make_runner(look)
    for k, what in enumerate("abc", start=1):
        model.add(hang_then_look(what) if k == held else looks(what))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    await runner.pause(task, by="ann")
    model.release()
    await running
    assert len(model.requests) == held
    assert len(await runner.get_completed_steps(task)) in (held - 1, held)
    await runner.resume(task, by="ann")
    assert str(await runner.run_task(task)) == "done"
    assert len(model.requests) == 4
    await end(runner, task)


async def test_a_slow_step_has_those_before_it_shown(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(further, "REPORT_SECONDS", 1.0)
    runner = await make_runner(look)
    model.add(looks("a"), looks("b"), hang_then_look("c"))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()

    async def completed() -> bool:
        return len(await runner.get_completed_steps(task)) == 2

    await until(completed)
    assert [each.step_id for each in await runner.get_upcoming_steps(task)] == ["s3"]
    await runner.give_feedback(task, "mind the gap", by="ann")
    model.release()
    assert str(await running) == "done"
    assert [request.holds("mind the gap") for request in model.requests] == [False] * 3 + [True]
    assert len(await runner.get_completed_steps(task)) == 4
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


async def test_a_failed_model_call_is_tried_again_with_the_steps_before_it_kept(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(looks("a"), looks("b"))
    model.fail(500, retry_after=0.01)
    model.fail(500, retry_after=0.01)
    model.call("look", {"what": "c"})
    model.reply("done")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "done"
    assert len(model.requests) == 6
    calls = [each for each in await runner.audit(task) if each.kind == "model_call"]
    assert [each.attempts for each in calls] == [1, 1, 3, 1]
    await end(runner, task)
    assert await activities_of(runner.client, task.task_id) == ["describe", "step", "step"]


async def test_what_is_completed_is_at_the_server_before_the_next_answer_is_asked_for(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    cut = CallSpec(name="look", arguments={"what": "a"})
    model.add(looks("a"), Answer(calls=(cut,), finish="length"), hang_then_look("b"))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    # The call of the second was refused.
    assert await steps_handed_over(runner.client, task.task_id) == 2
    model.release()
    assert str(await running) == "done"
    await end(runner, task)
    assert await activities_of(runner.client, task.task_id) == ONE


@pytest.mark.parametrize(("status", "attempts"), [(400, 10), (500, 1), (500, 2)])
async def test_a_step_that_fails_for_good_leaves_those_before_it_recorded(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, status: int, attempts: int
) -> None:
    settings = ModelSettings(max_attempts=attempts)
    await rig.serve(make_agent(look, model_settings=settings))
    runner = rig.runner()
    model.add(looks("a"), looks("b"))
    calls = 1 if status == 400 else attempts
    for _ in range(calls):
        model.fail(status, retry_after=0.01, message="no such luck")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="no such luck"):
        await runner.run_task(task)
    assert len(model.requests) == 2 + calls
    assert len(await runner.get_completed_steps(task)) == 2
    found = await runner.get_task(task)
    assert found.status == "needs_attention"
    assert [each.step_id for each in await runner.get_upcoming_steps(task)] == ["s3"]
    model.reply("done")
    assert str(await runner.run_task(task)) == "done"
    assert len(model.requests) == 3 + calls
    await end(runner, task)


@pytest.mark.parametrize("kind", ["instructions", "on_llm_start", "on_llm_end", "is_enabled"])
async def test_what_users_code_raises_stops_a_further_step_at_once(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, kind: str
) -> None:
    called: list[str] = []

    def ask(*_: Any) -> bool:
        called.append(kind)
        if len(called) == 2:
            msg = "enough of it"
            raise ValueError(msg)
        return True

    class Hooks(AgentHooks):
        async def on_llm_start(
            self, context: Any, agent: Any, system_prompt: Any, input_items: Any
        ) -> None:
            _ = kind == "on_llm_start" and ask()

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            _ = kind == "on_llm_end" and ask()

    tools = [look, replace(look, name="peek", is_enabled=ask)]

    def instruct(*_: Any) -> str:
        return str(ask())

    options: dict[str, Any] = {"hooks": Hooks()}
    if kind == "instructions":
        options = {"instructions": instruct}
    await rig.serve(make_agent(*tools[: 2 if kind == "is_enabled" else 1], **options))
    runner = rig.runner()
    model.add(looks("a"), *([looks("b")] if kind == "on_llm_end" else []))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="enough of it"):
        await runner.run_task(task)
    assert called == [kind] * 2
    assert len(await runner.get_completed_steps(task)) == 1
    assert await activities_of(runner.client, task.task_id) == ["describe", "step"]
    model.add(*([looks("b")] if kind != "on_llm_end" else []))
    model.reply("done")
    assert str(await runner.run_task(task)) == "done"
    await end(runner, task)


async def test_an_abandon_keeps_the_steps_that_are_done(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(looks("a"), looks("b"), hang_then_look("c"))
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    await runner.abandon(task, "enough", by="ann")
    await until_status(runner, task, "abandoned")
    with pytest.raises(HoldfastError):
        await running
    model.release()
    found = await runner.audit(task)
    assert [e.step for e in found if e.kind == "tool_call"] == ["s1", "s2"]
    assert [e.status for e in found if e.kind == "model_call"] == ["tool_calls"] * 2 + ["cut off"]
    assert await runner.verify(task) == []
    await assert_replays(runner, task)


async def test_an_undo_takes_back_the_steps_that_the_task_did_not_know_yet(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(looks("a"), looks("b"), hang_then_look("c"))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    await runner.undo_step(task, by="ann", reason="too fast")
    model.release()
    with pytest.raises(HoldfastError):
        await running
    assert await runner.get_completed_steps(task) == []
    assert str(await runner.run_task(task)) == "done"
    assert not model.requests[-1].holds("saw a")
    await end(runner, task)


async def test_the_cost_of_steps_that_were_reported_counts_once(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    @tool(effect="read")
    def count(ctx: ToolContext) -> str:
        """Count."""
        seen.append(ctx.usage.requests)
        return "counted"

    monkeypatch.setattr(further, "REPORT_SECONDS", 0.2)
    runner = await make_runner(count)
    model.add(call("count"), call("count"), hang(call("count")))
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()

    async def is_known() -> bool:
        return (await runner.get_task(task)).steps == 2

    await until(is_known)
    model.release()
    await running
    assert len(seen) == 3
    assert [b - a for a, b in itertools.pairwise(seen)] == [1, 1]
    await end(runner, task)


async def test_each_further_step_has_spans_of_its_own(
    make_runner: MakeRunner, model: FakeOpenAI, spans: Spans
) -> None:
    runner = await make_runner(look)
    look_thrice(model)
    task = await runner.create_task("q")
    await runner.run_task(task)
    await end(runner, task)
    assert await activities_of(runner.client, task.task_id) == ONE
    steps = [spans.one(f"step s{k}") for k in (1, 2, 3, 4)]
    chats = spans.named("chat gpt-5-mini")
    looked = spans.named("execute_tool look")
    assert [each.parent for each in chats] == [each.id for each in steps]
    assert [each.parent for each in looked] == [each.id for each in steps[:3]]
    assert len({each.id for each in (*chats, *looked)}) == 7
    for step, chat in zip(steps, chats, strict=True):
        assert step.start - 50_000_000 <= chat.start <= chat.end <= step.end + 50_000_000
    assert_joined(spans.all)


async def test_a_retry_is_told_of_the_step_that_is_retried(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(looks("a"), looks("b"))
    model.fail(500, retry_after=5)
    model.reply("done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    events = runner.step_events(task, poll=0.01)
    again = await anext(each async for each in events if isinstance(each, Attempt))
    assert (again.step_id, again.name, again.attempt) == ("s3", "model", 2)
    await running
    await end(runner, task)


async def test_further_steps_see_state_and_cost_of_those_before(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    seen: list[tuple[Any, int]] = []

    @tool(effect="read")
    def count(ctx: ToolContext) -> str:
        """Count."""
        seen.append((ctx.state.get("count", 0), ctx.usage.requests))
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        return "counted"

    runner = await make_runner(count)
    for _ in range(3):
        model.call("count")
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert [each[0] for each in seen] == [0, 1, 2]
    assert (await runner.get_task(task)).extra_state["count"] == 3
    await end(runner, task)
    assert await activities_of(runner.client, task.task_id) == ONE
    alone = [each[1] for each in seen]
    assert alone == sorted(set(alone))
