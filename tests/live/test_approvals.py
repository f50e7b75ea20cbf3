"""Approvals: who decides what, once, from anywhere, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Runner, Task, TaskStep, TaskStepOutput, ToolContext, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import CommandRefusedError, InvalidArgumentError
from holdfast.reading.audit.audit import AuditEvent
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import ToolCall
from holdfast.workers import StepContext
from tests.support.people import World, ask, asked, kinds
from tests.support.rig import (
    MakeAgent,
    MakeRunner,
    Rig,
    activities_of,
    histories,
    until,
    until_status,
)
from tests.support.workers import Doing, ends


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pay(world: World) -> Tool:
    """A tool that a person must approve."""

    @tool(needs_approval=True)
    async def pay(ctx: ToolContext, amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        world.keys.append(ctx.idempotency_key)
        return f"paid {amount}"

    return pay


async def started(runner: AgentRunner, **options: Any) -> tuple[Task, TaskStepOutput]:
    """Create a task and run its first step."""
    task = await runner.create_task("q", **options)
    return task, await runner.run_step(task)


async def test_approve_runs_the_call_as_proposed(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task, output = await started(runner)
    assert output.status == "waiting"
    assert 'pay({"amount": 5})' in output.waiting_for[0]
    assert world.done == []
    approval = await ask(runner, task)
    assert (approval.tool, approval.arguments, approval.kind) == ("pay", '{"amount": 5}', "tool")
    assert (await runner.get_task(task)).status == "waiting"
    receipt = await runner.approve(approval, "ann")
    assert receipt.status == "applied"
    output = await runner.run_step(task)
    assert (output.status, str(output.sources[0])) == ("done", "paid 5")
    assert await runner.pending_approvals(task) == []
    assert str(await runner.run_step(task)) == "done"
    assert world.done == ["pay 5"]
    assert len(model.requests) == 2


@pytest.mark.parametrize("kind", ["sync", "async", "with context"])
async def test_a_predicate_asks_for_some_calls_only(
    make_runner: MakeRunner, model: FakeOpenAI, kind: str
) -> None:
    ran: list[int] = []

    def sync(arguments: dict[str, Any]) -> bool:
        return bool(arguments["amount"] > 10)

    async def later(arguments: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return sync(arguments)

    def with_context(ctx: ToolContext, arguments: dict[str, Any], call_id: str) -> bool:
        assert (ctx.call_id, ctx.tool_name) == (call_id, "pay")
        return sync(arguments)

    predicate: Any = {"sync": sync, "async": later, "with context": with_context}[kind]

    @tool(needs_approval=predicate)
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    runner = await make_runner(pay)
    model.calls([("pay", {"amount": 5}), ("pay", {"amount": 50})])
    model.reply("done")
    task, output = await started(runner)
    assert output.status == "waiting"
    assert ran == [5]
    approval = await ask(runner, task)
    assert approval.arguments == '{"amount": 50}'
    await runner.approve(approval, "ann")
    output = await runner.run_step(task)
    assert [str(source) for source in output.sources] == ["paid 5", "paid 50"]
    assert str(await runner.run_step(task)) == "done"
    assert ran == [5, 50]


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_predicate_is_not_asked_where_a_decision_for_later_calls_holds(
    make_runner: MakeRunner, model: FakeOpenAI, verb: str
) -> None:
    asked, ran = list[int](), list[int]()

    def asks(arguments: dict[str, Any]) -> bool:
        asked.append(arguments["amount"])
        return True

    @tool(needs_approval=asks)
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    runner = await make_runner(pay)
    for amount in (1, 2):
        model.call("pay", {"amount": amount})
    model.reply("done")
    task, output = await started(runner)
    assert output.status == "waiting"
    if verb == "approve":
        await runner.approve(await ask(runner, task), "ann", always=True)
    else:
        await runner.reject(await ask(runner, task), "ann", "no", always=True)
    assert str(await runner.run_task(task)) == "done"
    assert (asked, ran) == ([1], [1, 2] if verb == "approve" else [])


async def test_a_predicate_that_says_no_lets_the_task_run_through(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(needs_approval=lambda arguments: False)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "done"
    assert (await activities_of(runner.client, task.task_id)).count("gate") == 1
    assert "asked" not in await kinds(runner, task)


async def test_a_predicate_that_raises_parks_the_task_and_nothing_runs(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    from holdfast.errors import StepFailedError

    ran: list[int] = []
    broken = [True]

    def predicate(arguments: dict[str, Any]) -> bool:
        if broken:
            raise ValueError("the rule book is missing")
        return True

    @tool(needs_approval=predicate)
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="rule book is missing"):
        await runner.run_step(task)
    broken.clear()
    assert (await runner.run_step(task)).status == "waiting"
    await runner.approve(await ask(runner, task), "ann")
    assert str(await runner.run_task(task)) == "done"
    assert ran == [5]


def never(arguments: dict[str, Any]) -> bool:
    """Want no approval, whatever the arguments."""
    return "never" in arguments


@pytest.mark.parametrize("needs_approval", [True, never])
async def test_arguments_that_cannot_be_read_always_ask_and_can_be_corrected(
    make_runner: MakeRunner, model: FakeOpenAI, needs_approval: Any
) -> None:
    ran: list[int] = []

    @tool(needs_approval=needs_approval)
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    runner = await make_runner(pay)
    model.call("pay", '{"amount": ')
    model.reply("done")
    task, output = await started(runner)
    assert output.status == "waiting"
    await runner.approve(await ask(runner, task), "ann", {"amount": 3})
    assert str(await runner.run_task(task)) == "done"
    assert ran == [3]


async def test_approve_with_edited_arguments_runs_those_and_tells_the_model(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 500})
    model.reply("done")
    task, _ = await started(runner)
    approval = await ask(runner, task)
    await runner.approve(approval, "ann", {"amount": 5}, note="too much")
    output = await runner.run_step(task)
    assert [(s.raw_input, str(s)) for s in output.sources] == [('{"amount": 5}', "paid 5")]
    assert str(await runner.run_step(task)) == "done"
    assert world.done == ["pay 5"]
    told = [m.text for m in model.requests[1].messages if m.role in ("system", "developer")]
    assert any(
        '"amount": 500' in text and '"amount": 5}' in text and "ann" in text for text in told
    )
    events = {event.kind: event for event in await runner.audit(task)}
    assert events["asked"].arguments == '{"amount": 500}'
    assert events["tool_call"].arguments == '{"amount": 5}'
    assert (events["command"].actor, events["command"].body["arguments"]["note"]) == (
        "ann",
        "too much",
    )


async def test_an_edit_that_changes_nothing_is_a_plain_approval(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", '{"amount":5}')
    model.reply("done")
    task, _ = await started(runner)
    await runner.approve(await ask(runner, task), "ann", {"amount": 5})
    await runner.run_task(task)
    assert world.done == ["pay 5"]
    assert "check" not in await activities_of(runner.client, task.task_id)
    assert all(m.role not in ("system", "developer") for m in model.requests[1].messages[1:])


@pytest.mark.parametrize("edit", [{"amount": "much"}, {"sum": 5}, "{not json", "[1]"])
async def test_a_bad_edit_is_refused_and_the_approval_stays_open(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World, edit: Any
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 500})
    model.reply("done")
    task, _ = await started(runner)
    approval = await ask(runner, task)
    with pytest.raises(CommandRefusedError, match=r"(?s)do not fit.*stays open"):
        await runner.approve(approval, "ann", edit)
    again = await ask(runner, task)
    assert (again.id, again.arguments) == (approval.id, '{"amount": 500}')
    assert "refused" in again.text
    assert (await runner.run_step(task)).status == "waiting"
    assert world.done == []
    await runner.approve(again, "ben", {"amount": 7})
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 7"]


async def test_reject_tells_the_model_who_and_why_and_nothing_runs(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("then not")
    task, _ = await started(runner)
    await runner.reject(await ask(runner, task), "ann", "no money left")
    output = await runner.run_step(task)
    assert [(s.is_error, s.attempts) for s in output.sources] == [(True, 0)]
    assert str(await runner.run_step(task)) == "then not"
    told = model.requests[1].results["call_1"]
    assert "rejected by ann: no money left" in told
    assert world.done == []
    assert "tool" not in await activities_of(runner.client, task.task_id)


@pytest.mark.parametrize(("result", "text"), [("cash", "cash"), ({"paid": 5}, '{"paid": 5}')])
async def test_respond_gives_the_result_in_place_of_the_tool(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, *, world: World, result: Any, text: str
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task, _ = await started(runner)
    await runner.respond(await ask(runner, task), "ann", result)
    assert str(await runner.run_task(task)) == "done"
    assert model.requests[1].results == {"call_1": text}
    assert world.done == []
    receipt = await runner.rewind(task, to="s1")
    assert receipt.remains == ()


async def test_siblings_run_and_several_approvals_are_decided_in_any_order(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        world.done.append("look")
        return "seen"

    runner = await make_runner(pay, look)
    model.calls(
        [("pay", {"amount": 1}), ("look", {}), ("pay", {"amount": 2}), ("pay", {"amount": 3})]
    )
    model.reply("done")
    task, output = await started(runner)
    assert len(output.waiting_for) == 3
    assert world.done == ["look"]
    first, second, third = await asked(runner, task, 3)
    await runner.reject(third, "ann", "enough")
    await runner.approve(second, "ben")
    assert [a.id for a in await runner.pending_approvals(task)] == [first.id]
    await until_done(world, "pay 2")
    output = await runner.run_step(task)
    assert (output.status, len(output.waiting_for)) == ("waiting", 1)
    await runner.respond(first, "cid", "cash")
    output = await runner.run_step(task)
    texts = [str(source) for source in output.sources]
    assert texts[:3] == ["cash", "seen", "paid 2"]
    assert "enough" in texts[3]
    assert str(await runner.run_step(task)) == "done"
    assert world.done == ["look", "pay 2"]
    assert list(model.requests[1].results) == ["call_1", "call_2", "call_3", "call_4"]


async def until_done(world: World, what: str) -> None:
    async def condition() -> bool:
        return what in world.done

    await until(condition)


async def test_an_approval_is_listed_while_a_sibling_still_runs(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool
) -> None:
    go = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await go.wait()
        return "waited"

    runner = await make_runner(wait, pay)
    model.calls([("wait", {}), ("pay", {"amount": 5})])
    model.reply("done")
    task = await runner.create_task("q", step_mode="automatic")

    async def listed() -> list[Any]:
        return [a for a in await runner.pending_approvals() if a.id.startswith(task.task_id)]

    [approval] = await until(listed)
    await runner.approve(approval, "ann")
    go.set()
    assert str(await runner.run_task(task)) == "done"


async def test_a_deadline_expires_to_rejected(make_runner: MakeRunner, model: FakeOpenAI) -> None:
    @tool(needs_approval=True, approval_seconds=0.4)
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError

    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("then not")
    task, output = await started(runner)
    assert output.status == "waiting"
    output = await until_step(runner, task)
    assert "nobody decided in time" in str(output.sources[0])
    assert str(await runner.run_task(task)) == "then not"
    asking = await question(runner, task)
    [expired] = [event for event in await runner.audit(task) if event.kind == "expired"]
    assert expired.time >= asking.time + 0.4
    with pytest.raises(CommandRefusedError, match="no open approval"):
        await runner.approve(asking.approval, "ann")


async def question(runner: AgentRunner, task: Task) -> AuditEvent:
    """Return what was asked of a person, whether or not it is still open."""
    [found] = [event for event in await runner.audit(task) if event.kind == "asked"]
    return found


async def until_step(runner: AgentRunner, task: Task) -> TaskStepOutput:
    async def condition() -> TaskStepOutput | None:
        output = await runner.run_step(task)
        return output if output.status == "done" else None

    found = await until(condition)
    assert found is not None
    return found


async def test_a_deadline_that_passed_with_no_worker_up_wins_over_a_later_approval(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI
) -> None:
    ran: list[int] = []

    @tool(needs_approval=True, approval_seconds=0.5)
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    agent = make_agent(pay)
    await rig.serve(agent)
    runner = rig.runner()
    model.call("pay", {"amount": 5})
    model.reply("then not")
    task, _ = await started(runner)
    asking = await question(runner, task)
    await rig.stop()
    await asyncio.sleep(0.7)  # the deadline itself is what the test is about
    handle = runner.client.get_workflow_handle(task.task_id)
    await handle.signal("approve", {"approval": asking.approval, "by": "ann"})
    await rig.serve(agent)
    assert str(await runner.run_task(task)) == "then not"
    assert ran == []
    assert "expired" in await kinds(runner, task)


async def test_an_approval_is_used_once_and_decided_once(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.call("pay", {"amount": 5})
    model.reply("done")
    task, _ = await started(runner)
    first = await ask(runner, task)
    await runner.approve(first, "ann")
    for verb in (
        runner.approve(first, "ben"),
        runner.reject(first, "ben", "no"),
        runner.respond(first, "ben", "x"),
    ):
        with pytest.raises(CommandRefusedError):
            await verb
    assert (await runner.run_step(task)).status == "done"
    assert (await runner.run_step(task)).status == "waiting"  # the same call again asks again
    second = await ask(runner, task)
    assert second.id != first.id
    with pytest.raises(CommandRefusedError, match="no open approval"):
        await runner.approve(first, "ann")
    await runner.approve(second, "ann")
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 5", "pay 5"]
    assert len(set(world.keys)) == 2


async def test_two_batches_of_calls_in_one_step_ask_for_each(
    make_runner: MakeRunner, pay: Tool, world: World
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        for k in range(3):
            await ctx.call_tools([ToolCall(id=f"c{k}", name="pay", arguments='{"amount": 5}')])
        return ends(step)

    runner = await make_runner(pay, worker=Doing(body))
    task, _ = await started(runner)
    seen: list[str] = []
    for k in range(3):
        approval = await ask(runner, task)
        assert world.done == ["pay 5"] * k
        seen.append(approval.call_id)
        await runner.approve(approval, "ann")
        if k < 2:

            async def next_one(used: str = approval.id) -> bool:
                return any(a.id != used for a in await runner.pending_approvals(task))

            await until(next_one)
    assert (await until_step(runner, task)).is_last
    assert seen == ["c0", "c1", "c2"]


async def test_an_approval_does_not_survive_a_step_that_is_started_anew(
    make_agent: MakeAgent, rig: Rig, world: World
) -> None:
    amounts = [5]

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        return "paid"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        call = ToolCall(id="c", name="pay", arguments=f'{{"amount": {amounts[0]}}}')
        await ctx.call_tools([call])
        if amounts[0] == 5:
            raise RuntimeError("in the middle")
        return ends(step)

    await rig.serve(make_agent(pay, worker=Doing(body)))
    runner = rig.runner()
    task, _ = await started(runner)
    await runner.approve(await ask(runner, task), "ann")
    await until_status(runner, task, "needs_attention")
    amounts[0] = 500
    output = await runner.run_step(task, restart="step")
    assert output.status == "waiting"
    assert world.done == ["pay 5"]
    await runner.reject(await ask(runner, task), "ann", "no")
    assert (await until_step(runner, task)).is_last


async def test_an_approval_is_bound_to_the_arguments_that_were_shown(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("then not")
    task, _ = await started(runner)
    approval = await ask(runner, task)
    with pytest.raises(CommandRefusedError, match="other arguments"):
        await runner.approve(approval.model_copy(update={"digest": "12345678"}), "ann")
    assert [a.id for a in await runner.pending_approvals(task)] == [approval.id]
    await runner.reject(approval, "ann", "no")
    assert str(await runner.run_task(task)) == "then not"
    assert world.done == []


async def test_an_approval_of_an_undone_branch_is_refused_and_never_satisfies_a_new_gate(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.call("pay", {"amount": 5})
    model.reply("done")
    task, _ = await started(runner)
    old = await ask(runner, task)
    await runner.undo_step(task, by="ann")
    assert await runner.pending_approvals(task) == []
    with pytest.raises(CommandRefusedError):
        await runner.approve(old, "ann")
    assert (await runner.run_step(task)).status == "waiting"
    new = await ask(runner, task)
    assert (new.id, new.branch) != (old.id, old.branch)
    with pytest.raises(CommandRefusedError):
        await runner.approve(old, "ann")
    assert world.done == []
    await runner.approve(new, "ann")
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 5"]


async def test_a_decision_with_no_worker_up_takes_effect_when_one_comes(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    agent = make_agent(pay)
    await rig.serve(agent)
    runner = rig.runner()
    model.call("pay", {"amount": 500})
    model.reply("done")
    task, _ = await started(runner)
    approval = await ask(runner, task)
    await rig.stop()
    receipt = await runner.approve(approval, "ann", {"amount": 5})
    assert receipt.status == "recorded"
    assert world.done == []
    await rig.serve(agent)
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 5"]


async def test_another_runner_decides_with_nothing_but_the_id(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, rig: Rig
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task, _ = await started(runner)
    approval = await ask(runner, task)
    stranger = AgentRunner(
        agent="nobody", app="elsewhere", client=rig.engine.client, archive=rig.engine.archive
    )
    await stranger.approve(approval.id, "ann")
    assert str(await runner.run_task(task)) == "done"


async def test_ten_clients_wait_on_steps_while_it_is_approved(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task = await runner.create_task("q")
    statuses: list[str] = []

    async def client() -> TaskStepOutput:
        output = await runner.run_step(task)
        statuses.append(output.status)
        while output.status == "waiting":
            await asyncio.sleep(0.02)
            output = await runner.run_step(task)
        return output

    async def person() -> None:
        await runner.approve(await ask(runner, task), "ann")

    async def guarded() -> TaskStepOutput | None:
        from holdfast.errors import NoUpcomingStepsError

        try:
            return await client()
        except NoUpcomingStepsError:
            return None

    *outputs, _ = await asyncio.gather(*(guarded() for _ in range(10)), person())
    done = [output for output in outputs if output is not None]
    assert sorted(output.is_last for output in done) == [False, True]
    assert world.done == ["pay 5"]
    assert len(model.requests) == 2
    assert "waiting" in statuses


async def test_approvals_are_decided_while_the_task_continues_as_new(
    make_runner: MakeRunner, pay: Tool, world: World
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        call = ToolCall(id=f"c{ctx.n}", name="pay", arguments=f'{{"amount": {ctx.n}}}')
        await ctx.call_tools([call])
        following = () if ctx.n == 12 else (step.get_next_step(),)
        return TaskStepOutput(
            output=ctx.n, task_step=step, next_steps=following, is_last=ctx.n == 12
        )

    runner = await make_runner(pay, worker=Doing(body), roll_events=50)
    task = await runner.create_task("q", step_mode="automatic")
    over = asyncio.Event()

    async def person() -> None:
        while not over.is_set():
            for approval in await runner.pending_approvals(task):
                with suppress(CommandRefusedError):  # decided already, and only being listed still
                    await runner.approve(approval, "ann")
            await asyncio.sleep(0.02)

    deciding = asyncio.create_task(person())
    output = await runner.run_task(task)
    while output.status == "waiting":
        await asyncio.sleep(0.02)
        output = await runner.run_task(task)
    over.set()
    await deciding
    assert output.output == 12
    assert world.done == [f"pay {n}" for n in range(1, 13)]
    assert len(await histories(runner.client, task.task_id)) >= 3


async def test_a_task_that_rolled_while_it_waits_still_has_its_approval(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    runner = await make_runner(pay, roll_events=50)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task, _ = await started(runner)
    approval = await ask(runner, task)
    while len(await histories(runner.client, task.task_id)) < 2:
        await runner.pause(task, by="ann")
        await runner.resume(task, by="ann")
    assert await ask(runner, task) == approval
    assert (await runner.run_step(task)).status == "waiting"
    await runner.approve(approval, "ann")
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 5"]


async def test_pending_approvals_of_one_task_and_of_all(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool
) -> None:
    runner = await make_runner(pay)
    for k in range(3):
        model.call("pay", {"amount": k})
    tasks = [(await started(runner))[0] for _ in range(3)]
    ids = {task.task_id for task in tasks}

    async def all_of_mine() -> list[Any]:
        found = await runner.pending_approvals()
        mine = [a for a in found if a.id.rpartition(":")[0] in ids]
        return mine if len(mine) == 3 else []

    found = await until(all_of_mine)
    assert [a.asked for a in found] == sorted(a.asked for a in found)
    for task in tasks:
        [own] = await runner.pending_approvals(task)
        assert own in found
        assert own.id.startswith(task.task_id)
    for task in tasks:
        await runner.abandon(task, "enough", by="ann")

    async def none_of_mine() -> bool:
        pending = await runner.pending_approvals()
        return not [a for a in pending if a.id.rpartition(":")[0] in ids]

    await until(none_of_mine)


async def test_an_input_for_a_step_that_waits_is_refused_and_not_dropped(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    task, output = await started(runner)
    assert output.status == "waiting"
    with pytest.raises(InvalidArgumentError, match="waits for a person"):
        await runner.run_step(task, input="something else")
    assert (await runner.run_step(task)) == output


async def test_run_step_asked_again_answers_the_same_and_starts_nothing(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task, output = await started(runner)
    for _ in range(3):
        assert await runner.run_step(task) == output
    assert len(model.requests) == 1
    await runner.approve(await ask(runner, task), "ann")
    await until_status(runner, task, "running")

    async def ran() -> bool:
        return (await runner.get_task(task)).steps == 1

    await until(ran)
    assert len(model.requests) == 1  # nobody asked for the next step
    assert str((await runner.run_step(task)).sources[0]) == "paid 5"
    assert len(model.requests) == 1
    assert str(await runner.run_step(task)) == "done"


async def test_run_task_returns_the_waiting_output_and_goes_on_after_the_decision(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 1})
    model.call("pay", {"amount": 2})
    model.reply("done")
    task = await runner.create_task("q")
    for k in (1, 2):
        output = await runner.run_task(task)
        assert output.status == "waiting"
        assert f'"amount": {k}' in output.waiting_for[0]
        assert await runner.run_task(task) == output
        await runner.approve(await ask(runner, task), "ann")

        async def over(k: int = k) -> bool:
            return (await runner.get_task(task)).steps >= k

        await until(over)
    assert str(await runner.run_task(task)) == "done"


async def test_runner_run_returns_what_it_waits_for_and_the_task_ends_after_the_decision(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    agent: Agent = make_agent(pay)
    await rig.serve(agent)
    runner = rig.runner()
    model.call("pay", {"amount": 5})
    model.reply("done")
    result = await Runner.run(agent, "q", runner=runner)
    assert result.final_output is None
    assert "pay" in result.waiting_for[0]
    waiting = await runner.run_task(result.task_id)
    assert waiting.waiting_for == result.waiting_for
    await runner.approve(await ask(runner, result.task_id), "ann")
    await until_status(runner, result.task_id, "finished")
    assert world.done == ["pay 5"]
    assert [o.output for o in await runner.get_completed_steps(result.task_id)][-1] == "done"


async def test_abandon_closes_open_approvals(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool, world: World
) -> None:
    from holdfast.errors import TaskClosedError

    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    task, _ = await started(runner)
    approval = await ask(runner, task)
    await runner.abandon(task, "changed my mind", by="ann")
    await until_status(runner, task, "abandoned")
    assert await runner.pending_approvals(task) == []
    assert "withdrawn" in await kinds(runner, task)
    with pytest.raises(TaskClosedError):
        await runner.approve(approval, "ann")
    assert world.done == []


async def test_a_decision_names_who_decides_and_a_well_formed_id(
    make_runner: MakeRunner, model: FakeOpenAI, pay: Tool
) -> None:
    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    task, _ = await started(runner)
    approval = await ask(runner, task)
    with pytest.raises(InvalidArgumentError, match="by="):
        await runner.approve(approval, "")
    with pytest.raises(InvalidArgumentError, match="id"):
        await runner.approve("nonsense", "ann")
    with pytest.raises(CommandRefusedError, match="no open approval"):
        await runner.approve(f"{task.task_id}:99", "ann")
    assert await ask(runner, task) == approval


async def test_a_call_approved_while_its_sibling_runs_starts_at_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()
    paid: list[str] = []

    @tool(effect="read")
    async def read_slowly() -> str:
        """Read for a long time."""
        inside.set()
        await go.wait()
        return "read"

    @tool(needs_approval=True)
    def pay(to: str) -> str:
        """Pay somebody.

        Args:
            to: Who.
        """
        paid.append(to)
        return f"paid {to}"

    model.calls([("read_slowly", {}), ("pay", {"to": "ann"})])
    model.reply("done")
    runner = await make_runner(read_slowly, pay)
    task = await runner.create_task("pay and read")
    running = asyncio.create_task(runner.run_task(task))
    await inside.wait()
    await runner.approve(await ask(runner, task), by="ann")

    async def is_paid() -> bool:
        return bool(paid)

    await until(is_paid)
    assert not go.is_set()
    go.set()
    assert (await running).output == "done"
