"""Steps of users' own AgentWorkers that share an activity, beside the same ones that do not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import AgentRunner, Task, TaskStep, TaskStepOutput, ToolCall
from holdfast.activities.user_loop import user_loop
from holdfast.cli.following.history import TaskHistory
from holdfast.errors import HoldfastError, StepFailedError
from holdfast.testing import FakeOpenAI, Reply, hang, reply
from holdfast.values.messages import assistant, user
from holdfast.workers import StepContext
from tests.support.fast_steps import count_as_fast, look, looks
from tests.support.rig import MakeAgent, Rig, activities_of, assert_replays
from tests.support.workers import Body, Doing, ends

MODES = (1, 8)
ADVICE = "mind the gap"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every step as fast, on a machine of any speed; nothing is reported before the end."""
    count_as_fast(monkeypatch)


class Sharing(Doing):
    """Has so many steps of a task run by one activity."""

    def __init__(self, body: Body, most: int) -> None:
        super().__init__(body)
        self.steps_per_activity = most


async def call_tools(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Do what function calling does."""
    told = step.message()
    if told is not None:
        ctx.add(told)
    answer = await ctx.call_model()
    ctx.add(answer.message)
    if not answer.message.calls:
        return ends(step, answer.text)
    following = (step.get_next_step(),)
    calls = answer.message.calls
    return TaskStepOutput(output=answer.text, task_step=step, calls=calls, next_steps=following)


async def look_by_itself(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Look three times, without a model."""
    ctx.state["seen"] = [*ctx.state.get("seen", []), len(ctx.messages)]
    k = len(ctx.state["seen"])
    if k == 4:
        ctx.add(assistant("done"))
        return ends(step)
    call = ToolCall(id=f"call_{k}", name="look", arguments=json.dumps({"what": str(k)}))
    ctx.add(assistant("I look.", calls=(call,)))
    return TaskStepOutput(task_step=step, calls=(call,), next_steps=(step.get_next_step(),))


async def think_twice(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Make two model calls and a memo in the second step."""
    if step.step_id == "s2":
        aside = await ctx.call_model([user("aside")])
        ctx.add(user(await ctx.memo("kept", lambda: f"He said {aside.text}")))
    return await call_tools(step, ctx)


async def use_tools_in_midstep(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    output = await call_tools(step, ctx)
    if step.step_id != "s2":
        return output
    for result in await ctx.call_tools(output.calls):
        ctx.add(result.message)
    return output.model_copy(update={"calls": ()})


async def part_ways(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    output = await call_tools(step, ctx)
    if step.step_id == "s2":
        both = (step.get_next_step("x"), step.get_next_step("y"))
        return output.model_copy(update={"next_steps": both})
    return output.model_copy(update={"next_steps": ()}) if step.step_id == "x" else output


async def raise_after_the_answer(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    output = await call_tools(step, ctx)
    if step.step_id == "s2":
        raise ValueError(ADVICE)
    return output


async def raise_at_once(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    if step.step_id == "s2":
        raise ValueError(ADVICE)
    return await call_tools(step, ctx)


async def return_nonsense(step: TaskStep, ctx: StepContext) -> Any:
    return 17 if step.step_id == "s2" else await call_tools(step, ctx)


@asynccontextmanager
async def serving(
    rig: Rig, make_agent: MakeAgent, body: Body, most: int, replies: Sequence[Reply | str]
) -> AsyncGenerator[tuple[AgentRunner, FakeOpenAI]]:
    """Serve an agent whose model is an API of its own: ids of answers are those of each mode."""
    from holdfast.models.openai.responses import ResponsesModel

    with FakeOpenAI() as api:
        async with api.client() as client:
            gpt = ResponsesModel("gpt-5-mini", client=client)
            await rig.serve(make_agent(look, worker=Sharing(body, most), model=gpt))
            api.add(*replies)
            yield rig.runner(), api
            await rig.stop()


async def kept(runner: AgentRunner, task: Task, api: FakeOpenAI) -> list[Any]:
    """Return all that is kept of a task, but for times and names."""
    found = await runner.get_task(task)
    audit = [
        (e.kind, e.step, e.tool, e.arguments, e.result, e.status, e.attempts, e.tokens)
        for e in await runner.audit(task)
    ]
    steps = await runner.get_completed_steps(task)
    assert await runner.verify(task) == []
    await assert_replays(runner, task)
    return [
        audit,
        [(each.task_step.step_id, each.output, each.is_last) for each in steps],
        [step.step_id for step in await runner.get_upcoming_steps(task)],
        [(m.role, m.text, m.call_id) for m in await runner.transcript(task)],
        [[(m.role, m.text) for m in request.messages] for request in api.requests],
        (found.status, found.usage, found.extra_state),
    ]


async def ran(runner: AgentRunner, task: Task) -> str:
    """Run a task; return its output or why it failed."""
    try:
        return str(await runner.run_task(task))
    except HoldfastError as error:
        return str(error).replace(task.task_id, "")


@pytest.mark.parametrize(
    ("body", "script", "saved"),
    [
        (call_tools, "abc!", 3),
        (look_by_itself, "", 3),
        (think_twice, "a!bc!", 2),
        (use_tools_in_midstep, "abc!", 2),
        (part_ways, "abcd!", 1),
        (raise_after_the_answer, "ab", 1),
        (raise_at_once, "a", 1),
        (return_nonsense, "a", 1),
    ],
)
async def test_steps_of_a_users_own_worker_are_recorded_as_by_themselves(
    rig: Rig, make_agent: MakeAgent, body: Body, script: str, saved: int
) -> None:
    found: list[Any] = []
    activities: list[int] = []
    for most in MODES:
        replies = [reply("done") if each == "!" else looks(each) for each in script]
        async with serving(rig, make_agent, body, most, replies) as (runner, api):
            task = await runner.create_task("q")
            said = await ran(runner, task)
            found.append([said, *await kept(runner, task, api)])
            activities.append(len(await activities_of(runner.client, task.task_id)))
    assert found[0] == found[1]
    assert activities[0] - activities[1] == saved


async def undo_two(runner: AgentRunner, task: Task) -> Task:
    for _ in range(2):
        await runner.undo_step(task, by="ann", reason=ADVICE)
    return task


async def rewind(runner: AgentRunner, task: Task) -> Task:
    await runner.rewind(task, "s2", by="ann", reason=ADVICE)
    return task


async def fork(runner: AgentRunner, task: Task) -> Task:
    return await runner.fork(task, "s2")


@pytest.mark.parametrize("go_back", [undo_two, rewind, fork])
async def test_one_can_go_back_to_a_further_step(
    rig: Rig, make_agent: MakeAgent, go_back: Callable[[AgentRunner, Task], Awaitable[Task]]
) -> None:
    found: list[Any] = []
    for most in MODES:
        replies = [*map(looks, "abc"), reply("done"), looks("d"), reply("done again")]
        async with serving(rig, make_agent, call_tools, most, replies) as (runner, api):
            task = await runner.create_task("q")
            assert await ran(runner, task) == "done"
            other = await go_back(runner, task)
            before = await kept(runner, other, api)
            assert await ran(runner, other) == "done again"
            found.append([before, await kept(runner, other, api)])
    assert found[0] == found[1]


@pytest.mark.parametrize("tools", [(), (look,)], ids=["without its tool", "with another worker"])
async def test_code_that_was_changed_meanwhile_runs_the_step_that_was_lost(
    rig: Rig, make_agent: MakeAgent, tools: Sequence[Any]
) -> None:
    found: list[Any] = []
    for most in MODES:
        replies = [looks("a"), hang(looks("b")), looks("b"), *([reply("done")] if tools else [])]
        async with serving(rig, make_agent, call_tools, most, replies) as (runner, api):
            task = await runner.create_task("q")
            running = asyncio.create_task(ran(runner, task))
            await api.until_held()
            async with api.client() as client:
                from holdfast.models.openai.responses import ResponsesModel

                gpt = ResponsesModel("gpt-5-mini", client=client)
                await rig.serve(make_agent(*tools, model=gpt))
                api.release()
                said = await running
                found.append([said, *await kept(runner, task, api)])
                await rig.stop()
    assert found[0] == found[1]
    assert ("look not found" in found[0][0]) == (not tools)


async def test_a_signal_that_a_further_step_causes_is_heard_by_the_next_one(
    rig: Rig, make_agent: MakeAgent
) -> None:
    async def signal(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        output = await call_tools(step, ctx)
        if step.step_id == "s2":
            handle = rig.engine.client.get_workflow_handle(ctx.task_id)
            await handle.signal("feedback", {"text": ADVICE, "by": "ann"})
        return output

    replies = [*map(looks, "abc"), reply("done")]
    async with serving(rig, make_agent, signal, 8, replies) as (runner, api):
        task = await runner.create_task("q")
        assert await ran(runner, task) == "done"
        assert [each.holds(ADVICE) for each in api.requests] == [False, False, True, True]
        ran_activities = await activities_of(runner.client, task.task_id)
        assert ran_activities == ["describe", "step", "step"]


async def test_the_command_line_names_the_further_step_whose_code_blocks(
    rig: Rig, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_loop, "BLOCKED_SECONDS", 0.3)
    monkeypatch.setattr(user_loop, "GIVEN_UP_SECONDS", 1.0)
    door = threading.Event()

    async def block(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.step_id == "s2":
            door.wait()
        return await look_by_itself(step, ctx)

    try:
        await rig.serve(make_agent(look, worker=Sharing(block, 8)), own_loop=True)
        runner = rig.runner()
        task = await runner.create_task("q")
        with pytest.raises(StepFailedError, match=r"Step 's2' .* blocked the event loop"):
            await runner.run_task(task)
        history = TaskHistory(runner.client, task.task_id)
        found = [(e.kind, e.step) async for e in history.read(wait=False) if "block" in e.text]
        assert found == [("retried", 2), ("failed", 2)]
    finally:
        door.set()
