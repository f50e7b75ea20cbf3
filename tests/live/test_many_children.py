"""Tasks with many finished calls of agents: what they carry, and what they still reach."""

from __future__ import annotations

import pytest

from holdfast import AgentRunner, Task
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool, tool
from holdfast.errors import UndoRefusedError
from holdfast.testing import FakeOpenAI
from tests.support.people import World
from tests.support.rig import MakeAgent, Rig, histories, until, until_status
from tests.support.runs import serve_nested

CALLS = 12
ROLL = 40


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def book(world: World) -> Tool:
    def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['city']}")
        return "cancelled"

    @tool(undo=cancel)
    def book(city: str) -> str:
        """Book."""
        world.done.append(f"book {city}")
        return "booked"

    return book


async def answered(runner: AgentRunner, model: FakeOpenAI) -> tuple[Task, list[str]]:
    """Make a task whose every step but the last calls an agent; return also the calls' tasks."""
    for k in range(CALLS):
        model.call("helper", {"input": f"{k}"})
        model.call("book", {"city": f"{k}"})
        model.reply("helped")
    model.reply("done")
    task = await runner.create_task("q", step_mode="automatic")
    await until_status(runner, task, "answered")
    return task, [f"{task.task_id}~0.{k}.0.0" for k in range(1, CALLS + 1)]


async def carried_bytes(runner: AgentRunner, task: Task) -> list[int]:
    """Return the size of what each run of a task began with, oldest first."""
    sizes: list[int] = []
    for history in reversed(await histories(runner.client, task.task_id)):
        begun = history.events[0].workflow_execution_started_event_attributes
        sizes.append(sum(len(payload.data) for payload in begun.input.payloads))
    return sizes


async def test_what_a_task_carries_does_not_grow_with_calls_of_agents_that_are_done(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, book: Tool
) -> None:
    runner = await serve_nested(rig, make_agent, book, roll_events=ROLL)
    task, children = await answered(runner, model)
    sizes = await carried_bytes(runner, task)
    assert len(sizes) >= 4
    assert sizes[-1] <= sizes[1] + 250, "less than one call more"
    assert (await runner.get_task(task)).usage.requests == 3 * CALLS + 1
    for child in children:
        assert (await runner.get_task(child)).status == "answered"
    await runner.finalize_response(task)
    for child in children:
        await until_status(runner, child, "finished")
    assert await runner.verify(task) == []


async def test_abandoning_a_task_reaches_calls_of_agents_from_before_its_rollovers(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, book: Tool
) -> None:
    runner = await serve_nested(rig, make_agent, book, roll_events=ROLL)
    task, children = await answered(runner, model)
    await runner.abandon(task, reason="enough", by="ann")
    for child in children:
        await until_status(runner, child, "abandoned")


async def test_an_undo_reaches_calls_of_agents_from_before_rollovers(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, book: Tool, world: World
) -> None:
    runner = await serve_nested(rig, make_agent, book, roll_events=ROLL)
    task, children = await answered(runner, model)
    spent = (await runner.get_task(task)).usage
    first = (await runner.get_completed_steps(task))[0]
    receipt = await runner.rewind(task, first, by="ann")
    assert world.done[CALLS:] == [f"cancel {k}" for k in reversed(range(1, CALLS))]
    assert len(receipt.undone) == CALLS - 1
    assert (await runner.get_task(task)).usage == spent
    for child in children[1:]:
        await until_status(runner, child, "abandoned")
    assert (await runner.get_task(children[0])).status == "answered"


async def test_a_refused_undo_lets_go_of_calls_of_agents_from_before_rollovers(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, book: Tool
) -> None:
    runner = await serve_nested(rig, make_agent, book, roll_events=ROLL)
    task, children = await answered(runner, model)
    await runner.abandon(children[1], reason="by itself", by="ann")
    await until_status(runner, children[1], "abandoned")
    first = (await runner.get_completed_steps(task))[0]
    spent = (await runner.get_task(task)).usage
    with pytest.raises(UndoRefusedError, match="is closed, and what it did cannot be undone"):
        await runner.rewind(task, first)
    assert (await runner.get_task(task)).usage == spent

    async def go_on() -> bool:
        states = [(await runner.get_task(child)).status for child in children[2:]]
        return set(states) == {"answered"}

    await until(go_on)
    receipt = await runner.rewind(task, first, residue="keep")
    assert len(receipt.undone) == CALLS - 2
