"""What Temporal's own UI and CLI show of a task, read over Temporal's API."""

from typing import Any

from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowExecutionStatus

from holdfast import AgentRunner, Task, tool
from tests.support.people import ask
from tests.support.rig import Rig, run_a_task


@tool(effect="read")
def multiply(a: int, b: int) -> int:
    """Multiply."""
    return a * b


@tool(needs_approval=True)
def pay(to: str, cents: int) -> str:
    """Pay."""
    return f"paid {cents} to {to}"


async def query(runner: AgentRunner, task: Task, name: str) -> Any:
    """Return what a query without input answers."""
    return await runner.client.get_workflow_handle(task.task_id).query(name)


async def current_details(runner: AgentRunner, task: Task) -> str:
    handle = runner.client.get_workflow_handle(task.task_id)
    found: WorkflowMetadata = await handle.query("__temporal_workflow_metadata")
    return found.current_details


async def summaries(runner: AgentRunner, task: Task) -> list[tuple[str, str]]:
    """List the activities of a task with their labels, in the order of their scheduling."""
    history = await runner.client.get_workflow_handle(task.task_id).fetch_history()
    found: list[tuple[str, str]] = []
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            kind = event.activity_task_scheduled_event_attributes.activity_type.name
            [label] = await runner.client.data_converter.decode(
                [event.user_metadata.summary], [str]
            )
            found.append((kind, label))
    return found


async def test_a_task_tells_its_story_in_temporals_ui(rig: Rig) -> None:
    runner = await rig.make(multiply, pay)
    rig.model.call("multiply", {"a": 121, "b": 3})
    rig.model.calls([("multiply", {"a": 6, "b": 7}), ("pay", {"to": "bob", "cents": 363})])
    rig.model.reply("Bob has it.")
    task = await run_a_task(runner, "Pay Bob what 121 times 3 is")
    approval = await ask(runner, task)
    assert (await current_details(runner, task)).splitlines() == [
        "**waiting**: 1 step done, 2 model calls, "
        + " ".join((await current_details(runner, task)).splitlines()[0].split()[-5:]),
        "",
        f"Waits for a person to decide `{approval.id}`: `pay {{to: bob, cents: 363}}`",
        "",
        "- s1: `multiply {a: 121, b: 3}` gave `363`",
        "- s2, in progress: `multiply {a: 6, b: 7}`",
    ]
    handle = runner.client.get_workflow_handle(task.task_id)
    decision = {"approval": approval.id, "by": "ann", "arguments": {"to": "bob", "cents": 300}}
    await handle.signal("approve", decision)
    await runner.run_task(task)
    await runner.finalize_response(task)
    described = await handle.describe()
    assert await described.static_summary() == "agent: Pay Bob what 121 times 3 is"
    assert await summaries(runner, task) == [
        ("describe", "agent"),
        ("step", "gpt-5-mini, step 1"),
        ("step", "gpt-5-mini, step 2"),
        ("check", "pay {to: bob, cents: 30…"),  # the edited arguments
        ("tool", "pay {to: bob, cents: 300}"),
        ("step", "gpt-5-mini, step 3"),
    ]
    result = await handle.result()
    assert (result["status"], result["answer"]) == ("finished", "Bob has it.")
    assert described.status is WorkflowExecutionStatus.COMPLETED
    steps = await query(runner, task, "completed_steps")
    _, call = steps[1]["calls"]
    assert {key: call[key] for key in ("tool", "arguments", "proposed", "result", "effect")} == {
        "tool": "pay",
        "arguments": {"to": "bob", "cents": 300},
        "proposed": {"to": "bob", "cents": 363},
        "result": "paid 300 to bob",
        "effect": "irreversible",
    }
    assert [(each["status"], each["by"]) for each in call["decided"]] == [("approved", "ann")]
    assert (steps[0]["input"], steps[2]["output"]) == ("Pay Bob what 121 times 3 is", "Bob has it.")
    assert steps[2]["cost"]["model_calls"] == 1
    assert [effect["tool"] for effect in await query(runner, task, "effects")] == ["pay"]
    assert await query(runner, task, "upcoming_steps") == []
    shown = await query(runner, task, "task")
    assert (shown["status"], shown["answer"]) == ("finished", "Bob has it.")
    assert (await current_details(runner, task)).startswith("**finished**: 3 steps done, 3 model")
