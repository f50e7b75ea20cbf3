"""Runs whose worker is in the same process: begun in the reply to the start, awaited by a hint."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeAgent, Rig, as_embedded, event_types, histories
from tests.support.runs import Runs, look, tools

ACCEPTED, COMPLETED = "WORKFLOW_EXECUTION_UPDATE_ACCEPTED", "WORKFLOW_EXECUTION_UPDATE_COMPLETED"


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch) -> Runs:
    as_embedded(rig, monkeypatch)
    return Runs(rig, make_agent)


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
