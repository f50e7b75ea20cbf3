"""Continue-as-new: many rollovers, and nobody notices."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, tool
from holdfast.archive.archive import Archive
from holdfast.archive.segments import read_back
from holdfast.errors import StepFailedError
from holdfast.task.data.closing import EntriesRequest
from holdfast.task.data.commands import Verb
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import assistant, user
from holdfast.workers import StepContext
from tests.support.rig import MakeRunner, histories, read_record, until, until_status
from tests.support.runs import look
from tests.support.workers import Counting, Doing, ends

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


async def test_three_clients_step_one_task_over_many_rollovers(make_runner: MakeRunner) -> None:
    body = Endless()
    runner = await make_runner(worker=Doing(body), roll_events=ROLL)
    task = await runner.create_task("q")

    async def client(count: int) -> list[int]:
        return [(await runner.run_step(task)).output for _ in range(count)]

    outputs = [n for each in await asyncio.gather(*(client(30) for _ in range(3))) for n in each]
    assert sorted(outputs) == list(range(1, 91))
    assert set(body.ran.values()) == {1}
    assert await runs(runner, task) >= 5
    found = await runner.get_task(task)
    assert (found.steps, found.extra_state) == (90, {"sum": sum(range(1, 91))})
    assert [o.output for o in await runner.get_completed_steps(task)] == list(range(1, 91))
    assert len(await runner.transcript(task)) == 90


async def test_inputs_of_concurrent_clients_are_used_once_each_over_rollovers(
    make_runner: MakeRunner,
) -> None:
    body = Endless()
    runner = await make_runner(worker=Doing(body), roll_events=ROLL)
    task = await runner.create_task("q")
    names = [f"input {k}" for k in range(60)]

    async def client(mine: list[str]) -> list[str | None]:
        outputs = [await runner.run_step(task, input=name) for name in mine]
        return [output.task_step.input for output in outputs]

    got = await asyncio.gather(*(client(names[k::3]) for k in range(3)))
    assert got == [names[k::3] for k in range(3)]
    assert body.inputs == Counter(names)
    assert (await runner.get_task(task)).steps == 60
    assert await runs(runner, task) >= 4


async def test_an_input_is_used_once_when_the_task_rolls_in_the_middle_of_its_step(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    inputs: list[str | None] = []

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        parts = [(await ctx.call_model([user(f"{ctx.n}.{k}")])).text for k in range(8)]
        inputs.append(step.input)
        return TaskStepOutput(output=parts, task_step=step, next_steps=(step.get_next_step(),))

    runner = await make_runner(worker=Doing(body), roll_events=25)
    for k in range(24):
        model.reply(f"a{k}")
    task = await runner.create_task("q")
    outputs = [await runner.run_step(task, input=f"input {k}") for k in range(3)]
    assert [o.task_step.input for o in outputs] == ["input 0", "input 1", "input 2"]
    assert [o.output for o in outputs] == [[f"a{8 * n + k}" for k in range(8)] for n in range(3)]
    assert len(model.requests) == 24
    assert (await runner.get_task(task)).steps == 3
    assert await runs(runner, task) >= 3


async def test_a_request_id_runs_one_step_however_often_it_is_sent_over_rollovers(
    make_runner: MakeRunner,
) -> None:
    body = Endless()
    runner = await make_runner(worker=Doing(body), roll_events=ROLL)
    task = await runner.create_task("q")
    for k in range(30):
        first = await runner.run_step(task, request_id=f"r{k}")
        earlier = await runner.run_step(task, request_id=f"r{max(0, k - 5)}")
        assert (first.output, earlier.output) == (k + 1, max(0, k - 5) + 1)
    assert set(body.ran.values()) == {1}
    assert len(body.ran) == 30
    assert await runs(runner, task) >= 3


async def test_signals_during_rollovers_are_all_applied_once(make_runner: MakeRunner) -> None:
    body = Endless()
    runner = await make_runner(worker=Doing(body), roll_events=ROLL)
    task = await runner.create_task("q")
    handle = runner.client.get_workflow_handle(task.task_id)

    async def signal(number: int) -> None:
        for k in range(40):
            verb: Verb = "pause" if k % 2 == 0 else "resume"
            await handle.signal(verb, {"id": f"{number}.{k}", "by": f"p{number}"})

    async def step() -> None:
        for _ in range(40):
            await runner.run_step(task)

    await asyncio.gather(signal(1), signal(2), step())
    events = [e.event for e in await runner.ledger(task) if e.event is not None]
    seen = Counter(str(e.body.get("id")) for e in events if e.kind in ("command", "refused"))
    assert seen == Counter(f"{n}.{k}" for n in (1, 2) for k in range(40))
    assert await runs(runner, task) >= 3


async def test_a_command_sent_twice_is_applied_once_also_after_a_rollover(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Doing(Endless()), roll_events=ROLL)
    task = await runner.create_task("q")
    handle = runner.client.get_workflow_handle(task.task_id)
    sent = {"id": "once", "by": "ann"}
    await handle.signal("pause", sent)
    await until_status(runner, task, "paused")
    await runner.resume(task)
    before = await runs(runner, task)

    async def rolled() -> bool:
        await runner.run_step(task)
        return await runs(runner, task) > before

    await until(rolled)
    await handle.signal("pause", sent)
    assert (await runner.get_task(task)).status == "running"
    assert (await runner.run_step(task)).status == "done"


async def test_a_failed_step_keeps_its_paid_answers_over_rollovers(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    broken = True

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        parts = [(await ctx.call_model([user(f"part {k}")])).text for k in range(3)]
        if broken:
            raise RuntimeError("not yet")
        return ends(step, parts)

    runner = await make_runner(worker=Doing(body), roll_events=30)
    for k in range(3):
        model.reply(f"a{k}")
    task = await runner.create_task("q")
    for _ in range(12):
        with pytest.raises(StepFailedError, match="not yet"):
            await runner.run_step(task)
    assert await runs(runner, task) >= 3
    assert (await runner.get_task(task)).status == "needs_attention"
    broken = False
    assert (await runner.run_step(task)).output == ["a0", "a1", "a2"]
    assert len(model.requests) == 3
    events = [e.event for e in await runner.ledger(task) if e.event is not None]
    assert [e.kind for e in events].count("failed") == 12


async def test_a_paused_task_stays_paused_over_a_rollover(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Doing(Endless()), roll_events=ROLL)
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.pause(task, reason="lunch", by="ann")
    handle = runner.client.get_workflow_handle(task.task_id)
    for _ in range(60):
        await handle.signal("pause", {"by": "ann"})

    async def rolled() -> bool:
        return await runs(runner, task) > 1

    await until(rolled)
    output = await runner.run_step(task)
    assert (output.status, (await runner.get_task(task)).status) == ("waiting", "paused")
    await runner.resume(task)
    assert (await runner.run_step(task)).output == 2


async def test_a_task_sees_its_session_as_it_began_over_rollovers(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    runner = await make_runner(look, roll_events=30)
    await runner.session("s").append([user("before"), assistant("yes")])
    for _ in range(24):
        model.call("look")
    model.reply("done")
    task = await runner.create_task("q", session="s")
    await runner.run_step(task)
    await runner.session("s").append([user("after"), assistant("no")])
    response = await runner.run_task(task)
    assert str(response) == "done"
    assert await runs(runner, task) >= 3
    last = model.requests[-1]
    assert [m.text for m in last.messages][:3] == ["before", "yes", "q"]
    assert not last.holds("after")
    assert len(last.messages) == 3 + 48
    await runner.finalize_response(task)
    history = await runner.session("s").chat_history()
    assert [m.text for m in history][:5] == ["before", "yes", "after", "no", "q"]
    assert len(history) == 4 + 1 + 48 + 1


async def test_run_task_survives_rollovers_in_the_middle_of_steps(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Counting(60), roll_events=30)
    task = await runner.create_task("q")
    output = await runner.run_task(task)
    assert output.output["count"] == 60
    steps = await runner.get_completed_steps(task)
    assert [o.output["count"] for o in steps] == list(range(1, 61))
    assert len({o.task_step.step_id for o in steps}) == 60
    response = await runner.finalize_response(task)
    assert response.output["count"] == 60
    assert await runner.get_completed_steps(task) == steps


async def carried_bytes(runner: AgentRunner, task: Task) -> list[int]:
    """Return the size of what each run of a task began with, oldest first."""
    sizes: list[int] = []
    for history in reversed(await histories(runner.client, task.task_id)):
        begun = history.events[0].workflow_execution_started_event_attributes
        sizes.append(sum(len(payload.data) for payload in begun.input.payloads))
    return sizes


async def test_what_a_task_carries_grows_by_a_packed_line_for_each_step_alone(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Counting(60), roll_events=30)
    task = await runner.create_task("q")
    await runner.run_task(task)
    sizes = await carried_bytes(runner, task)
    assert len(sizes) >= 8
    lines = 10 * 60  # of each archived step, which queries show; packed
    assert sizes[-1] <= sizes[2] + lines + 20  # some numbers have another digit
    page = await runner.client.get_workflow_handle(task.task_id).query(
        "entries", EntriesRequest(), result_type=dict
    )
    assert list(page["segment"]) == ["sha256", "number", "start", "entries"]


async def test_an_abandon_during_rollovers_is_never_lost(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Doing(Endless()), roll_events=25)
    tasks = [await runner.create_task("q", step_mode="automatic") for _ in range(6)]
    for k, task in enumerate(tasks):
        await asyncio.sleep(0.11 * (k % 3))
        await runner.abandon(task, reason="enough", by="ann")
    for task in tasks:
        found = await until_status(runner, task, "abandoned")
        assert "ann: enough" in found.error


async def test_a_finalize_that_meets_a_rollover_closes_the_task(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(6), roll_events=25)
    for _ in range(6):
        task = await runner.create_task("q")
        await runner.run_task(task)
        assert (await runner.finalize_response(task)).output["count"] == 6


async def test_a_step_by_its_ordinal_is_found_in_old_segments(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Doing(Endless()), roll_events=ROLL)
    task = await runner.create_task("q")
    for _ in range(20):
        await runner.run_step(task)
    assert await runs(runner, task) >= 2
    assert (await runner.get_completed_step(task, "s1")).output == 1
    assert (await runner.get_completed_step(task, "s20")).output == 20
    assert (await runner.get_task_output(task)).output == 20


async def test_a_worker_does_not_read_again_what_it_has_run(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    whole = Archive.aget

    async def watched(archive: Archive, sha256: str) -> bytes:
        read.append(sha256)
        return await whole(archive, sha256)

    runner = await make_runner(look, roll_events=ROLL)
    for k in range(40):
        model.call("look", {"where": f"place {k}"})
    model.reply("done")
    monkeypatch.setattr(Archive, "aget", watched)
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert len(model.requests) == 41
    assert await runs(runner, task) >= 3
    before = [*read]
    await runner.finalize_response(task)
    record = await read_record(runner.archive, task.task_id)
    assert record is not None
    parts = [p.segment.sha256 async for p in read_back(runner.archive, record.segment)]
    assert len(parts) >= 3
    assert set(parts).isdisjoint(before)
