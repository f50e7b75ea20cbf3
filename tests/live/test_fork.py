"""Fork: a new task from any step of an old one, which is not touched."""

from typing import Any

import pytest

from holdfast import (
    AgentRunner,
    RunConfig,
    Runner,
    Task,
    TaskStep,
    TaskStepOutput,
    ToolContext,
    tool,
)
from holdfast.agents.guardrails import GuardrailFunctionOutput, output_guardrail
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import (
    InvalidArgumentError,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    StepNotFoundError,
    TaskExistsError,
    TaskNotFoundError,
)
from holdfast.testing import FakeOpenAI, call
from holdfast.values.messages import assistant
from holdfast.values.settings import Budget
from holdfast.workers import StepContext
from tests.support.rig import Rig, World, forget, histories, until_status
from tests.support.workers import Doing, said

PAST = ("step", "tool_call", "model_call")


@pytest.fixture
def act(world: World) -> Tool:
    """A tool that counts."""

    @tool
    async def act(ctx: ToolContext, thing: str) -> str:
        """Act."""
        world.done.append(thing)
        world.keys.append(ctx.idempotency_key)
        ctx.state["things"] = [*ctx.state.get("things", []), thing]
        return f"acted on {thing}"

    return act


async def two_steps(runner: AgentRunner, model: FakeOpenAI, **options: Any) -> Task:
    """Make a task that has acted on a and b; its next step would answer."""
    model.add(call("act", {"thing": "a"}), call("act", {"thing": "b"}))
    task = await runner.create_task("q", **options)
    for _ in range(2):
        await runner.run_step(task)
    return task


async def everything(runner: AgentRunner, task: Task) -> tuple[Any, ...]:
    """Return all that can be read of a task."""
    return (
        await runner.get_task(task),
        await runner.ledger(task),
        await runner.get_upcoming_steps(task),
    )


async def test_a_fork_of_a_running_task_runs_on_and_the_source_is_untouched(
    rig: Rig, act: Tool
) -> None:
    runner = await rig.make(act)
    task = await two_steps(runner, rig.model, extra_state={"n": 1})
    before = await everything(runner, task)
    outputs = await runner.get_completed_steps(task)
    fork = await runner.fork(task, at=outputs[0], by="ann", feedback="be brief")
    assert (fork.steps, fork.extra_state) == (1, {"n": 1, "things": ["a"]})
    found = await runner.get_task(fork)
    assert (found.steps, found.extra_state, found.input) == (1, fork.extra_state, "q")
    assert found.status == "running"
    assert [m.text for m in await runner.transcript(fork)] == ["q", "", "acted on a"]
    shared = await runner.get_completed_steps(fork)
    assert [(o.output, str(o.sources[0])) for o in shared] == [("", "acted on a")]
    events = await runner.audit(fork)
    [mark] = [e for e in events if e.kind == "forked"]
    assert (mark.actor, mark.body) == ("ann", {"from": task.task_id, "at": 1})
    own = [e for e in await runner.audit(task) if e.step == "s1" and e.kind in PAST]
    assert [e for e in events if e.kind in PAST] == own
    rig.model.add(call("act", {"thing": "c"}), "of the fork")
    assert str(await runner.run_task(fork)) == "of the fork"
    assert rig.model.requests[-2].messages[-1].text == "be brief"
    assert rig.world.done == ["a", "b", "c"]
    assert await everything(runner, task) == before
    rig.model.reply("of the source")
    assert str(await runner.run_task(task)) == "of the source"
    assert all(m.text != "be brief" for m in rig.model.requests[-1].messages)
    assert (await runner.get_task(fork)).extra_state == {"n": 1, "things": ["a", "c"]}
    assert (await runner.get_task(task)).extra_state == {"n": 1, "things": ["a", "b"]}
    assert await runner.verify(fork) == []


async def test_a_fork_goes_on_with_another_input_or_agent_and_an_answered_one_needs_an_input(
    rig: Rig, act: Tool
) -> None:
    two = rig.agent(act, name="second", instructions="Second prompt.")
    runner = await rig.serving(rig.agent(act, instructions="First prompt."), two)
    task = await two_steps(runner, rig.model)
    fork = await runner.fork(task, at="s1", input="something else", agent="second")
    assert [s.input for s in await runner.get_upcoming_steps(fork)] == ["something else"]
    rig.model.reply("well")
    assert str(await runner.run_task(fork)) == "well"
    assert said(await runner.transcript(fork)) == [
        ("user", "q"),
        ("assistant", ""),
        ("tool", "acted on a"),
        ("user", "something else"),
        ("assistant", "well"),
    ]
    assert (await runner.get_task(fork)).agent == "second"
    assert "Second prompt." in str(rig.model.requests[-1].body)
    rig.model.reply("done")
    last = await runner.run_step(task)
    fork = await runner.fork(task, at=last)
    assert (await runner.get_task(fork)).status == "answered"
    assert str(await runner.finalize_response(fork)) == "done"
    with pytest.raises(StepNotFoundError):
        await runner.fork(task, at="s9")
    with pytest.raises(TaskNotFoundError):
        await runner.fork("nothing", at="s1")
    with pytest.raises(TaskExistsError):
        await runner.fork(task, at="s1", task_id=task.task_id)
    for text in (" ", "x" * 20_000):
        with pytest.raises(InvalidArgumentError):
            await runner.fork(task, at="s1", input=text)


