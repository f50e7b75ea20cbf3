"""Steering: feedback, the queue, budgets, and calls of which nobody knows if they happened."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, Budget, Task, ToolContext, tool
from holdfast.agents.tools.context import Effect
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    StepNotFoundError,
    TaskClosedError,
)
from holdfast.testing import call
from holdfast.workers import (
    FunctionAgentWorker,
    LLMCompilerAgentWorker,
    ReActAgentWorker,
    StepContext,
)
from tests.support.people import ask
from tests.support.rig import Rig, World, run_a_task, step_a_task, until_status, until_steps
from tests.support.runs import look, pay

# ---- feedback


@pytest.mark.parametrize("how", ["queued", "next_model_call", "run_step"])
async def test_what_is_asked_after_an_undo_follows_the_note_of_it(rig: Rig, how: Any) -> None:
    runner = await rig.make()
    task = await runner.create_task("q", session=f"s-{how}")
    rig.model.add("1", "2", "3")
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
    said = [(m.role, m.text[:5]) for m in rig.model.requests[-1].messages]
    assert said == [("user", "q"), ("assistant", "1"), ("system", "Steps"), ("user", "g")]
    await runner.finalize_response(task)
    kept = [m.text for m in await runner.session(f"s-{how}").chat_history()]
    assert kept == ["q", "1", "g", "3"]


async def test_after_a_dropped_follow_up_the_next_queued_one_is_asked(rig: Rig) -> None:
    runner = await rig.make()
    rig.model.add("1", "2")
    task = await step_a_task(runner)
    for text in ("f", "g"):
        await runner.give_feedback(task, text, when="queued", by="ann")
    [step] = await runner.get_upcoming_steps(task)
    await runner.drop_step(task, step, by="ann")
    assert [step.input for step in await runner.get_upcoming_steps(task)] == ["g"]
    assert str(await runner.run_task(task)) == "2"
    await rig.assert_replays()


async def _asks(question: str, ctx: StepContext) -> str:
    return (await ctx.call_model()).text


@pytest.mark.parametrize(
    "worker",
    [None, ReActAgentWorker(), FunctionAgentWorker(_asks), LLMCompilerAgentWorker()],
    ids=lambda worker: type(worker).__name__,
)
async def test_words_about_a_waiting_input_follow_it_and_notes_of_an_undo_end_with_their_task(
    rig: Rig, worker: Any
) -> None:
    runner = await rig.make(worker=worker)

    def said() -> list[str]:
        texts = [message.text for message in rig.model.requests[-1].messages]
        return [text for text in texts if text in ("q", "no", "r") or "Reason: because" in text]

    task = await runner.create_task("q", session="s")
    await runner.give_feedback(task, "no", by="ann")
    rig.model.add(*(f"Answer: {n}" for n in range(3)))
    await runner.run_step(task)
    assert said() == ["q", "no"]
    await runner.undo_step(task, by="ann", reason="because")
    await runner.run_step(task)
    assert [text[:5] for text in said()] == ["q", "no", "Steps"]
    await runner.finalize_response(task)
    kept = [m.text for m in await runner.session("s").chat_history()]
    assert kept[:1] == ["q"]
    assert "because" not in str(kept)
    await step_a_task(runner, "r", session="s")
    assert not any("Reason: because" in text for text in said())


async def test_a_refusal_names_the_approval_that_waits_the_steps_that_there_are_and_who_has_ended(
    rig: Rig,
) -> None:
    runner = await rig.make(look, pay)
    rig.model.add(call("look"), call("pay"))
    task = await run_a_task(runner)
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


async def test_a_budget_that_is_used_up_asks_and_each_approval_is_one_more_call(rig: Rig) -> None:
    runner = await rig.make(look)
    rig.model.call("look")
    task = await runner.create_task("q", budget=Budget(max_turns=1, on_exceeded="ask"))
    output = await runner.run_task(task)
    assert (output.status, len(rig.model.requests)) == ("waiting", 1)
    assert "max_turns" in output.waiting_for[0]
    assert (await runner.get_task(task)).status == "waiting"
    rig.model.call("look")
    approval = await ask(runner, task)
    assert approval.kind == "limit"
    with pytest.raises(CommandRefusedError):
        await runner.respond(approval, "ann", "x")
    with pytest.raises(CommandRefusedError):
        await runner.approve(approval, "ann", {"more": 1})
    await runner.approve(approval, "ann")
    await until_steps(runner, task, 2)
    assert (await runner.run_task(task)).status == "waiting"  # one call, not more
    rig.model.reply("so far")
    second = await ask(runner, task)
    assert second.id != approval.id
    await runner.reject(second, "ann", "that will do")
    assert str(await runner.run_task(task)) == "so far"
    assert rig.model.requests[-1].body.get("tool_choice") == "none"


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
    rig: Rig, agent: Agent, refund: Refund, *, edit: int = 0
) -> tuple[AgentRunner, Task]:
    """Lose the worker inside a call of the tool, and start another."""
    await rig.serve(agent, graceful_shutdown_timeout=timedelta(0))
    runner = rig.runner()
    rig.model.add(call("refund", {"amount": 100}), "done")
    task = await runner.create_task("q", step_mode="automatic")
    if edit:
        await runner.approve(await ask(runner, task), "ann", {"amount": edit})
    await refund.began.wait()
    await rig.serve(agent)
    return runner, task


@pytest.mark.parametrize("verdict", ["probe: no", "probe: yes", "did not"])
async def test_a_call_that_a_person_had_edited_stays_edited_when_it_is_unknown(
    rig: Rig, verdict: str
) -> None:
    probed: list[Any] = []

    def probe(effect: Effect) -> str | None:
        probed.append((effect.arguments, effect.key))
        return "found" if verdict == "probe: yes" else None

    options: dict[str, Any] = {"probe": probe} if verdict.startswith("probe") else {}
    refund = Refund(rig.world, needs_approval=True, **options)
    runner, task = await lost(rig, rig.agent(refund.tool), refund, edit=7)
    if not options:
        approval = await ask(runner, task)
        assert (approval.kind, approval.arguments) == ("unknown", '{"amount": 7}')
        await runner.approve(approval, "ann")
        assert str(await runner.run_task(task)) == "done"
    else:
        assert str(await runner.run_task(task)) == "done"
        assert probed == [({"amount": 7}, rig.world.keys[0])]
        [told] = [e for e in await runner.audit(task) if e.kind == "probed"]
        assert told.body["happened"] is (verdict == "probe: yes")
    again = verdict != "probe: yes"
    assert rig.model.requests[1].results["call_1"] == ("refunded 7" if again else "found")
    assert rig.world.done == ["refund 7"] * (2 if again else 1)
    assert len(set(rig.world.keys)) == 1
    [source] = [s for o in await runner.get_completed_steps(task) for s in o.sources]
    assert source.raw_input == '{"amount": 7}'
