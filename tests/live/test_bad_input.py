"""Values that are too large, or cannot be written down at all: clear texts, and nothing is lost."""

import asyncio
from typing import Any

import pytest

from holdfast import Agent, Runner, TaskStep, TaskStepOutput, ToolCall, ToolContext, tool
from holdfast.activities.data.cache import Cache
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel, call, calls
from holdfast.workers import StepContext
from tests.support.rig import Rig, histories, run_a_task
from tests.support.workers import Doing, ends

MEGABYTE = 1024 * 1024
LONE = "broken \ud800 text"
WHOLE = "broken \ufffd text"


async def history_bytes(runner: Any, task: Any) -> int:
    runs = await histories(runner.client, task if isinstance(task, str) else task.task_id)
    return sum(event.ByteSize() for run in runs for event in run.events)


async def test_a_tool_result_of_5_mb_is_kept_whole_and_the_model_is_told(rig: Rig) -> None:
    ran: list[int] = []
    text = "m" * (5 * MEGABYTE)

    @tool
    def much() -> str:
        """Say too much."""
        ran.append(1)
        return text

    runner = await rig.make(much)
    rig.model.add(call("much"), "I see")
    response = await runner.chat("q")
    assert str(response) == "I see"
    told = rig.model.requests[1].results["call_1"]
    assert "5242880 bytes is over the limit" in told
    sha256 = next(word for word in told.replace(".", " ").split() if len(word) == 64)
    assert await runner.archive.aget(sha256) == text.encode()
    assert response.sources[0].status == "done"
    assert ran == [1]
    assert await history_bytes(runner, response.task_id) < 20_000


async def test_an_input_of_a_megabyte_reaches_the_model_and_is_read_in_full(rig: Rig) -> None:
    text = "q" * MEGABYTE
    runner = await rig.make()
    rig.model.reply("long")
    task = await runner.create_task(text, session="s")
    assert str(await runner.run_task(task)) == "long"
    await runner.finalize_response(task)
    assert rig.model.requests[0].last_user == text
    assert (await runner.get_task(task)).input == text
    assert (await runner.session("s").chat_history())[0].text == text
    assert await history_bytes(runner, task) < 20_000


async def test_a_large_state_reaches_steps_and_tools(rig: Rig) -> None:
    state = {"big": "s" * 300_000, "n": 0}

    @tool
    def count(ctx: ToolContext) -> int:
        """Count."""
        ctx.state["n"] += 1
        return len(ctx.state["big"])

    runner = await rig.make(count, roll_events=30)
    rig.model.add(*[call("count")] * 5, "done")
    task = await run_a_task(runner, extra_state=state)
    found = await runner.get_task(task)
    assert found.extra_state == {"big": "s" * 300_000, "n": 5}
    outputs = await runner.get_completed_steps(task)
    assert [str(s) for o in outputs for s in o.sources] == ["300000"] * 5
    assert await history_bytes(runner, task) < 60_000


async def test_a_transcript_above_one_page_is_fetched_by_a_worker_that_has_nothing(
    rig: Rig,
) -> None:
    @tool(effect="read")
    def page(n: int) -> str:
        """Give a page just below the size that goes to the archive."""
        return str(n) * 16_000

    runner = await rig.serving(rig.agent(page))
    rig.model.add(*[calls([("page", {"n": k}) for k in range(10)])] * 8, "done")
    task = await runner.create_task("q")
    for _ in range(8):
        await runner.run_step(task)
    await rig.serve(rig.agent(page))
    assert str(await runner.run_step(task)) == "done"
    assert len(rig.model.requests[-1].results) == 80


async def test_lone_surrogates_of_a_tool_are_replaced_and_it_runs_once(rig: Rig) -> None:
    ran: list[int] = []

    @tool
    def act(ctx: ToolContext) -> str:
        """Return, keep and raise broken text."""
        ran.append(1)
        ctx.state["text"] = LONE
        return LONE

    @tool
    def fail() -> str:
        """Raise broken text."""
        raise ValueError(LONE)

    runner = await rig.make(act, fail)
    rig.model.add(calls([("act", {}), ("fail", {})]), "done")
    response = await runner.chat("q")
    assert response.sources[0].content == WHOLE
    assert WHOLE in response.sources[1].content
    assert ran == [1]
    assert (await runner.get_task(response.task_id)).extra_state == {"text": WHOLE}


@pytest.mark.parametrize("task_id", ["a/../b 'ünï'", "%2e"])
async def test_a_task_id_may_be_any_text(rig: Rig, task_id: str) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return ends(step, "ok")

    runner = await rig.make(worker=Doing(body))
    await run_a_task(runner, task_id=task_id, session=task_id)
    assert str(await runner.finalize_response(task_id)) == "ok"
    assert (await runner.get_task(task_id)).status == "finished"
    await runner.delete_task(task_id)


async def test_a_full_cache_stops_no_step(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache.__init__, "__defaults__", (1,))  # room for one task at a time

    @tool(effect="read")
    def count(ctx: ToolContext) -> int:
        """Count."""
        ctx.context["n"] += 1
        return int(ctx.context["n"])

    def answer(request: ModelRequest) -> ToolCall | str:
        done = sum(each.role == "tool" for each in request.messages)
        return ToolCall(id=f"c{done}", name="count", arguments="{}") if done < 2 else "done"

    agent = Agent(name="agent", tools=[count], model=ScriptedModel(answer))
    await rig.serve(agent)
    runs = (Runner.run(agent, "q", context={"n": k}, runner=rig.runner()) for k in range(4))
    for k, result in enumerate(await asyncio.gather(*runs)):
        assert result.context_wrapper.context == {"n": k + 2}
