"""Approvals: who decides what, once, from anywhere, whatever happens meanwhile."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from holdfast import AgentRunner, ApprovalRule, Task, TaskStepOutput, ToolContext, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.foreign.servers import QuestionAskedError
from holdfast.errors import CommandRefusedError, InvalidArgumentError
from holdfast.reading.reader import Reader
from holdfast.task.data.calls import Approval, Asks, Question
from holdfast.task.people.choices import choices_of, title_of
from holdfast.testing import call, calls
from tests.support.people import ask, asked
from tests.support.rig import Rig, World, activities_of, run_a_task, until, until_steps
from tests.support.scale import all_of


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


async def test_a_decision_that_comes_before_its_approval_is_open_is_sent_again_once_it_is(
    rig: Rig, pay: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query may show what the next workflow task is going to open, and the decision be first."""
    runner = await rig.make(pay)
    rig.model.add(call("pay", {"amount": 5}), "done")
    task = await runner.create_task("q")
    approvals = Reader.approvals

    async def opened(reader: Reader, task_id: str) -> list[Approval]:
        await runner.run_step(task)
        return await approvals(reader, task_id)

    monkeypatch.setattr(Reader, "approvals", opened)
    assert (await runner.approve(f"{task.task_id}:1", "ann")).status == "applied"
    monkeypatch.undo()
    assert str(await runner.run_task(task)) == "done"


@pytest.mark.parametrize("has_id", [True, all_of(False)])
async def test_of_decisions_that_no_worker_was_up_for_those_before_the_deadline_count(
    rig: Rig, *, has_id: bool
) -> None:
    @tool(needs_approval=ApprovalRule(by="role:finance", expires_seconds=5))
    def pay(amount: int) -> str:
        """Pay."""
        rig.world.done.append(f"pay {amount}")
        return "paid"

    agent = rig.agent(pay)
    runner = await rig.serving(agent)
    rig.model.add(calls([("pay", {"amount": 5}), ("pay", {"amount": 6})]), "done")
    task, _ = await started(runner)
    approval, other = await asked(runner, task, 2)
    await rig.stop()
    handle = runner.client.get_workflow_handle(task.task_id)

    async def send(verb: str, by: str, of: Approval, **more: Any) -> None:
        body = {"approval": of.id, "by": by, **more}
        await handle.signal(verb, body | {"id": f"{by} {verb} {of.id}"} if has_id else body)

    finance = {"roles": ["finance"]}
    await send("approve", "eve", approval)
    await send("approve", "anna", approval, **finance)
    await asyncio.sleep(max(0, other.expires - time.time()) + 0.2)  # the deadline itself
    await send("reject", "anna", approval, reason="too late", **finance)
    await send("approve", "anna", other, **finance)
    await rig.serve(agent)
    assert str(await runner.run_task(task)) == "done"
    assert rig.world.done == ["pay 5"]
    assert "no one decided in time" in rig.model.requests[-1].text
    events = await runner.audit(task)
    assert [(e.kind, e.actor, e.verb) for e in events if e.approval == approval.id] == [
        ("asked", "task", ""),
        ("refused", "eve", "approve"),
        ("command", "anna", "approve"),
        ("refused", "anna", "reject"),
        ("tool_call", "model", ""),
    ]
    [asking] = [e for e in events if e.kind == "asked" and e.approval == other.id]
    [expired] = [e for e in events if e.kind == "expired"]
    assert expired.time >= asking.time + 5
    assert not await runner.verify(task)


