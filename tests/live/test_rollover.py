"""Continue-as-new: many rollovers, and nobody notices."""

import pytest

from holdfast import AgentRunner, Task
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import UndoRefusedError
from holdfast.testing import FakeOpenAI, call
from tests.support.rig import Rig, histories, until, until_status
from tests.support.runs import serve_nested

ROLL = 40
CALLS = 8


async def carried_bytes(runner: AgentRunner, task: Task) -> list[int]:
    """Return the size of what each run of a task began with, oldest first."""
    sizes: list[int] = []
    for history in reversed(await histories(runner.client, task.task_id)):
        begun = history.events[0].workflow_execution_started_event_attributes
        sizes.append(sum(len(payload.data) for payload in begun.input.payloads))
    return sizes


# ---- calls of agents from before rollovers


async def answered(runner: AgentRunner, model: FakeOpenAI) -> tuple[Task, list[str]]:
    """Make a task whose every step but the last calls an agent; return also the calls' tasks."""
    for k in range(CALLS):
        model.add(call("helper", {"input": f"{k}"}), call("book", {"city": f"{k}"}), "helped")
    model.reply("done")
    task = await runner.create_task("q", step_mode="automatic")
    await until_status(runner, task, "answered")
    return task, [f"{task.task_id}~0.{k}.0.0" for k in range(1, CALLS + 1)]


@pytest.mark.exhaustive
async def test_calls_of_agents_from_before_rollovers_cost_no_room_and_are_all_reached(
    rig: Rig, book: Tool
) -> None:
    runner = await serve_nested(rig, book, roll_events=ROLL)
    task, children = await answered(runner, rig.model)
    sizes = await carried_bytes(runner, task)
    assert len(sizes) >= 3
    assert sizes[-1] <= sizes[1] + 250, "less than one call more"
    spent = (await runner.get_task(task)).usage
    assert spent.requests == 3 * CALLS + 1
    for child in children:
        assert (await runner.get_task(child)).status == "answered"
    # A refused undo lets go of them all.
    await runner.abandon(children[1], reason="by itself", by="ann")
    await until_status(runner, children[1], "abandoned")
    first = (await runner.get_completed_steps(task))[0]
    with pytest.raises(UndoRefusedError, match="is closed, and what it did cannot be undone"):
        await runner.rewind(task, first)
    assert (await runner.get_task(task)).usage == spent

    async def go_on() -> bool:
        states = [(await runner.get_task(child)).status for child in children[2:]]
        return set(states) == {"answered"}

    await until(go_on)
    # An undo undoes them.
    receipt = await runner.rewind(task, first, residue="keep", by="ann")
    assert rig.world.done[CALLS:] == [f"cancel {k}" for k in reversed(range(2, CALLS))]
    assert len(receipt.undone) == CALLS - 2
    assert (await runner.get_task(task)).usage == spent
    for child in children[2:]:
        await until_status(runner, child, "abandoned")
    # The end of their task ends those that are left.
    assert (await runner.get_task(children[0])).status == "answered"
    await runner.abandon(task, reason="enough", by="ann")
    await until_status(runner, children[0], "abandoned")
