"""Steering: feedback, the queue, budgets, and calls of which nobody knows if they happened."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Agent,
    AgentRunner,
    Budget,
    Task,
    TaskStep,
    TaskStepOutput,
    ToolContext,
    tool,
)
from holdfast.agents.tools.context import Effect
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    NoUpcomingStepsError,
    StepNotFoundError,
    TaskClosedError,
)
from holdfast.testing import FakeOpenAI, call, hang
from holdfast.values.messages import Message, Usage, user
from holdfast.workers import (
    FunctionAgentWorker,
    LLMCompilerAgentWorker,
    ReActAgentWorker,
    StepContext,
)
from tests.support.people import World, ask
from tests.support.rig import MakeAgent, MakeRunner, Rig, until_status, until_steps
from tests.support.runs import look
from tests.support.workers import Doing

# ---- feedback


async def test_feedback_is_seen_at_the_next_model_call_and_interrupts_nothing(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.add(hang(), call("look"), call("look"), "done")
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


async def test_words_after_the_answer_are_read_before_the_task_ends_and_no_new_input_drops_them(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    task = await answered(runner, model)
    await runner.give_feedback(task, "be brief", by="ann")
    with pytest.raises(InvalidArgumentError, match="no answer yet"):
        await runner.finalize_response(task)
    model.reply("2")
    await runner.run_step(task, input="And 1 + 1?")
    said = [m.text for m in model.requests[-1].messages if m.role == "user"]
    assert said[1:] == ["be brief", "And 1 + 1?"]
    await runner.finalize_response(task)


@pytest.mark.parametrize("how", ["queued", "next_model_call", "run_step"])
async def test_what_is_asked_after_an_undo_follows_the_note_of_it(
    make_runner: MakeRunner, model: FakeOpenAI, how: Any
) -> None:
    runner = await make_runner()
    task = await runner.create_task("q", session=f"s-{how}")
    model.add("1", "2", "3")
    await runner.run_step(task)
    await runner.run_step(task, input="f")
    await runner.undo_step(task, by="ann", reason="because")
    for step in await runner.get_upcoming_steps(task):
        await runner.drop_step(task, step, by="ann")
    if how == "run_step":
        await runner.run_step(task, input="g")
    else:
        await runner.give_feedback(task, "g", when=how, by="ann")
        await runner.run_step(task)
    said = [(m.role, m.text[:5]) for m in model.requests[-1].messages]
    assert said == [("user", "q"), ("assistant", "1"), ("system", "Steps"), ("user", "g")]
    await runner.finalize_response(task)
    kept = [m.text for m in await runner.session(f"s-{how}").chat_history()]
    assert kept == ["q", "1", "g", "3"]


async def _asks(question: str, ctx: StepContext) -> str:
    del question
    return (await ctx.call_model()).text


@pytest.mark.parametrize(
    "worker",
    [None, ReActAgentWorker(), FunctionAgentWorker(_asks), LLMCompilerAgentWorker()],
    ids=lambda worker: type(worker).__name__,
)
async def test_words_about_a_waiting_input_follow_it_and_notes_of_an_undo_end_with_their_task(
    make_runner: MakeRunner, model: FakeOpenAI, worker: Any
) -> None:
    runner = await make_runner(**({} if worker is None else {"worker": worker}))

    def said() -> list[str]:
        return [m.text for m in model.requests[-1].messages if m.text in ("q", "no", "r") or by(m)]

    def by(message: Message) -> bool:
        return "Reason: because" in message.text

    task = await runner.create_task("q", session="s")
    await runner.give_feedback(task, "no", by="ann")
    for n in range(3):
        model.reply(f"Answer: {n}")
    await runner.run_step(task)
    assert said() == ["q", "no"]
    await runner.undo_step(task, by="ann", reason="because")
    await runner.run_step(task)
    assert [text[:5] for text in said()] == ["q", "no", "Steps"]
    await runner.finalize_response(task)
    kept = [m.text for m in await runner.session("s").chat_history()]
    assert kept[:1] == ["q"]
    later = await runner.create_task("r", session="s")
    await runner.run_step(later)
    assert not any(map(by, model.requests[-1].messages))
    assert "because" not in str(kept)


async def test_a_refusal_names_the_approval_that_waits_the_steps_that_there_are_and_who_has_ended(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    runner = await make_runner(look, pay)
    model.add(call("look"), call("pay"))
    task = await runner.create_task("q")
    await runner.run_task(task)
    approval = await ask(runner, task)
    with pytest.raises(InvalidArgumentError, match=rf"person is to decide '{approval.id}' \(pay\)"):
        await runner.finalize_response(task)
    with pytest.raises(StepNotFoundError, match=r"s9. The completed steps.*are: s1\."):
        await runner.rewind(task, to="s9")
    await runner.abandon(task, "enough", by="ann")
    await until_status(runner, task, "abandoned")
    for ask_it in (runner.run_step(task), runner.give_feedback(task, "x"), runner.undo_step(task)):
        with pytest.raises(TaskClosedError, match=r"abandoned by ann: enough.*fork\(task, at="):
            await ask_it


# ---- the queue


def queueing() -> Doing:
    """The first step queues b, c and d; each says its input."""

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(user(step.input or ""))
        following = [step.get_next_step(input=name) for name in "bcd"] if ctx.n == 1 else []
        return TaskStepOutput(output=step.input, task_step=step, next_steps=tuple(following))

    return Doing(body)


async def test_queued_steps_are_edited_and_dropped_and_the_audit_has_why(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=queueing())
    task = await runner.create_task("q")
    await runner.edit_step(task, "s1", "better", by="ann")
    assert (await runner.run_step(task)).output == "better"
    assert (await runner.get_task(task)).input == "q"
    b, c, _ = await runner.get_upcoming_steps(task)
    await runner.edit_step(task, b, "edited", by="ann", reason="too vague")
    await runner.drop_step(task, c.step_id, by="ann", reason="not needed")
    await runner.pause(task, by="ann")
    await runner.resume(task, by="ben", reason="lunch is over")
    for step in ("s1", "nonsense"):  # the one is done, the other never was
        with pytest.raises(CommandRefusedError, match="Could not find"):
            await runner.edit_step(task, step, "x", by="ann")
        with pytest.raises(CommandRefusedError, match="Could not find"):
            await runner.drop_step(task, step, by="ann")
    with pytest.raises(CommandRefusedError):
        await runner.edit_step(task, b, " ", by="ann")
    assert [(await runner.run_step(task)).output for _ in range(2)] == ["edited", "d"]
    with pytest.raises(NoUpcomingStepsError):
        await runner.run_step(task)
    events = [e for e in await runner.audit(task) if e.kind == "command"]
    assert [(e.actor, e.body["verb"], e.reason) for e in events] == [
        ("ann", "edit_step", ""),
        ("ann", "edit_step", "too vague"),
        ("ann", "drop_step", "not needed"),
        ("ann", "pause", ""),
        ("ben", "resume", "lunch is over"),
    ]


async def test_a_budget_that_is_used_up_finishes_with_a_tool_free_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    budget = Budget(max_tokens=100, on_exceeded="finish")
    model.add(*[call("look", usage=Usage(input_tokens=40, output_tokens=10))] * 2)
    model.reply("as far as I came")
    task = await runner.create_task("q", budget=budget)
    output = await runner.run_task(task)
    assert (str(output), output.is_last) == ("as far as I came", True)
    last = model.requests[-1]
    assert last.body.get("tool_choice") == "none"
    assert "budget" in last.messages[-1].text
    [event] = [e for e in await runner.audit(task) if e.kind == "limit"]
    assert "tokens" in event.reason
    called = {c.id for m in await runner.transcript(task) for c in m.calls}
    answered = {m.call_id for m in await runner.transcript(task) if m.role == "tool"}
    assert called == answered


async def test_a_budget_that_is_used_up_asks_and_each_approval_is_one_more_call(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    model.call("look")
    task = await runner.create_task("q", budget=Budget(max_turns=1, on_exceeded="ask"))
    output = await runner.run_task(task)
    assert (output.status, len(model.requests)) == ("waiting", 1)
    assert "max_turns" in output.waiting_for[0]
    assert (await runner.get_task(task)).status == "waiting"
    model.call("look")
    approval = await ask(runner, task)
    assert approval.kind == "limit"
    with pytest.raises(CommandRefusedError):
        await runner.respond(approval, "ann", "x")
    with pytest.raises(CommandRefusedError):
        await runner.approve(approval, "ann", {"more": 1})
    await runner.approve(approval, "ann")
    await until_steps(runner, task, 2)
    assert (await runner.run_task(task)).status == "waiting"  # one call, not more
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
    model.add(call("refund", {"amount": 100}), "done")
    task = await runner.create_task("q", step_mode="automatic")
    if edit:
        await runner.approve(await ask(runner, task), "ann", {"amount": edit})
    await refund.began.wait()
    await rig.serve(agent)
    return runner, task


@pytest.mark.parametrize("verdict", ["probe: no", "probe: yes", "did not"])
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
        await runner.approve(approval, "ann")
        assert str(await runner.run_task(task)) == "done"
    else:
        assert str(await runner.run_task(task)) == "done"
        assert probed == [({"amount": 7}, world.keys[0])]
        [told] = [e for e in await runner.audit(task) if e.kind == "probed"]
        assert told.body["happened"] is (verdict == "probe: yes")
    again = verdict != "probe: yes"
    assert model.requests[1].results["call_1"] == ("refunded 7" if again else "found")
    assert world.done == ["refund 7"] * (2 if again else 1)
    assert len(set(world.keys)) == 1
    [source] = [s for o in await runner.get_completed_steps(task) for s in o.sources]
    assert source.raw_input == '{"amount": 7}'


# ---- pause


async def answered(runner: AgentRunner, model: FakeOpenAI, *further: str) -> Task:
    """Make a task that has its answer, and one more for each input."""
    task = await runner.create_task("What is 121 * 3?")
    model.reply("363")
    await runner.run_step(task)
    for text in further:
        model.reply(f"to {text[:20]}")
        await runner.run_step(task, input=text)
    return task
