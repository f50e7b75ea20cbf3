"""Runs whose worker is in the same process: begun in the reply to the start, awaited by a hint."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast.client.agent_runner.task_client import ends
from holdfast.client.agent_runner.task_client.ends import TaskEnds
from holdfast.errors import StepFailedError
from holdfast.reading.presence import Presence
from holdfast.testing import FakeOpenAI
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


@pytest.mark.usefixtures("unheard")
async def test_a_failed_step_is_not_run_again_for_a_reply_that_is_asked_for_late(
    run: Runs, model: FakeOpenAI
) -> None:
    await run.serve()
    await failing(run, model)


@pytest.fixture
def unseen(run: Runs) -> None:
    """Let the client have seen no worker of the queue, as that of an embedded engine."""
    run.runner.reader.presence = Presence(run.runner.client)


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
