"""Agents as tools: a call is a task of its own, which its parent starts, waits for and owns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Task, TaskStep, TaskStepOutput, tool
from holdfast.activities.tools import child_result as collecting
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.cli.commands.task_lookup import find_task
from holdfast.errors import (
    ArchiveError,
    CommandRefusedError,
    ConnectError,
    DigestMismatchError,
    NoWorkerError,
    QueryFailedError,
    StepFailedError,
    TaskNotFoundError,
    UndoFailedError,
    UndoRefusedError,
)
from holdfast.reading.runs.recorded import Recorded, read_recorded
from holdfast.testing import FakeOpenAI, ScriptedModel, call
from holdfast.values.messages import ToolCall
from holdfast.workers import StepContext
from holdfast.workflows.children import children
from tests.support.people import World, ask, asked
from tests.support.rig import (
    MakeAgent,
    Rig,
    activities_of,
    event_types,
    until,
    until_rolled,
    until_status,
)
from tests.support.runs import look, pay, serve_nested
from tests.support.workers import Doing


@pytest.fixture
def world() -> World:
    return World()


async def test_a_call_is_a_task_of_its_own_that_sees_only_its_input_and_goes_with_its_parent(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(name="Helper Bot", instructions="help")
    await rig.serve(make_agent(helper.as_tool(tool_description="Helps."), name="agent"))
    runner = rig.runner()
    model.call("helper_bot", {"input": "how?"})
    model.reply("like this")
    model.reply("all done")
    task = await runner.create_task("please")
    assert str(await runner.run_task(task)) == "all done"
    outer, inner, last = model.requests
    assert [m.text for m in inner.messages if m.role == "user"] == ["how?"]
    assert "please" not in str(inner.body)
    assert last.messages[-1].text == "like this"
    [spec] = outer.tools
    assert (spec.name, spec.description) == ("helper_bot", "Helps.")
    assert spec.parameters["required"] == ["input"]
    [output] = (await runner.get_completed_steps(task))[0].sources
    assert output.child_task == f"{task.task_id}~0.1.0.0"
    child = await runner.get_task(output.child_task)
    assert (child.status, child.parent, child.agent) == ("answered", task.task_id, "Helper Bot")
    [event] = [e for e in await runner.audit(task) if e.kind == "tool_call"]
    assert event.body == {"task": child.task_id}
    found = await runner.get_task(task)
    assert found.usage.requests == 3
    await runner.finalize_response(task)
    await until_status(runner, child, "finished")
    await runner.delete_task(task)
    with pytest.raises(TaskNotFoundError):
        await runner.get_task(child)


# ---- people


async def test_a_childs_question_is_asked_in_the_parent_and_answered_once(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World
) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        return "paid"

    runner = await serve_nested(rig, make_agent, pay)
    model.call("helper", {"input": "pay it"})
    model.call("pay", {"amount": 3})
    task = await runner.create_task("q")
    output = await runner.run_step(task)
    assert output.status == "waiting"
    [approval] = await runner.pending_approvals(task)
    assert approval.id == f"{task.task_id}~0.1.0.0:1"
    assert (approval.tool, approval.arguments) == ("pay", '{"amount": 3}')
    [text] = output.waiting_for
    assert text.startswith(approval.id)
    assert (await runner.get_task(task)).status == "waiting"

    async def listed() -> list[str]:
        everywhere = await runner.pending_approvals()
        return [a.id for a in everywhere if a.id.startswith(task.task_id)]

    assert await until(listed) == [approval.id]
    again = await runner.run_task(task)
    assert (again.status, again.waiting_for) == ("waiting", (text,))
    model.reply("it is paid")
    model.reply("done")
    await runner.approve(approval, by="ann")
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["pay 3"]
    assert len(model.requests) == 4
    assert await runner.pending_approvals(task) == []


# ---- several, and nested ones


async def test_three_levels_and_their_cost(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    low = make_agent(name="low")
    middle = make_agent(low.as_tool(), name="middle")
    await rig.serve(make_agent(middle.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("middle", {"input": "m"})
    model.call("low", {"input": "l"})
    model.reply("deep")
    model.reply("halfway")
    model.reply("top")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "top"
    [listed] = await runner.list_tasks(parent=task)
    assert listed.task_id == f"{task.task_id}~0.1.0.0"
    assert listed.parent == task.task_id
    [lowest] = await runner.list_tasks(parent=listed)
    everything = {each.task_id for each in await runner.list_tasks()}
    assert task.task_id in everything
    assert not everything & {listed.task_id, lowest.task_id}
    typed: Any = rig.engine  # what a person types means the task, not those that work for it
    assert await find_task(typed, task.task_id[:-1]) == task.task_id
    assert await find_task(typed, f"{task.task_id}~0.1.0.0~") == lowest.task_id
    found = [await runner.get_task(each) for each in (task, listed, lowest)]
    assert [each.usage.requests for each in found] == [5, 3, 1]
    assert found[0].usage.total_tokens > found[1].usage.total_tokens > 0
    first, second = await runner.get_completed_steps(task)
    assert (first.usage.requests, second.usage.requests) == (4, 1)
    await runner.finalize_response(task)
    for each in (listed, lowest):
        await until_status(runner, each, "finished")


async def test_parents_and_children_roll_over_while_they_wait(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World
) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        return "paid"

    runner = await serve_nested(rig, make_agent, pay, roll_events=50)
    model.call("helper", {"input": "pay"})
    for k in range(2):
        model.call("pay", {"amount": k})
    model.reply("all paid")
    model.reply("done")
    task = await runner.create_task("q", step_mode="automatic")
    child = f"{task.task_id}~0.1.0.0"
    first = await ask(runner, task)
    for each in (task.task_id, child):  # people who only say something, until both roll over
        for k in range(20):
            await runner.give_feedback(each, f"go on, {k}")
        await until_rolled(runner.client, each)
    await runner.approve(first, by="ann")
    await until_decided(runner, task, first.id)
    await runner.approve(await ask(runner, task), by="ann")
    await until_status(runner, task, "answered")
    assert world.done == ["pay 0", "pay 1"]
    assert len(model.requests) == 5
    assert (await runner.get_task(task)).usage.requests == 5
    assert await runner.verify(child) == []


async def until_decided(runner: AgentRunner, task: Task, approval: str) -> None:
    async def condition() -> bool:
        return approval not in {a.id for a in await runner.pending_approvals(task)}

    await until(condition)


# ---- failures


@pytest.mark.parametrize(("asks", "is_last"), [("run_step", True), ("run_steps_in_queue", False)])
async def test_the_output_of_a_step_is_handed_over_after_its_child_was_paused(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, asks: str, *, is_last: bool
) -> None:
    async def ask() -> list[Any]:
        if asks == "run_step":
            return [await runner.run_step(task)]
        return await runner.run_steps_in_queue(task)

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if ctx.n == 1:
            await ctx.call_tools([ToolCall(id="c", name="helper", arguments='{"input": "a"}')])
        return TaskStepOutput(
            output=f"step {ctx.n}",
            task_step=step,
            next_steps=() if is_last else (step.get_next_step(),),
            is_last=is_last or ctx.n == 2,
        )

    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent", worker=Doing(body)))
    runner = rig.runner()
    model.hang("helped")
    task = await runner.create_task("q")
    running = asyncio.create_task(ask())
    await asyncio.to_thread(model.wait_held)
    child = f"{task.task_id}~0.1.0.0"
    await runner.pause(child, by="ann")
    [output] = [each for each in await running if each.waiting_for]
    assert output.waiting_for == (f"paused by somebody in task {child!r}; resume the task first",)
    model.release()
    await runner.resume(child, by="ann")

    async def is_done() -> bool:
        return (await runner.get_task(task)).steps == 1

    await until(is_done)
    assert [each.output for each in await ask()] == ["step 1"]
    assert (await runner.get_task(task)).steps == 1


async def test_abandoning_a_task_abandons_those_that_work_for_it(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(3600)
        return "never"

    low = make_agent(wait, name="low")
    helper = make_agent(low.as_tool(), name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.call("low", {"input": "b"})
    model.call("wait", {})
    task = await runner.create_task("q", step_mode="automatic")
    child = f"{task.task_id}~0.1.0.0"
    lowest = f"{child}~0.1.0.0"

    async def runs() -> bool:
        try:
            return "tool" in await activities_of(runner.client, lowest)
        except Exception:  # noqa: BLE001  it is not there yet
            return False

    await until(runs)
    await runner.abandon(task, "enough", by="ann")
    for each in (task, child, lowest):
        found = await until_status(runner, each, "abandoned")
        assert "enough" in found.error


async def test_a_child_that_somebody_abandons_is_told_to_the_model(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    runner = await serve_nested(rig, make_agent, pay)
    model.call("helper", {"input": "a"})
    model.call("pay", {})
    model.reply("too bad")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).status == "waiting"
    await runner.abandon(f"{task.task_id}~0.1.0.0", "not today", by="bob")
    assert str(await runner.run_task(task)) == "too bad"
    assert "not today" in model.requests[2].messages[-1].text


# ---- undo


@pytest.fixture
def book(world: World) -> Tool:
    """A tool whose calls can be taken back."""

    async def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['city']}")
        return f"cancelled {effect.arguments['city']}"

    @tool(undo=cancel)
    async def book(city: str) -> str:
        """Book."""
        world.done.append(f"book {city}")
        return f"booked {city}"

    return book


@pytest.fixture
def send(world: World) -> Tool:
    """A tool whose calls cannot be taken back."""

    @tool
    async def send(text: str) -> str:
        """Send."""
        world.done.append(f"send {text}")
        return f"sent {text}"

    return send


async def test_undoing_a_step_undoes_what_its_agents_did_and_the_call_is_a_new_task_then(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World, book: Tool
) -> None:
    low = make_agent(book, name="low")
    helper = make_agent(book, low.as_tool(), name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.call("book", {"city": "rome"})
    model.call("low", {"input": "b"})
    model.call("book", {"city": "oslo"})
    model.reply("low is done")
    model.reply("helped")
    task = await runner.create_task("q")
    child = f"{task.task_id}~0.1.0.0"
    await runner.run_step(task)
    assert (await runner.get_task(task)).usage.requests == 6
    receipt = await runner.undo_step(task, by="ann", reason="wrong")
    assert world.done == ["book rome", "book oslo", "cancel oslo", "cancel rome"]
    [undone] = receipt.undone
    assert undone.startswith(f"task {child!r}: ")
    assert 'book({"city": "rome"})' in undone
    assert 'book({"city": "oslo"})' in undone
    assert (receipt.remains, receipt.check) == ((), ())
    found = await runner.get_task(task)
    assert (found.steps, found.usage.requests, found.status) == (0, 6, "running")
    for each in (child, f"{child}~0.2.0.0"):
        await until_status(runner, each, "abandoned")
    model.call("helper", {"input": "a"})
    model.reply("nothing to do")
    model.reply("done")
    assert str(await runner.run_task(task)) == "done"
    [output] = (await runner.get_completed_steps(task))[0].sources
    assert output.child_task == f"{task.task_id}~1.1.0.0"
    assert (await runner.get_task(task)).usage.requests == 9
    assert await runner.verify(task) == []


async def test_what_a_child_cannot_take_back_refuses_the_undo_before_anything_is_undone(  # noqa: PLR0917  fixtures
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World, book: Tool, send: Tool
) -> None:
    helper = make_agent(book, send, name="helper")
    await rig.serve(make_agent(helper.as_tool(), book, name="agent"))
    runner = rig.runner()
    model.calls([("helper", {"input": "alpha"}), ("book", {"city": "bern"})])
    model.call("book", {"city": "rome"}, match="alpha")
    model.call("send", {"text": "hi"}, match="alpha")
    model.reply("helped", match="alpha")
    task = await runner.create_task("q")
    await runner.run_step(task)
    done = sorted(world.done)
    with pytest.raises(UndoRefusedError) as caught:
        await runner.undo_step(task)
    child = f"{task.task_id}~0.1.0.0"
    assert f"task {child!r}, step 2: send" in str(caught.value)
    assert sorted(world.done) == done == ["book bern", "book rome", "send hi"]
    assert (await runner.get_task(child)).status == "answered"
    receipt = await runner.undo_step(task, "keep")
    assert sorted(world.done[3:]) == ["cancel bern", "cancel rome"]
    [remains] = receipt.remains
    assert "send" in remains
    assert len(receipt.undone) == 2


async def test_a_running_child_is_stopped_and_undone(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World, book: Tool
) -> None:
    runner = await serve_nested(rig, make_agent, book)
    model.call("helper", {"input": "alpha"})
    model.call("book", {"city": "rome"})
    model.hang()
    task = await runner.create_task("q", step_mode="automatic")
    await asyncio.to_thread(model.wait_requests, 3)
    receipt = await runner.undo_step(task)
    assert world.done == ["book rome", "cancel rome"]
    assert len(receipt.undone) == 1
    await until_status(runner, f"{task.task_id}~0.1.0.0", "abandoned")
    found = await runner.get_task(task)
    assert (found.steps, found.status, found.usage.requests) == (0, "running", 2)


async def test_the_undo_of_a_childs_call_may_need_a_person(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World
) -> None:
    @tool(undo=lambda effect: world.done.append("cancel"), undo_needs_approval=True)
    async def book() -> str:
        """Book."""
        world.done.append("book")
        return "booked"

    runner = await serve_nested(rig, make_agent, book)
    model.call("helper", {"input": "alpha"})
    model.call("book", {})
    model.reply("helped")
    task = await runner.create_task("q")
    await runner.run_step(task)
    receipt = await runner.undo_step(task, request_id="r1")
    assert receipt.status == "waiting"
    approval = await ask(runner, task)
    assert (approval.kind, approval.tool) == ("undo", "book")
    await runner.approve(approval, by="ann")

    async def undone() -> bool:
        return (await runner.get_task(task)).steps == 0

    await until(undone)
    receipt = await runner.undo_step(task, request_id="r1")
    assert (receipt.status, len(receipt.undone)) == ("done", 1)
    assert world.done == ["book", "cancel"]


async def test_a_fork_does_not_own_what_its_steps_called(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World, book: Tool
) -> None:
    runner = await serve_nested(rig, make_agent, book)
    model.call("helper", {"input": "alpha"})
    model.call("book", {"city": "rome"})
    model.reply("helped")
    model.reply("done")
    task = await runner.create_task("q")
    first = await runner.run_step(task)
    fork = await runner.fork(task, first)
    assert str(await runner.run_task(fork)) == "done"
    await runner.abandon(fork, "no")
    await until_status(runner, fork, "abandoned")
    assert (await runner.get_task(f"{task.task_id}~0.1.0.0")).status == "answered"
    await runner.undo_step(task)
    assert world.done == ["book rome", "cancel rome"]


async def test_a_call_is_forked_where_its_caller_is_served() -> None:
    asks = ToolCall(id="", name="helper", arguments='{"input": "how?"}')
    caller = Agent(
        name="caller",
        model=ScriptedModel([asks, "done"]),
        tools=[
            Agent(
                name="helper",
                model=ScriptedModel(["so", *(f"so {n}" for n in range(4))]),
            ).as_tool(tool_description="Helps.")
        ],
    )
    async with AgentRunner.local(caller, app="desk", data_dir=None) as runner:
        task = await runner.create_task("q")
        await runner.run_task(task)
        client = AgentRunner(
            agent="caller", app="desk", client=runner.client, archive=runner.archive
        )
        child, n = f"{task.task_id}~0.1.0.0", 0
        for each in (runner, client):
            fork = await each.fork(child, at="s1", input="and then?")
            for source in (fork, await each.fork(fork, at="s1", input="and then?")):
                assert str(await each.run_task(source)) == f"so {n}"
                assert await each.verify(source) == []
                n += 1


async def test_an_undo_that_fails_in_a_child_that_failed_names_it_and_can_be_asked_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, world: World
) -> None:
    async def cancel(effect: Effect) -> None:
        world.done.append("try")
        if len(world.done) < 3:
            msg = "closed"
            raise ValueError(msg)

    @tool(undo=cancel)
    async def book() -> str:
        """Book."""
        return "booked"

    helper = make_agent(book, name="helper")
    await rig.serve(make_agent(helper.as_tool(max_turns=1), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "alpha"})
    model.call("book", {})
    task = await runner.create_task("q")
    assert (await runner.run_step(task)).sources[0].is_error
    child = f"{task.task_id}~0.1.0.0"
    for _ in range(2):
        with pytest.raises(UndoFailedError, match="closed") as caught:
            await runner.undo_step(task)
        assert repr(child) in str(caught.value)
        assert (await runner.get_task(task)).steps == 1
    receipt = await runner.undo_step(task)
    assert len(receipt.undone) == 1
    assert (await runner.get_task(task)).steps == 0


async def test_a_child_that_is_ended_with_temporals_own_tools_does_not_hang_its_parent(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    runner = await serve_nested(rig, make_agent)
    model.call("helper", {"input": "alpha"})
    model.hang()
    model.reply("too bad")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await asyncio.to_thread(model.wait_held)
    await runner.client.get_workflow_handle(f"{task.task_id}~0.1.0.0").terminate("by hand")
    assert str(await running) == "too bad"
    assert (await runner.get_completed_steps(task))[0].sources[0].is_error


async def test_trouble_in_reading_a_child_does_not_cost_its_answer(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble: list[Exception] = [NoWorkerError("queue"), ConnectError("away")]
    trouble += [QueryFailedError("?"), ArchiveError("busy")]

    async def flaky(*given: Any) -> Recorded:
        if trouble:
            raise trouble.pop()
        return await read_recorded(*given)

    monkeypatch.setattr(collecting, "read_recorded", flaky)
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "alpha"})
    model.reply("the answer")
    model.reply("done")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "done"
    assert model.requests[-1].messages[-1].text == "the answer"
    assert (len(model.requests), trouble) == (3, [])


async def test_a_child_whose_record_is_damaged_is_no_failure_of_the_tool(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(*_given: Any) -> Recorded:
        msg = "a segment was changed"
        raise DigestMismatchError(msg)

    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "alpha"})
    model.reply("the answer")
    model.reply("done")
    task = await runner.create_task("q")
    with monkeypatch.context() as broken:
        broken.setattr(collecting, "read_recorded", damaged)
        with pytest.raises(StepFailedError, match="a segment was changed"):
            await runner.run_task(task)
    assert str(await runner.run_task(task)) == "done"
    assert model.requests[-1].messages[-1].text == "the answer"


async def test_many_children_are_told_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    monkeypatch.setattr(children, "MOST_AT_ONCE", 2)
    helper = make_agent(pay, name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.calls([("helper", {"input": "a"})] * 3)
    for _ in range(3):
        model.call("pay", {})
    task = await runner.create_task("q", step_mode="automatic")
    await asked(runner, task, 3)
    await runner.abandon(task, "enough", by="ann")
    for i in range(3):
        await until_status(runner, f"{task.task_id}~0.1.0.{i}", "abandoned")
    await until_status(runner, task, "abandoned")
    told = ("EXTERNAL_WORKFLOW_EXECUTION_SIGNALED", "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED")
    pending, most = 0, 0
    for name in await event_types(runner.client, task.task_id):
        pending += name == "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED"
        pending -= name in told
        most = max(most, pending)
    assert (pending, most) == (0, 2)


async def test_a_child_of_a_task_that_was_ended_with_temporals_own_tools_is_abandoned(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.hang("helped")
    task = await runner.create_task("q", step_mode="automatic")
    await asyncio.to_thread(model.wait_held)
    await runner.client.get_workflow_handle(task.task_id).terminate("by hand")
    model.release()
    found = await until_status(runner, f"{task.task_id}~0.1.0.0", "abandoned")
    assert "the task that it works for has ended" in found.error


async def test_pausing_a_task_holds_those_that_work_for_it(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    low = make_agent(look, name="low")
    helper = make_agent(low.as_tool(), name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.call("low", {"input": "b"})
    model.hang(call("look", {}))
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_task(task))
    await asyncio.to_thread(model.wait_held)
    child = f"{task.task_id}~0.1.0.0"
    lowest = f"{child}~0.1.0.0"
    await runner.pause(task, reason="stop", by="ann")
    await until_status(runner, lowest, "paused")
    model.release()
    output = await running
    assert output.waiting_for == ("paused by ann: stop; resume the task first",)
    found = await runner.get_task(lowest)
    assert (found.status, found.paused) == ("paused", "ann: stop")
    with pytest.raises(CommandRefusedError, match="resume that one"):
        await runner.resume(lowest)
    for _ in range(3):
        model.reply("done")
    await runner.resume(task, by="ann")
    assert str(await runner.run_task(task)) == "done"


async def test_a_call_that_somebody_paused_stays_paused_when_the_calling_task_goes_on(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(look, name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.hang(call("look", {}))
    task = await runner.create_task("q", step_mode="automatic")
    await asyncio.to_thread(model.wait_held)
    child = f"{task.task_id}~0.1.0.0"
    await runner.pause(child, by="bob")
    await runner.pause(task, by="ann")
    model.release()

    async def is_held() -> bool:
        return (await runner.get_task(child)).steps == 1

    await until(is_held)
    await runner.resume(task, by="ann")

    async def goes_on() -> bool:
        return (await runner.get_task(task)).paused != "ann"

    await until(goes_on)
    assert (await runner.get_task(child)).paused == "bob"
    model.reply("helped")
    model.reply("done")
    await runner.resume(child, by="bob")
    await until_status(runner, task, "answered")


async def test_a_call_that_begins_while_its_task_pauses_is_paused(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.hang(call("helper", {"input": "a"}))
    task = await runner.create_task("q", step_mode="automatic")
    await asyncio.to_thread(model.wait_held)
    await runner.pause(task, by="ann")
    model.release()
    child = f"{task.task_id}~0.1.0.0"

    async def has_begun() -> bool:
        return any(each.task_id == child for each in await runner.list_tasks(parent=task.task_id))

    await until(has_begun)
    assert (await until_status(runner, child, "paused")).paused == "ann"
    assert len(model.requests) == 1
    model.reply("helped")
    model.reply("done")
    await runner.resume(task)
    await until_status(runner, task, "answered")
