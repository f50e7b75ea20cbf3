"""Runs that are begun with their start, awaited in the history, and asked only when they rest."""

from collections import Counter
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast.errors import StepFailedError
from tests.support.rig import Rig, as_embedded, event_types, histories
from tests.support.runs import Runs, look, tools

ACCEPTED, COMPLETED = "WORKFLOW_EXECUTION_UPDATE_ACCEPTED", "WORKFLOW_EXECUTION_UPDATE_COMPLETED"
BILLED = {
    "WORKFLOW_EXECUTION_STARTED": 1,
    "ACTIVITY_TASK_SCHEDULED": 2,
    "MARKER_RECORDED": 1,
    "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES": 1,
}
"""Events that are billable actions, and how many a run has beside the steps of its turns: a step's
activity for the answer and one to describe the agent, the archive's record, the status in lists."""


@pytest.fixture
def run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Runs:
    as_embedded(rig, monkeypatch)
    return Runs(rig)


async def test_a_finished_run_was_begun_with_its_start_and_asked_for_no_reply(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real: Any = vars(WorkflowHandle)["execute_update"]

    async def ask(own: WorkflowHandle[Any, Any], *given: Any, **more: Any) -> Any:
        asked.append(own.id)
        return await real(own, *given, **more)

    monkeypatch.setattr(WorkflowHandle, "execute_update", ask)

    run.model.call("look")
    run.model.reply("done")
    result = await run("q", look)
    assert result.final_output == "done"
    [history] = await histories(run.runner.client, result.task_id)
    begun = history.events[0].workflow_execution_started_event_attributes
    assert begun.eager_execution_accepted
    assert not asked
    assert ACCEPTED not in await event_types(run.runner.client, result.task_id)


async def test_a_run_that_waits_for_a_person_is_asked_once(run: Runs) -> None:
    ran, pay = tools()
    run.model.call("pay", {"to": "ann"})
    result = await run("q", pay)
    [call] = result.interruptions
    found = await event_types(run.runner.client, result.task_id)
    assert found.count(ACCEPTED) == found.count(COMPLETED) == 1
    state = result.to_state()
    state.approve(call)
    run.model.reply("done")
    assert ((await run(state)).final_output, ran) == ("done", ["ann"])


async def test_a_run_elsewhere_costs_its_turns_and_five_actions(rig: Rig) -> None:
    for _ in range(4):
        rig.model.call("look")
    rig.model.reply("done")
    run = Runs(rig)
    result = await run("q", look)
    found = Counter(await event_types(run.runner.client, result.task_id))
    passing = {"ACTIVITY_TASK_STARTED", "ACTIVITY_TASK_COMPLETED", "WORKFLOW_EXECUTION_COMPLETED"}
    of_workflow_tasks = {name for name in found if name.startswith("WORKFLOW_TASK")}
    wanted = BILLED | {"ACTIVITY_TASK_SCHEDULED": 2 + 4}
    assert {k: n for k, n in found.items() if k not in passing | of_workflow_tasks} == wanted


@pytest.fixture
def elsewhere(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Serve runs on a worker of which no hint comes, as on one of another process."""
    monkeypatch.setattr("holdfast.workflows.requests.updates.may_rest", print)
    run = Runs(rig)
    run.runner = rig.runner(roll_events=50)
    return run


async def test_a_run_elsewhere_that_waits_is_seen_to_wait_and_asked_once(elsewhere: Runs) -> None:
    _, pay = tools()
    elsewhere.model.call("pay", {"to": "ann"})
    result = await elsewhere("q", pay)
    assert [each.name for each in result.interruptions] == ["pay"]
    assert (await event_types(elsewhere.runner.client, result.task_id)).count(ACCEPTED) == 1


async def test_a_run_elsewhere_that_failed_after_it_went_on_as_new_tries_nothing_again(
    elsewhere: Runs,
) -> None:
    for n in range(12):
        elsewhere.model.call("look", {"where": f"there {n}"})
    elsewhere.model.fail(400)
    with pytest.raises(StepFailedError) as failed:
        await elsewhere("q", look, max_turns=20)
    found = await event_types(elsewhere.runner.client, str(failed.value.task_id))
    assert found.count("WORKFLOW_EXECUTION_CONTINUED_AS_NEW") == 1
    assert len(elsewhere.model.requests) == 13
