"""Settings that are given with the state of a run hold for it from then on, wherever it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    GuardrailFunctionOutput,
    ModelSettings,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    UserError,
    output_guardrail,
    tool,
)
from holdfast.errors import ModelBehaviorError
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.code import code_refs
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import Runs, look, outputs, tools


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


def named() -> dict[str, int]:
    """Say what code this process has named, and how often."""
    return dict(code_refs._uses)  # pyright: ignore[reportPrivateUsage]


def says(what: str) -> Any:
    """Make a formatter of tool errors."""

    def words(args: Any) -> str:
        return f"{what}: {args.kind} {args.tool_name}"

    return words


def words(args: Any) -> str:
    """Word a tool error, in any process."""
    return f"named: {args.kind} {args.tool_name}"


@tool(effect="read")
def here() -> str:
    """Belong to an agent, so that workers look for code in this module."""
    return "here"


class Provider:
    """Makes models of names."""

    def get_model(self, name: str) -> ScriptedModel:
        """Make one."""
        return ScriptedModel([f"of {name}"])


def gives(what: Any) -> Any:
    """Make an error handler."""

    def answers(_: Any) -> Any:
        return what

    return answers


async def paused(run: Runs, model: FakeOpenAI, *others: Any, **options: Any) -> RunState:
    """Begin a run that waits for a person, and reject its call."""
    _, pay = tools()
    model.call("pay", {"to": "ann"})
    state: RunState = (await run("q", pay, *others, **options)).to_state()
    state.reject(state.get_interruptions()[0])
    return state


async def changes(run: Runs, task_id: str) -> list[tuple[str, str, Any]]:
    """Return who has given a task which settings anew, and what became of it, oldest first."""
    events = await run.runner.audit(task_id)
    found = [event for event in events if event.verb == "configure"]
    return [(each.actor, each.kind, each.body["arguments"]["names"]) for each in found]


@pytest.mark.parametrize(("before", "streams"), [(None, True), (says("old"), False)])
async def test_a_formatter_given_with_a_state_words_what_the_state_rejects(
    run: Runs, model: FakeOpenAI, before: Any, *, streams: bool
) -> None:
    state = await paused(run, model, run_config=RunConfig(tool_error_formatter=before))
    model.reply("sorry")
    config = RunConfig(tool_error_formatter=says("new"))
    if streams:
        assert run.agent is not None
        made = Runner.run_streamed(run.agent, state, runner=run.runner, run_config=config, by="kim")
        result: Any = await made.result()
    else:
        result = await run(state, run_config=config, by="kim")
    assert result.final_output == "sorry"
    assert outputs(result) == ["new: approval_rejected pay"]
    assert await changes(run, state.task_id) == [("kim", "command", ["tool_error_formatter"])]


async def test_a_state_that_is_run_again_with_the_same_settings_changes_nothing(
    run: Runs, model: FakeOpenAI
) -> None:
    state = await paused(run, model)
    undecided = RunState.of(state.task_id)
    config = RunConfig(
        tool_error_formatter=says("new"), model_settings=ModelSettings(temperature=0.5)
    )
    names = ["model_settings", "tool_error_formatter"]
    for _ in range(2):
        assert (await run(undecided, run_config=config)).interruptions
        assert await changes(run, state.task_id) == [("Runner", "command", names)]
    model.reply("sorry")
    assert outputs(await run(state, run_config=config)) == ["new: approval_rejected pay"]
    over = await run(state, run_config=RunConfig(tool_error_formatter=says("late")))
    assert outputs(over) == ["new: approval_rejected pay"]
    assert await changes(run, state.task_id) == [("Runner", "command", names)]
    assert model.requests[-1].body["temperature"] == 0.5


async def test_an_error_handler_given_with_a_state_answers(run: Runs, model: FakeOpenAI) -> None:
    state = await paused(run, model, max_turns=1)
    result = await run(state, error_handlers={"max_turns": gives("enough")}, max_turns=7)
    assert result.final_output == "enough"
    assert await changes(run, state.task_id) == [("Runner", "command", ["error_handlers"])]


async def test_a_filter_given_with_a_state_serves_the_next_model_call(
    run: Runs, model: FakeOpenAI
) -> None:
    def adds(data: Any) -> Any:
        data.model_data.instructions = "be brief"
        return data.model_data

    state = await paused(run, model)
    model.reply("sorry")
    config = RunConfig(call_model_input_filter=adds)
    assert (await run(state, run_config=config)).final_output == "sorry"
    assert model.requests[1].instructions == "be brief"


async def test_a_model_and_its_provider_given_with_a_state_answer(
    run: Runs, model: FakeOpenAI
) -> None:
    state = await paused(run, model)
    config = RunConfig(model="another", model_provider=Provider())
    result = await run(state, run_config=config)
    assert result.final_output == "of another"


async def test_a_lost_tool_is_told_to_the_model_once_a_state_says_so(
    run: Runs, model: FakeOpenAI
) -> None:
    ran, pay = tools()
    model.calls([("pay", {"to": "ann"}), ("look", {})])
    state = (await run("q", pay, look)).to_state()
    state.approve(state.get_interruptions()[0])
    await run.serve(look)
    with pytest.raises(ModelBehaviorError):
        await run(state)
    model.reply("sorry")
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    result = await run(RunState.of(state.task_id), run_config=config)
    assert (result.final_output, ran) == ("sorry", [])
    assert outputs(result) == ["Tool 'pay' not found.", "seen here"]


async def test_a_nested_run_has_what_its_caller_was_given(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    _, pay = tools()
    helper = make_agent(pay, name="helper")
    run = Runs(rig, make_agent)
    model.call("helper", {"input": "q"})
    model.calls([("pay", {"to": "ann"}), ("pay", {"to": "bob"})])
    state = (await run("q", helper.as_tool())).to_state()
    one, two = state.get_interruptions()
    state.reject(one)
    config = RunConfig(tool_error_formatter=says("new"))
    rest = (await run(state, run_config=config)).to_state()
    await run.runner.reject(two.approval_id, "kim", "")
    model.reply("sorry")
    model.reply("done")
    assert (await run(rest)).final_output == "done"
    assert list(model.requests[2].results.values()) == ["new: approval_rejected pay"] * 2


async def test_a_fork_and_a_new_run_of_the_workflow_have_what_was_given(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    run = Runs(rig, make_agent)
    run.runner = rig.runner(roll_events=10)
    state = await paused(run, model, here)
    model.call("pay", {"to": "bob"})
    config = RunConfig(tool_error_formatter=words)
    later = (await run(state, run_config=config)).to_state()
    [step] = await run.runner.get_completed_steps(state.task_id)
    later.reject(later.get_interruptions()[0])
    model.reply("sorry")
    assert outputs(await run(later)) == ["named: approval_rejected pay"] * 2
    fork = await run.runner.fork(state.task_id, at=step)
    model.call("pay", {"to": "cid"})
    await run.runner.run_on(fork)
    [asked] = await run.runner.pending_approvals(fork)
    await run.runner.reject(asked, "kim", "")
    model.reply("sorry")
    result = await run(RunState.of(fork.task_id))
    assert outputs(result)[-1] == "named: approval_rejected pay"


async def test_code_in_whose_place_other_code_was_given_is_let_go(
    run: Runs, model: FakeOpenAI
) -> None:
    before = named()
    state = await paused(run, model, run_config=RunConfig(tool_error_formatter=says("one")))
    began = len(named())
    for what in ("two", "three", "three"):
        config = RunConfig(tool_error_formatter=says(what))
        await run(RunState.of(state.task_id), run_config=config)
        assert len(named()) == began
    model.reply("sorry")
    assert outputs(await run(state)) == ["three: approval_rejected pay"]
    assert named() == before


async def test_a_task_that_runs_on_elsewhere_takes_the_settings_for_what_it_begins_then(
    run: Runs, model: FakeOpenAI
) -> None:
    goes, held = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        held.set()
        await goes.wait()
        return "waited"

    _, pay = tools()
    model.call("wait", {})
    model.call("pay", {"to": "ann"})
    first = asyncio.create_task(run("q", wait, pay, task_id=f"{run.rig.app}-w"))
    await held.wait()
    config = RunConfig(tool_error_formatter=says("new"))
    second = asyncio.create_task(run(RunState.of(f"{run.rig.app}-w"), run_config=config))
    while not await changes(run, f"{run.rig.app}-w"):
        await asyncio.sleep(0.02)
    goes.set()
    state = (await first).to_state()
    assert (await second).interruptions
    state.reject(state.get_interruptions()[0])
    model.reply("sorry")
    assert outputs(await run(state)) == ["waited", "new: approval_rejected pay"]


async def test_a_session_keeps_the_blocked_text_that_a_state_was_given_with(
    run: Runs, model: FakeOpenAI
) -> None:
    @output_guardrail
    def stops(_: Any, __: Any, ___: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    _, pay = tools()
    session = run.runner.session("s")
    model.calls([("pay", {"to": "ann"})])
    config = RunConfig(output_guardrails=[stops])
    agent = await run.serve(pay, tool_use_behavior="stop_on_first_tool")
    state = (await run("q", session=session, run_config=config)).to_state()
    state.approve(state.get_interruptions()[0])
    assert agent is run.agent
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await run(state, run_config=RunConfig(output_guardrail_blocked_message="kept back"))
    results = [each["output"] for each in await session.get_items() if "output" in each]
    assert results == ["kept back"]


async def test_an_undo_takes_no_settings_back(run: Runs, model: FakeOpenAI) -> None:
    state = await paused(run, model)
    model.call("pay", {"to": "bob"})
    config = RunConfig(tool_error_formatter=says("new"))
    await run(state, run_config=config)
    await run.runner.undo_step(state.task_id, by="kim")
    model.call("pay", {"to": "cid"})
    later = (await run(RunState.of(state.task_id))).to_state()
    later.reject(later.get_interruptions()[0])
    model.reply("sorry")
    assert outputs(await run(later))[-1] == "new: approval_rejected pay"


async def test_a_filter_of_handoffs_is_refused_where_the_provider_keeps_the_conversation(
    run: Runs, model: FakeOpenAI
) -> None:
    before = named()
    state = await paused(run, model, conversation_id="conv")
    began = named()
    config = RunConfig(handoff_input_filter=lambda data: data)
    with pytest.raises(UserError, match="Leave it out"):
        await run(state, run_config=config)
    assert named() == began
    model.reply("sorry")
    assert (await run(state)).final_output == "sorry"
    assert named() == before


async def test_the_run_after_a_finished_one_has_the_turns_that_were_left(
    run: Runs, model: FakeOpenAI
) -> None:
    agent = await run.serve(look)
    model.reply("first")
    state = (await run("q", max_turns=2)).to_state()
    state = await RunState.from_string(agent, state.to_string())
    model.call("look", {})
    handlers = {"max_turns": gives("enough")}
    result = await run(state, error_handlers=handlers)
    assert (result.final_output, len(model.requests)) == ("enough", 2)
    further = result.to_state()
    further.add_input("go on")
    model.reply("second")
    assert (await run(further, max_turns=1)).final_output == "second"
