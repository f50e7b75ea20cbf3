"""Plan and solve on a real server: parts side by side, refined, undone, approved, retried."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast import AgentRunner, Budget, Task, TaskStep, TaskStepOutput, ToolCall, tool
from holdfast.agents.tools.context import Effect
from holdfast.errors import StepFailedError
from holdfast.testing import FakeOpenAI
from holdfast.testing.fake_api.replies import reply
from holdfast.values.messages import assistant, user
from holdfast.workers import (
    PlanAndSolveAgentWorker,
    ReActAgentWorker,
    StepContext,
)
from holdfast.workers.plan_and_solve.steps import PLANS_KEY
from tests.support.people import World, ask
from tests.support.rig import MakeAgent, MakeRunner, Rig, until_status
from tests.support.workers import Doing, said

PLANNING = "plan how to"
REFINING = "Remaining sub-tasks"


def written(**dependencies: str) -> str:
    """Write a plan as a model would; each value names dependencies, separated by spaces."""
    parts = [
        {
            "name": name,
            "input": f"work on {name}",
            "expected_output": "",
            "dependencies": needs.split(),
        }
        for name, needs in dependencies.items()
    ]
    return json.dumps({"sub_tasks": parts})


DIAMOND = written(a="", b="a", c="a", d="b c")


def part(name: str) -> str:
    """Return a text that only requests of this sub-task hold."""
    return f"Sub-task '{name}':"


def solves(model: FakeOpenAI, **results: str) -> None:
    """Script the answer of each sub-task."""
    for name, text in results.items():
        model.reply(text, match=part(name))


def asked(model: FakeOpenAI) -> dict[str, int]:
    """Count the requests of each sub-task."""
    return {name: sum(r.holds(part(name)) for r in model.requests) for name in "abcd"}


async def steps_of(runner: AgentRunner, task: Task) -> list[str]:
    return [output.task_step.step_id for output in await runner.get_completed_steps(task)]


async def test_the_middle_of_a_diamond_runs_at_the_same_time(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker(refine=False))
    model.reply(DIAMOND, match=PLANNING)
    solves(model, a="res a", d="res d")
    model.hang(reply("res b"), match=part("b"))
    model.hang(reply("res c"), match=part("c"))
    task = await runner.create_task("the request", session="s")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held(2)
    assert asked(model) == {"a": 1, "b": 1, "c": 1, "d": 0}
    model.release()
    output = await running
    assert (str(output), output.task_step.step_id) == ("res d", "p1:d")
    assert output.task_step.prev_steps == ("p1:b", "p1:c")
    last = model.requests[-1]
    assert all(last.holds(f"res {name}") for name in "bc")
    assert not last.holds("res a")
    assert str(await runner.finalize_response(task)) == "res d"
    kept = [("user", "the request"), ("assistant", "res d")]
    assert said(await runner.transcript(task)) == kept
    assert said(await runner.session("s").chat_history()) == kept
    assert await runner.verify(task) == []


async def test_rounds_of_ready_steps_are_the_waves_of_the_plan(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker())
    model.reply(DIAMOND, match=PLANNING)
    solves(model, a="res a", b="res b", c="res c", d="res d")
    model.reply(written(b="a", c="a", d="b c"), match=REFINING)
    model.reply("It is fine as it is.", match=REFINING)
    task = await runner.create_task("the request")
    rounds: list[list[str]] = []
    while await runner.get_upcoming_steps(task):
        outputs = await runner.run_steps_in_queue(task)
        rounds.append([output.task_step.step_id for output in outputs])
    assert rounds == [
        ["s1"],
        ["p1:a"],
        ["p1-refine-1"],
        ["p1:b", "p1:c"],
        ["p1-refine-2"],
        ["p1:d"],
    ]
    made = {o.task_step.step_id: o.output for o in await runner.get_completed_steps(task)}
    assert made["s1"]["reason"] == "made"
    assert made["p1-refine-1"]["reason"] == "unchanged"
    assert made["p1-refine-2"]["reason"].startswith("kept: ")


async def test_a_refinement_drops_and_adds_sub_tasks(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker())
    model.reply(DIAMOND, match=PLANNING)
    solves(model, a="res a", c="res c", e="res e", f="res f")
    model.reply(written(c="a", e="a", f="c e a"), match=REFINING)
    model.reply(written(f="c e a"), match=REFINING)
    response = await runner.chat("the request", session="s")
    assert str(response) == "res f"
    task = await runner.get_task(response.task_id)
    names = [[s["name"] for s in e["sub_tasks"]] for e in task.extra_state[PLANS_KEY]]
    assert names == [["a", "b", "c", "d"], ["a", "c", "e", "f"]]
    assert "p1:b" not in await steps_of(runner, task)
    assert all(model.requests[-1].holds(f"res {name}") for name in "ace")  # a: two waves before
    assert response.usage.requests == len(model.requests)


async def test_a_sub_task_is_undone_alone_and_done_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    world = World()

    def cancel(effect: Effect) -> str:
        world.done.append(f"cancel {effect.arguments['what']}")
        return "cancelled"

    @tool(undo=cancel)
    async def book(what: str) -> str:
        """Book."""
        world.done.append(f"book {what}")
        return f"booked {what}"

    runner = await make_runner(book, worker=PlanAndSolveAgentWorker(refine=False))
    model.reply(DIAMOND, match=PLANNING)
    solves(model, a="res a", c="res c", d="res d")
    model.call("book", {"what": "plane"}, match=part("b"))
    model.reply("by plane", match=part("b"))
    model.call("book", {"what": "train"}, match=part("b"))
    model.reply("by train", match=part("b"))
    task = await runner.create_task("the request")
    for _ in range(2):
        await runner.run_step(task)
    before = await runner.get_upcoming_steps(task)
    assert str(await runner.run_step(task)) == "by plane"
    receipt = await runner.undo_step(task, by="ann", reason="too loud")
    assert receipt.steps == ("p1:b",)
    assert await runner.get_upcoming_steps(task) == before
    assert str(await runner.run_step(task)) == "by train"
    assert world.done == ["book plane", "cancel plane", "book train"]
    again = [r for r in model.requests if r.holds(part("b"))][2]
    assert again.holds("too loud")  # the sub-task's model is told, on its own messages
    assert str(await runner.run_task(task)) == "res d"
    assert model.requests[-1].holds("by train")
    assert not model.requests[-1].holds("by plane")
    assert asked(model) == {"a": 1, "b": 4, "c": 1, "d": 1}
    response = await runner.finalize_response(task)
    assert [source.content for source in response.sources] == ["booked train"]


async def test_undo_of_the_plan_has_another_one_made(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker())
    model.reply(DIAMOND, match=PLANNING)
    solves(model, a="res a")
    task = await runner.create_task("the request")
    planned = await runner.run_step(task)
    await runner.run_step(task)
    await runner.rewind(task, to=planned)
    await runner.undo_step(task)
    assert (await runner.get_task(task)).extra_state == {}
    model.reply(written(a=""), match=PLANNING)
    solves(model, a="at once")
    assert str(await runner.run_task(task)) == "at once"
    assert [e["version"] for e in (await runner.get_task(task)).extra_state[PLANS_KEY]] == [1]


async def test_an_approval_inside_a_sub_task_leaves_its_sibling_alone(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    world = World()

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        world.done.append(f"pay {amount}")
        return f"paid {amount}"

    runner = await make_runner(pay, worker=PlanAndSolveAgentWorker(refine=False))
    model.reply(written(b="", c="", d="b c"), match=PLANNING)
    model.call("pay", {"amount": 5}, match=part("b"))
    model.reply("res b", match=part("b"))
    solves(model, c="res c", d="res d")
    task = await runner.create_task("the request")
    waiting = await runner.run_task(task)
    assert (waiting.status, waiting.task_step.step_id) == ("waiting", "p1:b")
    approval = await ask(runner, task)
    assert approval.tool == "pay"
    assert world.done == []
    await runner.approve(approval, "ann")
    assert str(await runner.run_task(task)) == "res d"
    assert world.done == ["pay 5"]
    assert asked(model) == {"a": 0, "b": 2, "c": 1, "d": 1}


async def test_a_sub_task_that_failed_is_tried_again_alone(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker(refine=False))
    model.reply(DIAMOND, match=PLANNING)
    solves(model, a="res a", c="res c")
    model.fail(400, message="not today", match=part("b"))
    task = await runner.create_task("the request")
    with pytest.raises(StepFailedError, match="not today"):
        await runner.run_task(task)
    await until_status(runner, task, "needs_attention")
    solves(model, b="res b", d="res d")
    assert str(await runner.run_task(task)) == "res d"
    assert asked(model) == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert (await steps_of(runner, task))[-1] == "p1:d"


async def test_a_tool_error_in_a_sub_task_goes_to_its_model(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        raise ValueError("it is dark")

    runner = await make_runner(look, worker=PlanAndSolveAgentWorker())
    model.reply(written(a=""), match=PLANNING)
    model.call("look", {}, match=part("a"))
    model.reply("nothing to be seen", match=part("a"))
    response = await runner.chat("the request")
    assert str(response) == "nothing to be seen"
    assert "it is dark" in model.requests[-1].results["call_1"]
    assert [source.is_error for source in response.sources] == [True]


async def test_a_worker_that_is_replaced_does_only_what_is_left(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    agent = make_agent(worker=PlanAndSolveAgentWorker(refine=False))
    await rig.serve(agent)
    runner = rig.runner()
    model.reply(DIAMOND, match=PLANNING)
    solves(model, a="res a", b="res b", d="res d")
    model.hang(reply("too late"), match=part("c"))
    task = await runner.create_task("the request")
    running = asyncio.create_task(runner.run_task(task))
    await model.until_held()
    await rig.stop()
    model.release()
    solves(model, c="res c")
    await rig.serve(agent)
    assert str(await running) == "res d"
    assert asked(model) == {"a": 1, "b": 1, "c": 2, "d": 1}


async def test_each_turn_has_a_plan_and_is_kept_as_question_and_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker(refine=False))
    model.reply(written(a="", b=""), match=PLANNING)
    solves(model, a="res a", b="res b")
    model.reply("both", match="from these results")
    model.reply(written(c=""), match=PLANNING)
    solves(model, c="res c")
    task = await runner.create_task("first", session="s")
    await runner.give_feedback(task, "second", when="queued", by="ann")
    assert str(await runner.run_task(task)) == "res c"
    await runner.finalize_response(task)
    turns = [("user", "first"), ("assistant", "both"), ("user", "second"), ("assistant", "res c")]
    assert said(await runner.session("s").chat_history()) == turns
    plans = (await runner.get_task(task)).extra_state[PLANS_KEY]
    assert len({entry["plan"] for entry in plans}) == 2
    model.reply(written(d=""), match=PLANNING)
    solves(model, d="res d")
    await runner.chat("third", session="s")
    planning = model.requests[-2].messages
    assert said(planning) == [*turns, ("user", "third")]
    assert said(await runner.session("s").chat_history())[4:] == [
        ("user", "third"),
        ("assistant", "res d"),
    ]


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_the_answer_at_the_end_of_the_budget_is_kept_alone(
    make_runner: MakeRunner, model: FakeOpenAI, turns: int
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker())
    model.add(*[reply(text) for text in (DIAMOND, "res a")[:turns]], "as far as I got")
    budget = Budget(max_turns=turns, on_exceeded="finish")
    response = await runner.chat("the request", session="s", budget=budget)
    assert str(response) == "as far as I got"
    assert said(await runner.session("s").chat_history()) == [
        ("user", "the request"),
        ("assistant", "as far as I got"),
    ]


async def test_a_budget_that_ends_beside_others_gives_one_answer(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker(refine=False))
    model.reply(written(b="", c="", d="b c"), match=PLANNING)
    solves(model, b="res b", c="res c")
    budget = Budget(max_turns=1, on_exceeded="finish")
    response = await runner.chat("the request", session="s", budget=budget)
    history = said(await runner.session("s").chat_history())
    assert history == [("user", "the request"), ("assistant", str(response))]
    assert "res b" in str(response)


async def test_the_structure_is_asked_for_on_the_wire(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(worker=PlanAndSolveAgentWorker())
    model.reply(written(a=""), match=PLANNING)
    solves(model, a="res a")
    outputs: list[TaskStepOutput] = []
    task = await runner.create_task("the request")
    while not outputs or not outputs[-1].is_last:
        outputs.append(await runner.run_step(task))
    planning, solving = model.requests
    assert planning.body["text"]["format"]["name"] == "plan"
    assert planning.body["text"]["format"]["strict"] is True
    assert "json_schema" not in solving.text


# ---- sub-tasks done by another AgentWorker


async def test_sub_tasks_are_done_by_the_steps_of_another_worker(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        return f"found {what}"

    worker = PlanAndSolveAgentWorker(refine=False, worker=ReActAgentWorker())
    runner = await make_runner(look, worker=worker)
    model.reply(written(a="", b="a"), match=PLANNING)
    model.reply('Thought: I look.\nAction: look\nAction Input: {"what": "x"}', match=part("a"))
    model.reply("Thought: I can answer.\nAnswer: res a", match="found x")
    model.reply("Thought: I can answer.\nAnswer: res b", match=part("b"))
    task = await runner.create_task("the request")
    assert str(await runner.run_task(task)) == "res b"
    assert await steps_of(runner, task) == ["s1", "p1:a", "p1:b"]
    observed = model.requests[2]
    assert observed.holds("Observation: found x")
    assert observed.holds("Thought: I look.")
    assert model.requests[3].holds("res a")
    assert not model.requests[3].holds("found x")
    assert said(await runner.transcript(task)) == [("user", "the request"), ("assistant", "res b")]
    assert await runner.verify(task) == []


async def test_a_worker_of_sub_tasks_may_have_a_graph_of_steps_and_calls_at_their_ends(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    calls: list[str] = []

    @tool(effect="read")
    def look(what: str) -> str:
        """Look."""
        calls.append(what)
        return f"found {what}"

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.step_state.get("half"):
            answer = await ctx.call_model([*ctx.messages, user("your half?")], tools=())
            return TaskStepOutput(output=answer.text, task_step=step)
        if ctx.inputs:
            return TaskStepOutput(
                output=" ".join(map(str, ctx.inputs.values())), task_step=step, is_last=True
            )
        halves = [TaskStep(step_id=id, step_state={"half": id}) for id in ("left", "right")]
        end = TaskStep(step_id="end", prev_steps=("left", "right"))
        call = ToolCall(id="c1", name="look", arguments='{"what": "y"}')
        ctx.add(assistant("I look.", calls=(call,)))
        return TaskStepOutput(output="", task_step=step, next_steps=(end, *halves), calls=(call,))

    worker = PlanAndSolveAgentWorker(refine=False, worker=Doing(body))
    runner = await make_runner(look, worker=worker)
    model.reply(written(a=""), match=PLANNING)
    model.reply("one", match="found y")
    model.reply("two", match="found y")
    task = await runner.create_task("the request")
    assert str(await runner.run_task(task)) == "one two"
    assert calls == ["y"]


@pytest.mark.parametrize("budget", [Budget(max_turns=1, on_exceeded="finish"), None])
async def test_a_worker_of_sub_tasks_ends_with_its_turns_or_the_budget(
    budget: Budget | None, make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        answer = await ctx.call_model([*ctx.messages, user("and on")], tools=())
        ctx.add(answer.message)
        return TaskStepOutput(
            output=answer.text, task_step=step, next_steps=(step.get_next_step(),)
        )

    worker = PlanAndSolveAgentWorker(refine=False, worker=Doing(body), max_turns=2)
    runner = await make_runner(worker=worker)
    model.reply(written(a=""), match=PLANNING)
    model.reply("one")
    if budget is None:
        model.reply("two")
        model.reply("all", match="used up its turns")
    task = await runner.create_task("the request", budget=budget)
    assert str(await runner.run_task(task)) == ("all" if budget is None else "one")


async def test_a_worker_of_sub_tasks_that_ends_without_an_answer_is_refused(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        waits = TaskStep(step_id="later", prev_steps=("never",))
        return TaskStepOutput(output="", task_step=step, next_steps=(waits,))

    runner = await make_runner(worker=PlanAndSolveAgentWorker(refine=False, worker=Doing(body)))
    model.reply(written(a=""), match=PLANNING)
    task = await runner.create_task("the request")
    with pytest.raises(StepFailedError, match="left steps that nothing makes ready: 'later'"):
        await runner.run_task(task)