async def test_a_request_id_decides_one_thing_and_another_decision_by_it_is_refused(
    rig: Rig, pay: Tool
) -> None:
    runner = await rig.make(pay)
    rig.model.add(calls([("pay", {"amount": 5}), ("pay", {"amount": 6})]), "done")
    task, _ = await started(runner)
    first, second = await asked(runner, task, 2)
    for _ in range(2):
        assert (await runner.approve(first, "ann", request_id="r")).status == "applied"
    ways: tuple[Awaitable[object], ...] = (
        runner.approve(second, "ann", request_id="r"),
        runner.approve(first, "ann", {"amount": 7}, request_id="r"),
        runner.reject(second, "ann", "no", request_id="r"),
        runner.respond(first, "ann", "by hand", request_id="r"),
    )
    for way in ways:
        with pytest.raises(CommandRefusedError, match="given to an earlier approve") as caught:
            await way
        assert caught.value.is_repeated
    assert await asked(runner, task, 1) == [second]
    await runner.reject(second, "ann", "no", request_id="s")
    assert str(await runner.run_task(task)) == "done"
    assert rig.world.done == ["pay 5"]


async def test_approve_runs_the_call_as_proposed_or_as_edited_and_tells_the_model(
    rig: Rig, pay: Tool
) -> None:
    runner = await rig.make(pay)
    rig.model.add(call("pay", {"amount": 5}), call("pay", {"amount": 500}), "done")
    task, output = await started(runner)
    assert output.status == "waiting"
    assert 'pay {"amount": 5}' in output.waiting_for[0]
    for _ in range(2):  # asked again it starts nothing
        assert await runner.run_step(task) == output
    with pytest.raises(InvalidArgumentError, match="waits for a person"):
        await runner.run_step(task, input="something else")
    approval = await ask(runner, task)
    assert (approval.tool, approval.arguments, approval.kind) == ("pay", '{"amount": 5}', "tool")
    assert (await runner.get_task(task)).status == "waiting"
    with pytest.raises(InvalidArgumentError, match="by="):
        await runner.approve(approval, "")
    with pytest.raises(InvalidArgumentError, match="id"):
        await runner.approve("nonsense", "ann")
    with pytest.raises(CommandRefusedError, match="no open approval"):
        await runner.approve(f"{task.task_id}:99", "ann")
    with pytest.raises(CommandRefusedError, match="other arguments"):
        await runner.approve(approval.model_copy(update={"digest": "12345678"}), "ann")
    assert rig.world.done == []
    assert (await runner.approve(approval, "ann")).status == "applied"
    await until_steps(runner, task, 1)
    assert len(rig.model.requests) == 1  # nobody asked for the next step
    output = await runner.run_step(task)
    assert (output.status, str(output.sources[0])) == ("done", "paid 5")
    assert await runner.pending_approvals(task) == []
    waiting = await runner.run_task(task)
    assert '"amount": 500' in waiting.waiting_for[0]
    assert await runner.run_task(task) == waiting
    with pytest.raises(CommandRefusedError, match="these were empty"):
        await runner.approve(await ask(runner, task), "ann", "")
    edits: list[Any] = [{"amount": "much"}, {"sum": 5}, "{not json", "[1]"]
    for edit in edits:
        with pytest.raises(CommandRefusedError, match=r"(?s)do not fit.*stays open"):
            await runner.approve(await ask(runner, task), "ann", edit)
    approval = await ask(runner, task)
    assert (approval.arguments, "refused" in approval.text) == ('{"amount": 500}', True)
    await runner.approve(approval, "ann", {"amount": 7}, note="too much")
    await until_steps(runner, task, 3)  # after `run_task` the whole task goes on by itself
    assert str(await runner.run_task(task)) == "done"
    assert rig.world.done == ["pay 5", "pay 7"]
    assert len(set(rig.world.keys)) == 2
    told = [m.text for m in rig.model.requests[-1].messages if m.role in ("system", "developer")]
    assert any(
        '"amount": 500' in text and '"amount": 7}' in text and "ann" in text for text in told
    )
    events = [e for e in await runner.audit(task) if e.kind in ("asked", "tool_call", "command")]
    assert [e.arguments for e in events if e.kind == "asked"] == [
        '{"amount": 5}',
        '{"amount": 500}',
    ]
    assert [e.arguments for e in events if e.kind == "tool_call"][-1] == '{"amount": 7}'
    last = next(e for e in reversed(events) if e.kind == "command")
    assert (last.actor, last.body["arguments"]["note"]) == ("ann", "too much")


