"""Continue-as-new: many rollovers, and nobody notices."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, tool
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import UndoRefusedError
from holdfast.task.data.wire import EntriesRequest
from holdfast.testing import FakeOpenAI, call
from holdfast.values.messages import assistant
from holdfast.workers import StepContext
from tests.support.people import World
from tests.support.rig import MakeAgent, MakeRunner, Rig, histories, until, until_status
from tests.support.runs import serve_nested
from tests.support.workers import Counting, Doing

ROLL = 40
CALLS = 8


async def runs(runner: AgentRunner, task: Task) -> int:
    return len(await histories(runner.client, task.task_id))


class Endless:
    """Steps without end; counts how often each one ran and with which input."""

    def __init__(self) -> None:
        self.ran: Counter[int] = Counter()
        self.inputs: Counter[str] = Counter()

    async def __call__(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        self.ran[ctx.n] += 1
        if step.input is not None:
            self.inputs[step.input] += 1
        ctx.state["sum"] = ctx.state.get("sum", 0) + ctx.n
        ctx.add(assistant(f"step {ctx.n}"))
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))


async def test_three_clients_step_one_task_over_many_rollovers_and_each_input_is_used_once(
    make_runner: MakeRunner,
) -> None:
    body = Endless()
    runner = await make_runner(worker=Doing(body), roll_events=ROLL)
    task = await runner.create_task("q")
    names = [f"input {k}" for k in range(24)]

    async def client(mine: list[str]) -> list[str | None]:
        outputs = [await runner.run_step(task, input=name) for name in mine]
        return [output.task_step.input for output in outputs]

    got = await asyncio.gather(*(client(names[k::3]) for k in range(3)))
    assert got == [names[k::3] for k in range(3)]
    assert body.inputs == Counter(names)
    assert set(body.ran.values()) == {1}
    assert await runs(runner, task) >= 3
    found = await runner.get_task(task)
    assert (found.steps, found.extra_state) == (24, {"sum": sum(range(1, 25))})
    assert [o.output for o in await runner.get_completed_steps(task)] == list(range(1, 25))
    assert (await runner.get_completed_step(task, "s1")).output == 1
    assert (await runner.get_task_output(task)).output == 24
    assert len(await runner.transcript(task)) == 24


async def carried_bytes(runner: AgentRunner, task: Task) -> list[int]:
    """Return the size of what each run of a task began with, oldest first."""
    sizes: list[int] = []
    for history in reversed(await histories(runner.client, task.task_id)):
        begun = history.events[0].workflow_execution_started_event_attributes
        sizes.append(sum(len(payload.data) for payload in begun.input.payloads))
    return sizes


async def test_run_task_survives_rollovers_and_what_a_task_carries_grows_by_a_line_a_step(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Counting(60), roll_events=30)
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).output["count"] == 60
    sizes = await carried_bytes(runner, task)
    assert len(sizes) >= 8
    lines = 10 * 60  # of each archived step, which queries show; packed
    assert sizes[-1] <= sizes[2] + lines + 20  # some numbers have another digit
    page = await runner.client.get_workflow_handle(task.task_id).query(
        "entries", EntriesRequest(), result_type=dict
    )
    assert list(page["segment"]) == ["sha256", "number", "start", "entries"]
    steps = await runner.get_completed_steps(task)
    assert [o.output["count"] for o in steps] == list(range(1, 61))
    assert len({o.task_step.step_id for o in steps}) == 60
    assert (await runner.finalize_response(task)).output["count"] == 60
    assert await runner.get_completed_steps(task) == steps


# ---- calls of agents from before rollovers


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
        model.add(call("helper", {"input": f"{k}"}), call("book", {"city": f"{k}"}), "helped")
    model.reply("done")
    task = await runner.create_task("q", step_mode="automatic")
    await until_status(runner, task, "answered")
    return task, [f"{task.task_id}~0.{k}.0.0" for k in range(1, CALLS + 1)]


async def test_calls_of_agents_from_before_rollovers_cost_no_room_and_are_all_reached(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, book: Tool, world: World
) -> None:
    runner = await serve_nested(rig, make_agent, book, roll_events=ROLL)
    task, children = await answered(runner, model)
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
    assert world.done[CALLS:] == [f"cancel {k}" for k in reversed(range(2, CALLS))]
    assert len(receipt.undone) == CALLS - 2
    assert (await runner.get_task(task)).usage == spent
    for child in children[2:]:
        await until_status(runner, child, "abandoned")
    # The end of their task ends those that are left.
    assert (await runner.get_task(children[0])).status == "answered"
    await runner.abandon(task, reason="enough", by="ann")
    await until_status(runner, children[0], "abandoned")
