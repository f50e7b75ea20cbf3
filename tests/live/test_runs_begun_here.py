"""Runs whose worker is in the same process: begun in the reply to the start, awaited by a hint."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast import Agent, AgentRunner, Runner, Tool, tool
from holdfast.client.agent_runner.task_client import ends
from holdfast.client.agent_runner.task_client.ends import TaskEnds
from holdfast.errors import (
    HoldfastError,
    MaxTurnsExceeded,
    StepFailedError,
    TaskAbandonedError,
)
from holdfast.reading.presence import Presence
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.workflows.requests import updates
from tests.support.rig import MakeAgent, Rig, as_embedded, event_types, histories, until
from tests.support.runs import Runs, look, tools

ACCEPTED, COMPLETED = "WORKFLOW_EXECUTION_UPDATE_ACCEPTED", "WORKFLOW_EXECUTION_UPDATE_COMPLETED"


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch) -> Runs:
    as_embedded(rig, monkeypatch)
    return Runs(rig, make_agent)


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no hint come, as when the task is in another process, and ask it soon."""
    monkeypatch.setattr(updates, "may_rest", list[str]().append)
    monkeypatch.setattr(ends, "FOLLOW_SECONDS", 0.05)


async def test_a_finished_run_was_begun_with_its_start_and_asked_for_no_reply(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real: Any = vars(WorkflowHandle)["execute_update"]

    async def ask(own: WorkflowHandle[Any, Any], *given: Any, **more: Any) -> Any:
        asked.append(own.id)
        return await real(own, *given, **more)

    monkeypatch.setattr(WorkflowHandle, "execute_update", ask)

    model.call("look")
    model.reply("done")
    result = await run("q", look)
    assert result.final_output == "done"
    [history] = await histories(run.runner.client, result.task_id)
    begun = history.events[0].workflow_execution_started_event_attributes
    assert begun.eager_execution_accepted
    assert not asked
    assert ACCEPTED not in await event_types(run.runner.client, result.task_id)


async def test_an_embedded_engine_begins_its_runs_with_their_start() -> None:
    agent = Agent(name="agent", model=ScriptedModel(["done"]))
    async with AgentRunner.local(agent, data_dir=None) as runner:
        result = await Runner.run(agent, "q", runner=runner)
        [history] = await histories(runner.client, result.task_id)
    begun = history.events[0].workflow_execution_started_event_attributes
    assert begun.eager_execution_accepted
    assert not any(
        e.HasField("workflow_execution_update_accepted_event_attributes") for e in history.events
    )


async def test_a_run_that_waits_for_a_person_is_asked_once(run: Runs, model: FakeOpenAI) -> None:
    ran, pay = tools()
    model.call("pay", {"to": "ann"})
    result = await run("q", pay)
    [call] = result.interruptions
    found = await event_types(run.runner.client, result.task_id)
    assert found.count(ACCEPTED) == found.count(COMPLETED) == 1
    state = result.to_state()
    state.approve(call)
    model.reply("done")
    assert ((await run(state)).final_output, ran) == ("done", ["ann"])


@pytest.mark.usefixtures("unheard")
async def test_a_run_that_waits_is_asked_also_when_no_hint_comes(
    run: Runs, model: FakeOpenAI
) -> None:
    _, pay = tools()
    model.call("pay", {"to": "ann"})
    assert len((await run("q", pay)).interruptions) == 1


async def failing(run: Runs, model: FakeOpenAI) -> None:
    """Let a run stop with a failed step, and see that nothing was tried again for its reply."""
    model.fail(400, message="not like this")
    with pytest.raises(StepFailedError, match="not like this") as caught:
        await run("q")
    assert len(model.requests) == 1
    model.reply("healed")
    assert caught.value.task_id
    await run.runner.run_on(caught.value.task_id)
    assert len(model.requests) == 2


async def test_a_failed_step_is_not_run_again_for_the_reply(run: Runs, model: FakeOpenAI) -> None:
    await run.serve()
    await failing(run, model)


@pytest.mark.usefixtures("unheard")
async def test_a_failed_step_is_not_run_again_for_a_reply_that_is_asked_for_late(
    run: Runs, model: FakeOpenAI
) -> None:
    await run.serve()
    await failing(run, model)


def holding() -> tuple[Tool, asyncio.Event]:
    """Make a tool that waits for ever, and an event that says that it was called."""
    held = asyncio.Event()

    @tool(effect="read", inline=False)
    async def hold() -> None:
        """Wait for ever."""
        held.set()
        await asyncio.Event().wait()

    return hold, held


@pytest.fixture
def unseen(run: Runs) -> None:
    """Let the client have seen no worker of the queue, as that of an embedded engine."""
    run.runner.reader.presence = Presence(run.runner.client)


@pytest.mark.usefixtures("unseen")
async def test_a_verdict_is_raised(run: Runs, model: FakeOpenAI) -> None:
    model.call("look")
    with pytest.raises(MaxTurnsExceeded) as caught:
        await run("q", look, max_turns=1)
    assert caught.value.run_data is not None
    assert len(caught.value.run_data.new_items) == 2


@pytest.mark.usefixtures("unseen")
async def test_an_abandon_of_somebody_is_raised(run: Runs, model: FakeOpenAI) -> None:
    hold, held = holding()
    model.call("hold")
    agent, name = await run.serve(hold), f"{run.rig.app}-left"
    running = asyncio.create_task(Runner.run(agent, "q", runner=run.runner, task_id=name))
    await held.wait()
    await run.runner.abandon(name, "no need", by="ann")
    with pytest.raises(TaskAbandonedError, match="no need"):
        await running


@pytest.mark.usefixtures("unseen")
async def test_a_run_that_has_finished_when_it_is_asked_has_its_result(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(own: TaskEnds, task_id: str, _rests: asyncio.Event) -> bool:
        async def is_closed() -> bool:
            return (await own.ended(task_id)) is not None

        await until(is_closed)
        return False

    monkeypatch.setattr(TaskEnds, "has_finished", late)
    model.reply("done")
    assert (await run("q")).final_output == "done"


async def test_a_run_whose_step_is_undone_says_so(run: Runs, model: FakeOpenAI) -> None:
    hold, held = holding()
    model.call("hold")
    agent = await run.serve(hold)
    running = asyncio.create_task(
        Runner.run(agent, "q", runner=run.runner, task_id=f"{run.rig.app}-u")
    )
    await held.wait()
    await run.runner.undo_step(f"{run.rig.app}-u")
    with pytest.raises(HoldfastError, match="undone"):
        await running


async def test_a_run_is_followed_over_rollovers(rig: Rig, run: Runs, model: FakeOpenAI) -> None:
    @tool(effect="read", inline=False)
    def look() -> str:
        """Look."""
        return "seen"

    ran, pay = tools()
    for _ in range(12):
        model.call("look")
    model.call("pay", {"to": "ann"})
    agent = await run.serve(look, pay)
    result = await Runner.run(agent, "q", runner=rig.runner(roll_events=50), max_turns=None)
    assert len(await histories(rig.engine.client, result.task_id)) > 1
    [call] = result.interruptions
    state = result.to_state()
    state.approve(call)
    model.reply("done")
    assert ((await run(state)).final_output, ran) == ("done", ["ann"])
