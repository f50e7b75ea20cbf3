"""Running steps: order, inputs, failures, requests sent twice and at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentRunner, TaskStep, TaskStepOutput
from holdfast.errors import (
    InvalidArgumentError,
    NoUpcomingStepsError,
    StalledTaskError,
    StepFailedError,
    StepNotFoundError,
)
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import assistant
from holdfast.workers import StepContext
from tests.support.rig import MakeAgent, MakeRunner, Rig, until_status
from tests.support.workers import Counting, Doing, Forking, ends, said


async def test_a_two_step_worker_is_last_in_its_second_step(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(2))
    task = await runner.create_task("q")
    outputs = [await runner.run_step(task), await runner.run_step(task)]
    assert [output.output["count"] for output in outputs] == [1, 2]
    assert [output.is_last for output in outputs] == [False, True]


async def test_steps_run_first_in_first_out(make_runner: MakeRunner) -> None:
    plan = {"start": ["a", "b", "c"], "a": ["d"]}
    runner = await make_runner(worker=Forking(plan, last="d"))
    task = await runner.create_task("q")
    order = [(await runner.run_step(task)).output for _ in range(5)]
    assert order == ["start", "a", "b", "c", "d"]


async def test_without_a_queued_step_run_step_says_so(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(1))
    task = await runner.create_task("q")
    await runner.run_step(task)
    with pytest.raises(NoUpcomingStepsError, match="no upcoming steps"):
        await runner.run_step(task)
    with pytest.raises(IndexError):
        await runner.run_step(task)


async def test_a_streamed_step_asks_an_answered_task_its_next_question(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("Paris.")
    model.reply("2 million.")
    task = await runner.create_task("What is the capital of France?")
    await runner.run_step(task)
    stream = runner.stream_step(task, input="How many live there?")
    assert str(await stream.result()) == "2 million."


async def test_run_task_runs_the_next_question_to_its_answer(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(2))
    task = await runner.create_task("q")
    assert (await runner.run_task(task)).is_last
    assert not (await runner.run_step(task, input="and then?")).is_last
    assert (await runner.run_task(task)).is_last
    assert (await runner.get_task(task)).steps == 4


async def test_an_input_for_a_step_leaves_the_input_of_the_task(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(3))
    task = await runner.create_task("q")
    first = await runner.run_step(task, input="x")
    second = await runner.run_step(task)
    third = await runner.run_step(task, input="z")
    assert [o.output["input"] for o in (first, second, third)] == ["x", None, "z"]
    assert (await runner.get_task(task)).input == "q"


async def test_an_input_in_mid_task_joins_the_scratch_and_not_the_session(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    runner = await make_runner(look)
    model.call("look")
    model.reply("done")
    task = await runner.create_task("q", session="s")
    await runner.run_step(task)
    await runner.run_step(task, input="steer")
    assert model.requests[1].last_user == "steer"
    assert await runner.session("s").chat_history() == []


async def test_a_step_output_knows_its_step_and_its_text(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner()
    model.reply("the answer")
    task = await runner.create_task("q")
    [upcoming] = await runner.get_upcoming_steps(task)
    output = await runner.run_step(task)
    assert output.task_step == upcoming
    assert str(output) == "the answer"


async def test_a_task_without_a_completed_step_has_no_output(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    with pytest.raises(StepNotFoundError, match="No completed steps for task_id"):
        await runner.get_task_output(task)
    ran = await runner.run_step(task)
    assert await runner.get_task_output(task) == ran


async def test_a_completed_step_is_found_by_its_id(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    ran = await runner.run_step(task)
    assert await runner.get_completed_step(task, ran.task_step) == ran
    assert await runner.get_completed_step(task, ran.task_step.step_id) == ran
    with pytest.raises(StepNotFoundError, match="Could not find step_id: nope"):
        await runner.get_completed_step(task, "nope")


async def test_input_and_step_together_are_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    [step] = await runner.get_upcoming_steps(task)
    with pytest.raises(ValueError, match="Cannot specify both `step` and `input`"):
        await runner.run_step(task, input="x", step=step)


async def test_a_step_of_another_type_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    wrong: Any = 7
    with pytest.raises(InvalidArgumentError, match="step must be TaskStep"):
        await runner.run_step(task, step=wrong)


async def test_an_unknown_step_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    with pytest.raises(StepNotFoundError, match=r"'?nope'?"):
        await runner.run_step(task, step="nope")
    assert (await runner.run_step(task)).output["count"] == 1


async def test_a_queued_step_can_be_run_before_others_and_then_not_again(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Forking({"start": ["a", "b", "c"]}))
    task = await runner.create_task("q")
    await runner.run_step(task)
    steps = {step.step_id: step for step in await runner.get_upcoming_steps(task)}
    assert (await runner.run_step(task, step=steps["c"])).output == "c"
    with pytest.raises(StepNotFoundError):
        await runner.run_step(task, step="c")
    assert [(await runner.run_step(task)).output for _ in range(2)] == ["a", "b"]


async def test_one_step_asked_for_twice_at_once_runs_once_and_no_other_in_its_place(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Forking({"start": ["a", "b", "c"]}))
    task = await runner.create_task("q")
    await runner.run_step(task)
    results = await asyncio.gather(
        *(runner.run_step(task, step="b") for _ in range(3)), return_exceptions=True
    )
    ran = [each.output for each in results if isinstance(each, TaskStepOutput)]
    refused = [each for each in results if isinstance(each, BaseException)]
    assert ran == ["b"]
    assert all(isinstance(each, StepNotFoundError) for each in refused)
    assert [step.step_id for step in await runner.get_upcoming_steps(task)] == ["a", "c"]


async def test_a_step_that_raises_stays_first_with_its_error_and_can_be_run_again(
    make_runner: MakeRunner,
) -> None:
    broken = True

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if broken:
            raise KeyError("a bug in the worker")
        return ends(step, "healed")

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    [upcoming] = await runner.get_upcoming_steps(task)
    with pytest.raises(StepFailedError, match="a bug in the worker") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "KeyError"
    found = await runner.get_task(task)
    assert found.status == "needs_attention"
    assert "a bug in the worker" in found.error
    assert await runner.get_upcoming_steps(task) == [upcoming]
    broken = False
    assert (await runner.run_step(task)).output == "healed"
    assert (await runner.get_task(task)).error == ""


async def test_a_failed_step_can_be_run_again_by_its_name(make_runner: MakeRunner) -> None:
    broken = True

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if broken:
            raise KeyError("a bug")
        return ends(step, "healed")

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    [failed] = await runner.get_upcoming_steps(task)
    broken = False
    assert (await runner.run_step(task, step=failed)).output == "healed"


async def test_another_step_does_not_run_in_the_place_of_a_failed_one(
    make_runner: MakeRunner,
) -> None:
    broken = True

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.input == "q":
            return TaskStepOutput(
                output="start",
                task_step=step,
                next_steps=(TaskStep(step_id="a"), TaskStep(step_id="b")),
            )
        if broken and step.step_id == "a":
            raise KeyError("a bug")
        return TaskStepOutput(output=step.step_id, task_step=step)

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    await runner.run_step(task)
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    broken = False
    with pytest.raises(InvalidArgumentError, match="'a'"):
        await runner.run_step(task, step="b")
    assert [(await runner.run_step(task)).output for _ in range(2)] == ["a", "b"]


async def test_a_failed_step_does_not_pay_for_answered_model_calls_again(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    broken = True

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        first = await ctx.call_model()
        second = await ctx.call_model([*ctx.messages, assistant(first.text)])
        if broken:
            raise RuntimeError("after two answers")
        return ends(step, [first.text, second.text])

    runner = await make_runner(worker=Doing(body))
    model.reply("one")
    model.reply("two")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="after two answers"):
        await runner.run_step(task)
    broken = False
    output = await runner.run_step(task)
    assert output.output == ["one", "two"]
    assert output.usage.requests == 2
    assert (await runner.get_task(task)).usage.requests == 2
    assert len(model.requests) == 2


async def test_a_step_that_returns_something_else_parks_with_a_clear_text(
    make_runner: MakeRunner,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> Any:
        return "not an output"

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match=r"Doing.run_step returned str"):
        await runner.run_step(task)


async def test_an_output_that_is_not_json_parks_with_a_clear_text(make_runner: MakeRunner) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return ends(step, object())

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError, match="cannot be stored as JSON"):
        await runner.run_step(task)


async def test_code_changed_in_mid_step_parks_and_restart_begins_the_step_anew(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    question = "old"
    broken = True

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(assistant(question))
        answer = await ctx.call_model()
        if broken:
            raise RuntimeError("stopped in mid-step")
        return ends(step, answer.text)

    runner = await make_runner(worker=Doing(body))
    model.reply("to old")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    question, broken = "new", False
    with pytest.raises(StepFailedError, match="changed in mid-step") as caught:
        await runner.run_step(task)
    assert type(caught.value).__name__ == "StepCodeChangedError"
    assert (await runner.get_task(task)).status == "needs_attention"
    model.reply("to new")
    assert (await runner.run_step(task, restart="step")).output == "to new"
    assert len(model.requests) == 2


async def test_code_put_back_goes_on_without_a_second_payment(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    question = "old"
    broken = True

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(assistant(question))
        answer = await ctx.call_model()
        if broken:
            raise RuntimeError("stopped in mid-step")
        return ends(step, answer.text)

    runner = await make_runner(worker=Doing(body))
    model.reply("to old")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    question, broken = "new", False
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    question = "old"
    assert (await runner.run_step(task)).output == "to old"
    assert len(model.requests) == 1


async def test_restart_of_a_step_that_has_not_failed_is_refused(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting())
    task = await runner.create_task("q")
    with pytest.raises(InvalidArgumentError, match="restart"):
        await runner.run_step(task, restart="step")


async def test_one_request_id_runs_one_step_and_both_senders_get_its_output(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Counting(3))
    task = await runner.create_task("q")
    one, two = await asyncio.gather(
        runner.run_step(task, request_id="r1"), runner.run_step(task, request_id="r1")
    )
    later = await runner.run_step(task, request_id="r1")
    assert one == two == later
    assert [o.output["count"] for o in await runner.get_completed_steps(task)] == [1]


async def test_concurrent_run_steps_are_served_one_after_the_other(
    make_runner: MakeRunner,
) -> None:
    inside = 0

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0.02)
        inside -= 1
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    outputs = await asyncio.gather(*(runner.run_step(task) for _ in range(6)))
    assert sorted(output.output for output in outputs) == [1, 2, 3, 4, 5, 6]


async def test_a_step_without_successor_stalls_a_run_with_a_typed_error(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Forking({}))
    task = await runner.create_task("q")
    with pytest.raises(StalledTaskError, match="is_last"):
        await runner.run_task(task)
    with pytest.raises(StalledTaskError, match="is_last"):
        await runner.run_task(task)
    assert (await runner.get_task(task)).status == "needs_attention"


async def test_a_stalled_chat_is_a_typed_error(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Forking({}))
    with pytest.raises(StalledTaskError):
        await runner.chat("q")


async def test_run_task_goes_on_by_itself_and_gives_the_last_output(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner(worker=Counting(4))
    task = await runner.create_task("q")
    await runner.run_step(task)
    output = await runner.run_task(task)
    assert (output.output["count"], output.is_last) == (4, True)
    assert await runner.run_task(task) == output


async def test_an_automatic_task_needs_no_caller(make_runner: MakeRunner) -> None:
    runner = await make_runner(worker=Counting(3))
    task = await runner.create_task("q", step_mode="automatic")
    assert (await until_status(runner, task, "answered")).steps == 3


async def test_a_caller_that_dies_finds_the_answer_by_the_task_id(make_runner: MakeRunner) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        begun.set()
        await gate.wait()
        return ends(step, "late")

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    caller = asyncio.create_task(runner.run_task(task))
    await begun.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    gate.set()
    assert (await runner.run_task(task.task_id)).output == "late"
    assert str(await runner.finalize_response(task)) == "late"


async def test_a_caller_that_dies_in_a_step_gets_its_output_at_the_next_call_and_no_other_step(
    make_runner: MakeRunner,
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        begun.set()
        await gate.wait()
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    caller = asyncio.create_task(runner.run_step(task, request_id="mine"))
    await begun.wait()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    gate.set()
    assert (await runner.run_step(task, request_id="mine")).output == 1
    assert [o.output for o in await runner.get_completed_steps(task)] == [1]


async def test_a_worker_edited_between_steps_goes_on_with_the_new_code(
    rig: Rig, make_agent: MakeAgent
) -> None:
    runner = rig.runner()
    await rig.serve(make_agent(worker=Counting(5)))
    task = await runner.create_task("q")
    await runner.run_step(task)
    await rig.serve(make_agent(worker=Counting(2)))
    assert (await runner.run_step(task)).is_last


async def test_completed_outputs_are_the_same_after_the_worker_was_restarted(
    rig: Rig, make_agent: MakeAgent
) -> None:
    runner = rig.runner()
    await rig.serve(make_agent(worker=Counting(5)))
    task = await runner.create_task("q")
    before = [await runner.run_step(task), await runner.run_step(task)]
    await rig.serve(make_agent(worker=Counting(5)))
    assert await runner.get_completed_steps(task) == before


async def test_steps_are_the_same_when_every_workflow_task_is_replayed(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    await rig.serve(make_agent(add), max_cached_workflows=0)
    runner = rig.runner()
    model.calls([("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})])
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.run_step(task)
    assert said(await runner.transcript(task)) == [
        ("user", "q"),
        ("assistant", ""),
        ("tool", "3"),
        ("tool", "7"),
        ("assistant", "done"),
    ]


async def test_a_next_step_with_an_empty_state_starts_from_nothing(
    make_runner: MakeRunner,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        following = step.get_next_step(step_state={} if ctx.n == 2 else {"n": ctx.n})
        return TaskStepOutput(output=step.step_state, task_step=step, next_steps=(following,))

    runner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q")
    assert [(await runner.run_step(task)).output for _ in range(3)] == [{}, {"n": 1}, {}]


async def test_the_context_state_is_kept_between_steps_and_shown_with_the_task(
    make_runner: MakeRunner,
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.state.setdefault("seen", []).append(ctx.n)
        return TaskStepOutput(
            output=list(ctx.state["seen"]), task_step=step, next_steps=(step.get_next_step(),)
        )

    runner: AgentRunner = await make_runner(worker=Doing(body))
    task = await runner.create_task("q", extra_state={"kept": True})
    assert [(await runner.run_step(task)).output for _ in range(2)] == [[1], [1, 2]]
    assert (await runner.get_task(task)).extra_state == {"kept": True, "seen": [1, 2]}
