"""Steering: feedback, the queue, budgets, and calls of which nobody knows if they happened."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Budget, Task, TaskStep, TaskStepOutput, ToolContext, tool
from holdfast.agents.tools.context import Effect
from holdfast.errors import (
    CommandRefusedError,
    MaxTurnsExceeded,
    NoUpcomingStepsError,
    TaskClosedError,
)
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Usage, user
from holdfast.workers import StepContext
from tests.support.people import World, ask, kinds
from tests.support.rig import MakeAgent, MakeRunner, Rig, histories, until_status
from tests.support.workers import Doing


@pytest.fixture
def world() -> World:
    return World()


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


# ---- feedback


async def test_feedback_is_seen_at_the_next_model_call_and_interrupts_nothing(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.hang()
    model.call("look")
    model.call("look")
    model.reply("done")
    task = await runner.create_task("q")
    stepping = asyncio.create_task(runner.run_step(task))
    await model.until_held()
    await runner.give_feedback(task, "be brief", by="ann")
    model.release()
    await stepping
    await runner.run_step(task)
    assert str(await runner.run_step(task)) == "done"
    first, second, third = ([m.text for m in r.messages] for r in model.requests)
    assert "be brief" not in first
    assert second[-1] == "be brief"
    assert third.count("be brief") == 1
    [event] = [e for e in await runner.audit(task) if e.kind == "command"]
    assert event.actor == "ann"


async def test_two_pieces_of_feedback_are_seen_in_their_order(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("done")
    task = await runner.create_task("q")
    await runner.give_feedback(task, "one", by="ann")
    await runner.give_feedback(task, "two", by="ben")
    await runner.run_step(task)
    texts = [m.text for m in model.requests[0].messages]
    assert texts.index("one") < texts.index("two")


async def test_queued_feedback_becomes_the_next_input_after_the_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("first")
    model.reply("second")
    model.reply("third")
    task = await runner.create_task("q")
    await runner.give_feedback(task, "and then?", when="queued", by="ann")
    await runner.give_feedback(task, "and at last?", when="queued", by="ann")
    assert [s.input for s in await runner.get_upcoming_steps(task)] == ["q"]
    assert str(await runner.run_step(task)) == "first"
    assert [s.input for s in await runner.get_upcoming_steps(task)] == ["and then?"]
    assert str(await runner.run_task(task)) == "third"
    assert [m.text for m in model.requests[2].messages if m.role == "user"] == [
        "q",
        "and then?",
        "and at last?",
    ]


async def test_feedback_queued_after_the_answer_reopens_the_task(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("first")
    model.reply("second")
    task = await runner.create_task("q")
    await runner.run_task(task)
    await runner.give_feedback(task, "are you sure?", when="queued", by="ann")
    assert (await runner.get_task(task)).status == "running"
    assert str(await runner.run_task(task)) == "second"
    assert str(await runner.finalize_response(task)) == "second"


@pytest.mark.parametrize("text", ["", "   ", "x" * 20_000])
async def test_feedback_that_says_nothing_or_too_much_is_refused(
    make_runner: MakeRunner, model: FakeOpenAI, text: str
) -> None:
    runner = await make_runner()
    model.reply("done")
    task = await runner.create_task("q")
    with pytest.raises(CommandRefusedError):
        await runner.give_feedback(task, text, by="ann")
    assert str(await runner.run_task(task)) == "done"


# ---- the queue


async def numbered(runner: AgentRunner) -> Task:
    """Make a task whose first step has queued b, c and d."""
    task = await runner.create_task("a")
    await runner.run_step(task)
    return task


def queueing() -> Doing:
    """The first step queues b, c and d; each says its input."""

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(user(step.input or ""))
        following = [step.get_next_step(input=name) for name in "bcd"] if ctx.n == 1 else []
        return TaskStepOutput(output=step.input, task_step=step, next_steps=tuple(following))

    return Doing(body)


async def test_the_input_of_an_upcoming_step_is_edited(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=queueing())
    task = await numbered(runner)
    steps = await runner.get_upcoming_steps(task)
    await runner.edit_step(task, steps[1], "edited", by="ann")
    outputs = [(await runner.run_step(task)).output for _ in range(3)]
    assert outputs == ["b", "edited", "d"]


async def test_an_upcoming_step_is_dropped(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=queueing())
    task = await numbered(runner)
    steps = await runner.get_upcoming_steps(task)
    await runner.drop_step(task, steps[0].step_id, by="ann")
    await runner.drop_step(task, steps[2], by="ann")
    assert (await runner.run_step(task)).output == "c"
    with pytest.raises(NoUpcomingStepsError):
        await runner.run_step(task)
    events = [e for e in await runner.audit(task) if e.kind == "command"]
    assert [(e.actor, e.body["verb"]) for e in events] == [("ann", "drop_step")] * 2


async def test_the_audit_has_why_steps_were_changed_and_a_task_was_resumed(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=queueing())
    task = await numbered(runner)
    b, c, _ = await runner.get_upcoming_steps(task)
    await runner.edit_step(task, b, "edited", by="ann", reason="too vague")
    await runner.drop_step(task, c, by="ann", reason="not needed")
    await runner.pause(task, by="ann")
    await runner.resume(task, by="ben", reason="lunch is over")
    events = [e for e in await runner.audit(task) if e.kind == "command"]
    assert [(e.body["verb"], e.reason) for e in events] == [
        ("edit_step", "too vague"),
        ("drop_step", "not needed"),
        ("pause", ""),
        ("resume", "lunch is over"),
    ]
    assert (await runner.get_upcoming_steps(task))[0].input == "edited"


async def test_steps_that_are_not_queued_are_not_edited_or_dropped(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=queueing())
    task = await numbered(runner)
    [done] = await runner.get_completed_steps(task)
    for step in (done.task_step, "nonsense"):
        with pytest.raises(CommandRefusedError, match="Could not find"):
            await runner.edit_step(task, step, "x", by="ann")
        with pytest.raises(CommandRefusedError, match="Could not find"):
            await runner.drop_step(task, step, by="ann")
    [queued, *_] = await runner.get_upcoming_steps(task)
    with pytest.raises(CommandRefusedError):
        await runner.edit_step(task, queued, " ", by="ann")


async def test_an_edited_first_step_is_what_runs_and_the_task_keeps_its_input(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("done")
    task = await runner.create_task("q")
    await runner.edit_step(task, "s1", "better", by="ann")
    await runner.run_step(task)
    assert model.requests[0].last_user == "better"
    assert (await runner.get_task(task)).input == "q"


# ---- budgets


LIMITS = {
    "turns": Budget(max_turns=2),
    "tokens": Budget(max_tokens=100),
    "seconds": Budget(max_seconds=1000),
}
USED = Usage(input_tokens=40, output_tokens=10)


async def exhausted(
    make_runner: MakeRunner, model: FakeOpenAI, limit: str, policy: Any
) -> tuple[AgentRunner, Task, asyncio.Event]:
    """Make a task that has used up its budget after two turns."""
    over = asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    runner = await make_runner(look)
    budget = LIMITS[limit].model_copy(update={"on_exceeded": policy})
    if limit == "seconds":
        budget = budget.model_copy(update={"max_seconds": 0.6})
    model.call("look", usage=USED)
    if limit != "seconds":
        model.call("look", usage=USED)
    task = await runner.create_task("q", budget=budget)
    for _ in range(1 if limit == "seconds" else 2):
        await runner.run_step(task)
    if limit == "seconds":
        await asyncio.sleep(0.7)  # the passing of time is what the budget counts
    return runner, task, over


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_budget_that_is_used_up_finishes_with_a_tool_free_answer(
    make_runner: MakeRunner, model: FakeOpenAI, limit: str
) -> None:
    runner, task, _ = await exhausted(make_runner, model, limit, "finish")
    model.reply("as far as I came")
    output = await runner.run_step(task)
    assert (str(output), output.is_last) == ("as far as I came", True)
    last = model.requests[-1]
    assert last.body.get("tool_choice") == "none"
    assert "budget" in last.messages[-1].text
    events = [e for e in await runner.audit(task) if e.kind == "limit"]
    assert limit in events[0].reason
    called = {c.id for m in await runner.transcript(task) for c in m.calls}
    answered = {m.call_id for m in await runner.transcript(task) if m.role == "tool"}
    assert called == answered


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_budget_that_is_used_up_fails_the_task(
    make_runner: MakeRunner, model: FakeOpenAI, limit: str
) -> None:
    runner, task, _ = await exhausted(make_runner, model, limit, "fail")
    with pytest.raises(MaxTurnsExceeded):
        await runner.run_step(task)
    await until_status(runner, task, "failed")
    assert (await runner.get_task(task)).steps >= 1


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_budget_that_is_used_up_asks_and_each_approval_is_one_more_call(
    make_runner: MakeRunner, model: FakeOpenAI, limit: str
) -> None:
    runner, task, _ = await exhausted(make_runner, model, limit, "ask")
    before = len(model.requests)
    output = await runner.run_step(task)
    assert output.status == "waiting"
    assert f"max_{limit}" in output.waiting_for[0]
    assert len(model.requests) == before
    assert (await runner.get_task(task)).status == "waiting"
    model.call("look", usage=USED)
    approval = await ask(runner, task)
    assert approval.kind == "limit"
    with pytest.raises(CommandRefusedError):
        await runner.respond(approval, "ann", "x")
    with pytest.raises(CommandRefusedError):
        await runner.approve(approval, "ann", {"more": 1})
    await runner.approve(approval, "ann")
    output = await runner.run_step(task)
    while output.status == "waiting" and not output.waiting_for:
        output = await runner.run_step(task)
    assert [str(s) for s in output.sources] == ["seen"]
    assert (await runner.run_step(task)).status == "waiting"  # one call, not more
    model.reply("so far")
    second = await ask(runner, task)
    assert second.id != approval.id
    await runner.reject(second, "ann", "that will do")
    assert str(await runner.run_task(task)) == "so far"
    assert model.requests[-1].body.get("tool_choice") == "none"


# ---- unknown effects


class Refund:
    """A tool that hangs inside its first call; it is neither idempotent nor reversible."""

    def __init__(self, world: World, **options: Any) -> None:
        self.began = asyncio.Event()
        self.first = True

        @tool(**options)
        async def refund(ctx: ToolContext, amount: int) -> str:
            """Refund."""
            world.done.append(f"refund {amount}")
            world.keys.append(ctx.idempotency_key)
            if self.first:
                self.first = False
                self.began.set()
                await asyncio.Event().wait()
            return f"refunded {amount}"

        self.tool = refund


async def lost(
    rig: Rig, agent: Agent, refund: Refund, model: FakeOpenAI, *, edit: int = 0
) -> tuple[AgentRunner, Task]:
    """Lose the worker inside a call of the tool, and start another."""
    await rig.serve(agent, graceful_shutdown_timeout=timedelta(0))
    runner = rig.runner()
    model.call("refund", {"amount": 100})
    model.reply("done")
    task = await runner.create_task("q", step_mode="automatic")
    if edit:
        await runner.approve(await ask(runner, task), "ann", {"amount": edit})
    await refund.began.wait()
    await rig.serve(agent)
    return runner, task


@pytest.mark.parametrize("happened", [True, False])
async def test_an_unknown_effect_is_resolved_by_its_probe(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, world: World, happened: bool
) -> None:
    seen: list[tuple[Any, str]] = []

    async def probe(ctx: ToolContext, effect: Effect) -> str | None:
        seen.append((effect.arguments, effect.key))
        return "found it" if happened else None

    refund = Refund(world, probe=probe)
    runner, task = await lost(rig, make_agent(refund.tool), refund, model)
    assert str(await runner.run_task(task)) == "done"
    assert seen == [({"amount": 100}, world.keys[0])]
    assert len(set(world.keys)) == 1
    assert world.done == ["refund 100"] * (1 if happened else 2)
    told = "found it" if happened else "refunded 100"
    assert model.requests[1].results == {"call_1": told}
    [probed] = [e for e in await runner.audit(task) if e.kind == "probed"]
    assert probed.body["happened"] is happened


async def test_a_probe_that_fails_leaves_it_to_a_person(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, world: World
) -> None:
    def probe(effect: Effect) -> None:
        raise ValueError("the bank is closed")

    refund = Refund(world, probe=probe)
    runner, task = await lost(rig, make_agent(refund.tool), refund, model)
    approval = await ask(runner, task)
    assert approval.kind == "unknown"
    assert "the bank is closed" in approval.text
    await runner.respond(approval, "ann", "it did")
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["refund 100"]


@pytest.mark.parametrize("verdict", ["happened", "did not", "give up"])
async def test_an_unknown_effect_is_resolved_by_a_person(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, world: World, verdict: str
) -> None:
    refund = Refund(world)
    runner, task = await lost(rig, make_agent(refund.tool), refund, model)
    output = await runner.run_task(task)
    assert output.status == "waiting"
    assert "refund" in output.waiting_for[0]
    approval = await ask(runner, task)
    assert (approval.kind, approval.tool, approval.arguments) == (
        "unknown",
        "refund",
        '{"amount": 100}',
    )
    match verdict:
        case "happened":
            await runner.respond(approval, "ann", "seen at the bank")
        case "did not":
            await runner.approve(approval, "ann")
        case _:
            await runner.reject(approval, "ann", "too late")
    assert str(await runner.run_task(task)) == "done"
    told = model.requests[1].results["call_1"]
    [source] = [s for o in await runner.get_completed_steps(task) for s in o.sources]
    match verdict:
        case "happened":
            assert (told, source.status) == ("seen at the bank", "done")
            assert world.done == ["refund 100"]
        case "did not":
            assert (told, source.status) == ("refunded 100", "done")
            assert world.done == ["refund 100"] * 2
            assert len(set(world.keys)) == 1
        case _:
            assert "too late" in told
            assert source.status == "unknown"
            assert world.done == ["refund 100"]


@pytest.mark.parametrize("verdict", ["probe: no", "probe: yes", "did not", "happened"])
async def test_a_call_that_a_person_had_edited_stays_edited_when_it_is_unknown(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, world: World, verdict: str
) -> None:
    probed: list[Any] = []

    def probe(effect: Effect) -> str | None:
        probed.append((effect.arguments, effect.key))
        return "found" if verdict == "probe: yes" else None

    options: dict[str, Any] = {"probe": probe} if verdict.startswith("probe") else {}
    refund = Refund(world, needs_approval=True, **options)
    runner, task = await lost(rig, make_agent(refund.tool), refund, model, edit=7)
    if not options:
        approval = await ask(runner, task)
        assert (approval.kind, approval.arguments) == ("unknown", '{"amount": 7}')
        if verdict == "happened":
            await runner.respond(approval, "ann", "found")
        else:
            await runner.approve(approval, "ann")
    else:
        assert str(await runner.run_task(task)) == "done"
        assert probed == [({"amount": 7}, world.keys[0])]
    assert str(await runner.run_task(task)) == "done"
    again = verdict in ("probe: no", "did not")
    assert world.done == ["refund 7"] * (2 if again else 1)
    assert len(set(world.keys)) == 1
    [source] = [s for o in await runner.get_completed_steps(task) for s in o.sources]
    assert source.raw_input == '{"amount": 7}'


async def test_an_idempotent_call_is_repeated_with_its_key_and_asks_nobody(
    make_agent: MakeAgent, rig: Rig, model: FakeOpenAI, world: World
) -> None:
    refund = Refund(world, idempotent=True)
    runner, task = await lost(rig, make_agent(refund.tool), refund, model)
    assert str(await runner.run_task(task)) == "done"
    assert world.done == ["refund 100"] * 2
    assert len(set(world.keys)) == 1
    assert "asked" not in await kinds(runner, task)


# ---- pause


async def test_a_pause_holds_the_next_step_and_a_decision_still_counts(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    runner = await make_runner(pay)
    model.call("pay", {"amount": 5})
    model.reply("done")
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).status == "waiting"
    await runner.pause(task, "lunch", by="ann")
    await runner.approve(await ask(runner, task), "ann")
    await until_status(runner, task, "paused")
    output = await runner.run_task(task)
    assert output.status == "waiting"
    assert "lunch" in output.waiting_for[0]
    assert len(model.requests) == 1
    await runner.resume(task, by="ann")
    assert str(await runner.run_task(task)) == "done"


async def test_a_dropped_follow_up_leaves_the_answer_as_the_last_word(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("first")
    task = await runner.create_task("q")
    await runner.give_feedback(task, "dropped", when="queued", by="ann")
    await runner.run_step(task)
    [queued] = await runner.get_upcoming_steps(task)
    await runner.drop_step(task, queued, by="ann")
    assert (await runner.get_task(task)).status == "answered"
    assert str(await runner.finalize_response(task)) == "first"


async def test_a_tool_knows_the_id_of_its_step_also_when_it_is_not_its_number(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    seen: list[str] = []

    @tool(effect="read")
    def where(ctx: ToolContext) -> str:
        """Say where."""
        seen.append(ctx.step_id)
        return "here"

    runner = await make_runner(where)
    model.reply("first")
    model.call("where")
    model.reply("second")
    task = await runner.create_task("q")
    await runner.give_feedback(task, "dropped", when="queued", by="ann")
    await runner.run_step(task)
    [queued] = await runner.get_upcoming_steps(task)
    await runner.drop_step(task, queued, by="ann")
    await runner.give_feedback(task, "again", when="queued", by="ann")
    outputs = [await runner.run_step(task) for _ in range(2)]
    ids = [output.task_step.step_id for output in outputs]
    assert seen == ids[:1]
    assert ids[0] != "s2"  # the second step that ran


async def test_an_input_after_the_answer_is_a_follow_up_question_of_the_same_task(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("363")
    model.reply("405")
    task = await runner.create_task("What is 121 * 3?")
    assert (await runner.run_step(task)).is_last
    output = await runner.run_step(task, input="And 42 more?", request_id="further")
    assert (str(output), output.is_last) == ("405", True)
    again = await runner.run_step(task, input="And 42 more?", request_id="further")
    assert again == output
    assert model.requests[1].last_user == "And 42 more?"
    assert "363" in model.requests[1].text
    assert str(await runner.finalize_response(task)) == "405"


async def answered(runner: AgentRunner, model: FakeOpenAI, *further: str) -> Task:
    """Make a task that has its answer, and one more for each input."""
    task = await runner.create_task("What is 121 * 3?")
    model.reply("363")
    await runner.run_step(task)
    for text in further:
        model.reply(f"to {text[:20]}")
        await runner.run_step(task, input=text)
    return task


async def test_the_undo_of_a_follow_up_brings_the_earlier_answer_back(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    task = await answered(runner, model, "And 42 more?")
    await runner.undo_step(task, by="ann")
    assert (await runner.get_task(task)).status == "answered"
    assert await runner.get_upcoming_steps(task) == []
    with pytest.raises(NoUpcomingStepsError):
        await runner.run_step(task)
    assert str(await runner.run_task(task)) == "363"
    assert await runner.verify(task) == []
    assert str(await runner.finalize_response(task)) == "363"
    assert await runner.verify(task) == []
    with pytest.raises(TaskClosedError):
        await runner.run_step(task, input="And now?")


async def test_after_the_undo_of_a_follow_up_an_input_is_a_new_follow_up(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    task = await answered(runner, model, "And 42 more?")
    await runner.undo_step(task)
    model.reply("358")
    output = await runner.run_step(task, input="And 5 less?")
    assert (str(output), output.is_last) == ("358", True)
    said = [message.text for message in model.requests[-1].messages]
    assert "And 42 more?" not in said
    assert said[-1] == "And 5 less?"
    await runner.undo_step(task)
    assert str(await runner.finalize_response(task)) == "363"
    assert await runner.verify(task) == []


async def test_the_undo_of_a_follow_up_that_runs_brings_the_earlier_answer_back(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    task = await answered(runner, model)
    model.hang()
    running = asyncio.create_task(runner.run_step(task, input="And 42 more?"))
    await model.until_held()
    receipt = await runner.undo_step(task)
    with pytest.raises(CommandRefusedError, match="was undone while"):
        await running
    model.release()
    assert receipt.status == "done"
    assert (await runner.get_task(task)).status == "answered"
    assert str(await runner.finalize_response(task)) == "363"
    assert await runner.verify(task) == []


async def test_follow_ups_are_undone_in_turn_and_by_one_rewind(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    task = await answered(runner, model, "And 42 more?", "And 1 less?")
    await runner.undo_step(task)
    assert str(await runner.run_task(task)) == "to And 42 more?"
    model.reply("406")
    await runner.run_step(task, input="And 1 more?")
    first, *_ = await runner.get_completed_steps(task)
    await runner.rewind(task, to=first)
    assert (await runner.get_task(task)).status == "answered"
    assert str(await runner.finalize_response(task)) == "363"
    assert await runner.verify(task) == []


async def test_the_undo_of_a_later_step_of_a_follow_up_keeps_its_large_input(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    task = await answered(runner, model)
    large = "And this? " * 5_000
    model.call("look")
    await runner.run_step(task, input=large)
    model.reply("lost")
    await runner.run_step(task)
    await runner.undo_step(task)
    model.reply("long")
    assert str(await runner.run_step(task)) == "long"
    assert model.requests[-1].last_user == large
    for _ in range(2):
        await runner.undo_step(task)
    assert (await runner.get_task(task)).status == "answered"
    assert await runner.verify(task) == []


async def test_a_large_follow_up_of_a_paused_task_keeps_its_input(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    task = await answered(runner, model)
    await runner.pause(task, by="ann")
    large = "And this? " * 5_000
    assert (await runner.run_step(task, input=large)).status == "waiting"
    await runner.resume(task, by="ann")
    model.reply("long")
    assert str(await runner.run_step(task)) == "long"
    assert model.requests[-1].last_user == large


async def test_a_follow_up_is_undone_also_when_its_task_has_continued_as_new(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(roll_events=50)
    task = await answered(runner, model)
    handle, runs = runner.client.get_workflow_handle(task.task_id), 1
    texts = ("And 42 more?", "And 1 less?")
    for text in texts:
        model.reply(f"to {text}")
        await runner.run_step(task, input=text)
        runs += 1
        while len(await histories(runner.client, task.task_id)) < runs:
            await runner.pause(task, by="ann")
            await runner.resume(task, by="ann")
    await runner.undo_step(task)
    assert str(await runner.run_task(task)) == f"to {texts[0]}"
    await runner.undo_step(task)
    assert (await runner.get_task(task)).status == "answered"
    assert str(await runner.finalize_response(task)) == "363"
    assert (await handle.result())["answer"] == "363"
    assert await runner.verify(task) == []