async def test_a_fork_undoes_its_own_steps_and_leaves_the_shared_ones_to_the_source(
    rig: Rig,
) -> None:
    @tool(undo=lambda effect: rig.world.done.append(f"undo {effect.arguments['thing']}"))
    def act(thing: str) -> str:
        """Act."""
        rig.world.done.append(thing)
        return f"acted on {thing}"

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError

    runner = await rig.make(act, pay)
    task = await two_steps(runner, rig.model)
    fork = await runner.fork(task, at="s2")
    rig.model.call("act", {"thing": "c"})
    await runner.run_step(fork)
    rig.model.call("pay", {"amount": 5})
    assert (await runner.run_step(fork)).status == "waiting"
    with pytest.raises(InvalidArgumentError, match="only it may undo"):
        await runner.rewind(fork, to="s1")
    assert len((await runner.undo_step(fork)).steps) == 1  # the one in progress
    assert (await runner.undo_step(fork)).undone == ('act({"thing": "c"})',)
    with pytest.raises(InvalidArgumentError, match="only it may undo"):
        await runner.undo_step(fork)
    await runner.undo_step(task)
    assert rig.world.done == ["a", "b", "c", "undo c", "undo b"]


async def test_forks_of_finished_failed_and_abandoned_tasks(rig: Rig, act: Tool) -> None:
    runner = await rig.make(act)
    finished = await two_steps(runner, rig.model, session="s")
    rig.model.reply("done")
    await runner.run_task(finished)
    await runner.finalize_response(finished)
    abandoned = await two_steps(runner, rig.model)
    await runner.abandon(abandoned, "enough", by="ann")
    failed = await two_steps(runner, rig.model, budget=Budget(max_turns=2, on_exceeded="fail"))
    with pytest.raises(MaxTurnsExceeded):
        await runner.run_task(failed)
    for task, status in ((finished, "finished"), (abandoned, "abandoned"), (failed, "failed")):
        await until_status(runner, task, status)
        if status == "abandoned":
            await forget(runner, task)  # the archive keeps it
        before = await everything(runner, task)
        fork = await runner.fork(task, at="s2", input=f"after {status}")
        rig.model.reply(f"on from {status}")
        assert str(await runner.run_task(fork)) == f"on from {status}"
        assert await everything(runner, task) == before
        assert await runner.verify(fork) == []
    history = [m.text for m in await runner.session("s").chat_history()]
    assert "after finished" not in history


async def test_a_fork_over_archived_segments_and_a_fork_of_that_fork(rig: Rig) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.state["sum"] = ctx.state.get("sum", 0) + ctx.n
        ctx.add(assistant(f"step {ctx.n}"))
        return TaskStepOutput(output=ctx.n, task_step=step, next_steps=(step.get_next_step(),))

    runner = await rig.make(worker=Doing(body), roll_events=50)
    task = await runner.create_task("q")
    for _ in range(14):
        await runner.run_step(task)
    assert len(await histories(runner.client, task.task_id)) >= 2
    early = await runner.fork(task, at="s3")
    late = await runner.fork(task, at="s12")
    for fork, n in ((early, 3), (late, 12)):
        assert (await runner.get_task(fork)).extra_state == {"sum": sum(range(1, n + 1))}
        ran = [(await runner.run_step(fork)).output for _ in range(4)]
        assert ran[-1] == n + 4
        outputs = [o.output for o in await runner.get_completed_steps(fork)]
        assert outputs == list(range(1, n + 5))
        assert len(await runner.transcript(fork)) == n + 4
        assert await runner.verify(fork) == []
    second = await runner.fork(late, at="s14")
    assert (await runner.run_step(second)).output == 15
    assert len(await runner.transcript(second)) == 15
    assert (await runner.get_task(task)).steps == 14
    assert len((await runner.rewind(late, to="s12")).steps) == 4
    assert (await runner.get_task(late)).extra_state == {"sum": sum(range(1, 13))}
    assert (await runner.run_step(late)).output == 13


@output_guardrail
async def no_swearing(_context: Any, _agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, tripwire_triggered="damn" in str(output))


async def test_what_a_run_brought_along_holds_for_its_forks_too(rig: Rig) -> None:
    owners: list[str] = []

    @tool(effect="read")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        owners.append(ctx.context["owner"])
        return "looked"

    agent = rig.agent(look)
    runner = await rig.serving(agent)
    rig.model.add(call("look", {}), "fine")
    config = RunConfig(output_guardrails=[no_swearing], trace_id="trace_1", group_id="g")
    own: dict[str, Any] = {"runner": runner, "context": {"owner": "ann"}, "run_config": config}
    run = await Runner.run(agent, "q", max_turns=2, **own)
    fork = await runner.fork(run.task_id, at="s1")
    assert fork.budget == Budget(max_turns=2, on_exceeded="fail")
    assert (await runner.get_task(fork)).budget == fork.budget
    rules = (await runner.reader.head(fork.task_id)).run
    assert (rules.trace_id, rules.group_id) == ("", "g")
    rig.model.add(call("look", {}), "damn")
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await runner.run_task(fork)
    assert owners == ["ann", "ann"]
    other = await runner.fork(run.task_id, at="s1")
    for _ in range(2):  # its own: what the shared step took is paid already
        rig.model.call("look", {})
    with pytest.raises(MaxTurnsExceeded):
        await runner.run_task(other)
