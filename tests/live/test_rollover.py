"""Continue-as-new: many rollovers, and nobody notices."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, tool
from holdfast.archive.archive import Archive
from holdfast.archive.segments import read_back
from holdfast.task.data.closing import EntriesRequest
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import assistant, user
from holdfast.workers import StepContext
from tests.support.rig import MakeRunner, histories, read_record
from tests.support.runs import look
from tests.support.workers import Counting, Doing

ROLL = 40


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


async def test_an_input_is_used_once_when_the_task_rolls_in_the_middle_of_its_step(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    inputs: list[str | None] = []

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        parts = [(await ctx.call_model([user(f"{ctx.n}.{k}")])).text for k in range(8)]
        inputs.append(step.input)
        return TaskStepOutput(output=parts, task_step=step, next_steps=(step.get_next_step(),))

    runner = await make_runner(worker=Doing(body), roll_events=25)
    for k in range(16):
        model.reply(f"a{k}")
    task = await runner.create_task("q")
    outputs = [await runner.run_step(task, input=f"input {k}") for k in range(2)]
    assert [o.task_step.input for o in outputs] == ["input 0", "input 1"]
    assert inputs == ["input 0", "input 1"]
    assert [o.output for o in outputs] == [[f"a{8 * n + k}" for k in range(8)] for n in range(2)]
    assert len(model.requests) == 16
    assert await runs(runner, task) >= 3


async def test_a_task_sees_its_session_as_it_began_over_rollovers(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    runner = await make_runner(look, roll_events=30)
    await runner.session("s").append([user("before"), assistant("yes")])
    for _ in range(10):
        model.call("look")
    model.reply("done")
    task = await runner.create_task("q", session="s")
    await runner.run_step(task)
    await runner.session("s").append([user("after"), assistant("no")])
    response = await runner.run_task(task)
    assert str(response) == "done"
    assert await runs(runner, task) >= 2
    last = model.requests[-1]
    assert [m.text for m in last.messages][:3] == ["before", "yes", "q"]
    assert not last.holds("after")
    assert len(last.messages) == 3 + 20
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert [m.text for m in history][:5] == ["before", "yes", "after", "no", "q"]
    assert len(history) == 4 + 1 + 20 + 1


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


async def test_a_worker_does_not_read_again_what_it_has_run(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    whole = Archive.aget

    async def watched(archive: Archive, sha256: str) -> bytes:
        read.append(sha256)
        return await whole(archive, sha256)

    runner = await make_runner(look, roll_events=ROLL)
    for k in range(24):
        model.call("look", {"where": f"place {k}"})
    model.reply("done")
    monkeypatch.setattr(Archive, "aget", watched)
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert len(model.requests) == 25
    assert await runs(runner, task) >= 3
    before = [*read]
    await runner.finalize_response(task)
    record = await read_record(runner.archive, task.task_id)
    assert record is not None
    parts = [p.segment.sha256 async for p in read_back(runner.archive, record.segment)]
    assert len(parts) >= 3
    assert set(parts).isdisjoint(before)