async def test_siblings_run_and_several_approvals_are_decided_in_any_order(
    rig: Rig, pay: Tool
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look for a long time."""
        inside.set()
        await go.wait()
        return "seen"

    runner = await rig.make(pay, look)
    payments = [("pay", {"amount": amount}) for amount in (1, 2, 3)]
    rig.model.add(calls([payments[0], ("look", {}), *payments[1:]]), "done")
    task = await runner.create_task("q")
    running = asyncio.create_task(runner.run_step(task))
    await inside.wait()
    first, second, third = await asked(runner, task, 3)

    await until(
        runner.pending_approvals,
        lambda found: {first.id, second.id, third.id} <= {each.id for each in found},
    )
    await runner.reject(third, "ann", "enough")
    await runner.approve(second, "ben")

    await until(lambda: rig.world.done == ["pay 2"])  # at once, while its sibling runs
    assert [a.id for a in await runner.pending_approvals(task)] == [first.id]
    go.set()
    output = await running
    assert (output.status, len(output.waiting_for)) == ("waiting", 1)
    await runner.respond(first, "cid", {"paid": 5})
    output = await runner.run_step(task)
    texts = [str(source) for source in output.sources]
    assert texts[:3] == ['{"paid": 5}', "seen", "paid 2"]
    assert "rejected by ann: enough" in texts[3]
    assert [(s.is_error, s.attempts) for s in output.sources][3] == (True, 0)
    assert str(await runner.run_step(task)) == "done"
    assert rig.world.done == ["pay 2"]
    assert list(rig.model.requests[1].results.values()) == texts
    assert (await activities_of(runner.client, task.task_id)).count("tool") == 2  # look, pay


async def test_approvals_that_cannot_be_read_have_a_row_while_no_worker_is_up(
    pay: Tool, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memo has cards of another build, or sealed by another codec."""
    agent = rig.agent(pay)
    runner = await rig.serving(agent)
    rig.model.call("pay", {"amount": 7})
    task = await run_a_task(runner)
    await until(runner.pending_approvals)
    monkeypatch.setattr("holdfast.reading.visibility.as_array", lambda _: [{"kind": "other"}])
    monkeypatch.setattr("holdfast.client.agent_runner.approvals.LISTED_SECONDS", 0.2)
    own = f"{task.task_id}:0"

    async def listed() -> dict[str, Approval]:
        return {each.id: each for each in await runner.pending_approvals()}

    await until(listed, lambda found: f"{task.task_id}:1" in found)
    await rig.stop()
    row = (await listed())[own]
    assert (row.kind, row.agent, choices_of(row)) == ("unread", "agent", ())
    assert row.text.startswith("1 more of this task cannot be read here")
    assert title_of(row) == "Approvals that cannot be read"
    await rig.serve(agent)

    await until(listed, lambda found: own not in found)
    with pytest.raises(CommandRefusedError, match="Open are"):
        await runner.approve(own, by="kim")


async def test_an_empty_text_answers_a_question_of_a_tool(rig: Rig) -> None:
    fields: dict[str, Any] = {"properties": {"note": {"type": "string"}}, "required": ["note"]}

    @tool
    async def book(ctx: ToolContext) -> str:
        """Book a room, with a note if a person has one."""
        if not ctx.answers:
            question = Question(key="q", message="Any wishes?", fields=fields)
            raise QuestionAskedError(Asks(questions=(question,)))
        return f"booked, {ctx.answers['q']}"

    runner = await rig.make(book)
    rig.model.add(call("book"), "done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).status == "waiting"
    await runner.approve(await ask(runner, task), "ann", "")
    assert (await runner.run_task(task)).output == "done"
    assert "'note': ''" in rig.model.requests[-1].messages[-1].text
