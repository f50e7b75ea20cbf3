"""Signals: pause, resume, abandon, and whatever else is sent to a task."""

from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowUpdateFailedError

from holdfast import Agent, AgentRunner, TaskStep, TaskStepOutput
from holdfast.errors import StepFailedError
from holdfast.task.data.records import Entry, EventRecord
from holdfast.values.runs.verbs import VERBS
from holdfast.workers import StepContext
from tests.support.rig import Rig, step_a_task
from tests.support.workers import Counting, Doing, ends


def told(entries: list[Entry]) -> list[EventRecord]:
    """List the events of a ledger after the task's creation."""
    return [e.event for e in entries if e.event is not None and e.event.kind != "created"]


async def test_a_command_of_a_repeated_id_counts_once_and_those_without_one_each(rig: Rig) -> None:
    runner = await rig.make(worker=Counting())
    task = await runner.create_task("q")
    handle = runner.client.get_workflow_handle(task.task_id)
    for _ in range(3):
        await handle.signal("pause", {"id": "same", "by": "ann"})
    for reason in ("lunch", "tea"):
        await handle.signal("pause", {"by": "ann", "reason": reason})
    events = told(await runner.ledger(task))
    assert [(e.kind, e.by, e.text) for e in events] == [
        ("command", "ann", ""),
        ("command", "ann", "lunch"),
        ("command", "ann", "tea"),
    ]
    assert (await runner.get_task(task)).paused == "ann: tea"
    found: WorkflowMetadata = await handle.query("__temporal_workflow_metadata")
    described = {each.name: each.description for each in found.definition.signal_definitions}
    assert {verb: described.get(verb) for verb in VERBS} == {v: e.body for v, e in VERBS.items()}
    own = [each for each in found.definition.query_definitions if not each.name.startswith("__")]
    assert [each.name for each in own if not each.description] == []


async def test_a_misspelt_update_is_refused_and_does_nothing(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(3))
    task = await step_a_task(runner)
    handle: Any = runner.client.get_workflow_handle(task.task_id)
    misspelt: list[tuple[str, dict[str, Any], str]] = [
        ("run", {"alll": True}, "all"),
        ("undo", {"too": 0}, "to"),
        ("undo", {"to": 0, "residu": "keep"}, "residue"),
    ]
    for update, sent, near in misspelt:
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update(update, sent)
        assert f"Did you mean {near!r}?" in str(caught.value.cause)
    assert (await runner.get_task(task)).steps == 1


async def test_secrets_are_in_no_ledger_entry_and_no_history(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "very-secret-value-123"
    monkeypatch.setenv("MY_SERVICE_TOKEN", secret)

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if ctx.n == 2:
            return ends(step)
        try:
            raise ValueError(f"inner {secret}")
        except ValueError as error:
            raise RuntimeError(f"refused for {secret}") from error

    await rig.serve(Agent(name="agent", model="offline", worker=Doing(body)))
    runner: AgentRunner = rig.runner()
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError) as caught:
        await runner.run_step(task)
    assert secret not in str(caught.value)
    history = await runner.client.get_workflow_handle(task.task_id).fetch_history()
    assert secret not in history.to_json()
    assert secret not in str(await runner.ledger(task))
