"""Tasks that Temporal's own tools have ended, while others wait for them."""

from datetime import timedelta

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from holdfast import AgentRunner, Task, tool
from holdfast.reading.queries import why_blocked
from holdfast.testing import FakeOpenAI, call
from holdfast.workflows.children import children
from tests.support.people import ask
from tests.support.rig import Rig, until, until_rolled, until_status
from tests.support.runs import serve_nested


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        rig.world.done.append("pay")
        return "paid"

    return await serve_nested(rig, pay, roll_events=50)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "FIRST_PAUSE", timedelta(seconds=0.5))
    monkeypatch.setattr(children, "LONGEST_PAUSE", timedelta(seconds=0.5))


async def waiting(runner: AgentRunner, model: FakeOpenAI) -> tuple[Task, str]:
    """Begin a task whose child waits for a person; return it, and the child's id."""
    model.add(call("helper", {"input": "pay"}), call("pay", {}))
    task = await runner.create_task("q", step_mode="automatic")
    return task, (await ask(runner, task)).id.rsplit(":", 1)[0]


async def roll(runner: AgentRunner, task: str) -> None:
    """Say something until a task that waits continues as new."""
    for k in range(25):
        await runner.give_feedback(task, f"go on, {k}")
    await until_rolled(runner.client, task)


async def delete(runner: AgentRunner, workflow: str) -> None:
    """Delete a workflow as an operator would."""
    given = DeleteWorkflowExecutionRequest(
        namespace=runner.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow),
    )
    await runner.client.workflow_service.delete_workflow_execution(given)


async def test_a_task_that_looks_whether_its_child_has_ended_does_not_stand_still(
    runner: AgentRunner, model: FakeOpenAI
) -> None:
    task, _ = await waiting(runner, model)
    await roll(runner, task.task_id)

    async def looks() -> bool:
        found = await runner.reader.describe(task.task_id)
        return any(each.attempt > 1 for each in found.raw_description.pending_activities)

    await until(looks)
    assert not await why_blocked(runner.client, await runner.reader.describe(task.task_id))


async def test_a_task_goes_on_without_a_child_that_an_operator_has_deleted(
    runner: AgentRunner, model: FakeOpenAI
) -> None:
    task, child = await waiting(runner, model)
    model.reply("too bad")
    await delete(runner, child)
    await until_status(runner, task, "answered")
    assert await runner.pending_approvals(task) == []
    said = model.requests[-1].messages
    [result] = [m.text for m in said if m.role == "tool"]
    assert "deleted" in result
    assert not [a for a in await runner.pending_approvals() if a.id.startswith(task.task_id)]
