"""Settings that are given with the state of a run hold for it from then on, wherever it runs."""

import asyncio
import json
from typing import Any

import pytest

from holdfast import (
    AgentRunner,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    UserError,
    tool,
)
from holdfast.testing import call
from holdfast.values.code import code_refs
from tests.support.rig import Rig
from tests.support.runs import Runs, look, outputs, tools


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


async def paused(run: Runs, *others: Any, **options: Any) -> RunState:
    """Begin a run that waits for a person, and reject its call."""
    _, pay = tools()
    run.model.call("pay", {"to": "ann"})
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
    run: Runs, before: Any, *, streams: bool
) -> None:
    state = await paused(run, run_config=RunConfig(tool_error_formatter=before))
    run.model.reply("sorry")
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


async def test_a_state_that_is_run_again_with_the_same_settings_changes_nothing(run: Runs) -> None:
    state = await paused(run)
    undecided = RunState.of(state.task_id)
    config = RunConfig(
        tool_error_formatter=says("new"), model_settings=ModelSettings(temperature=0.5)
    )
    names = ["model_settings", "tool_error_formatter"]
    for _ in range(2):
        assert (await run(undecided, run_config=config)).interruptions
        assert await changes(run, state.task_id) == [("Runner", "command", names)]
    run.model.reply("sorry")
    assert outputs(await run(state, run_config=config)) == ["new: approval_rejected pay"]
    over = await run(state, run_config=RunConfig(tool_error_formatter=says("late")))
    assert outputs(over) == ["new: approval_rejected pay"]
    assert await changes(run, state.task_id) == [("Runner", "command", names)]
    assert run.model.requests[-1].body["temperature"] == 0.5


async def test_a_fork_and_a_new_run_of_the_workflow_have_what_was_given(rig: Rig) -> None:
    run = Runs(rig)
    run.runner = rig.runner(roll_events=10)
    state = await paused(run, here)
    rig.model.call("pay", {"to": "bob"})
    config = RunConfig(tool_error_formatter=words)
    later = (await run(state, run_config=config)).to_state()
    [step] = await run.runner.get_completed_steps(state.task_id)
    later.reject(later.get_interruptions()[0])
    rig.model.reply("sorry")
    assert outputs(await run(later)) == ["named: approval_rejected pay"] * 2
    fork = await run.runner.fork(state.task_id, at=step)
    rig.model.call("pay", {"to": "cid"})
    await run.runner.run_on(fork)
    [asked] = await run.runner.pending_approvals(fork)
    await run.runner.reject(asked, "kim", "")
    rig.model.reply("sorry")
    assert outputs(await run(RunState.of(fork.task_id)))[-1] == "named: approval_rejected pay"


async def test_code_in_whose_place_other_code_was_given_is_let_go(run: Runs) -> None:
    before = named()
    state = await paused(run, run_config=RunConfig(tool_error_formatter=says("one")))
    began = len(named())
    for what in ("two", "three", "three"):
        config = RunConfig(tool_error_formatter=says(what))
        await run(RunState.of(state.task_id), run_config=config)
        assert len(named()) == began
    run.model.reply("sorry")
    assert outputs(await run(state)) == ["three: approval_rejected pay"]
    assert named() == before


async def test_a_filter_of_handoffs_is_refused_where_the_provider_keeps_the_conversation(
    run: Runs,
) -> None:
    before = named()
    state = await paused(run, conversation_id="conv")
    began = named()
    config = RunConfig(handoff_input_filter=lambda data: data)
    with pytest.raises(UserError, match="Leave it out"):
        await run(state, run_config=config)
    assert named() == began
    run.model.reply("sorry")
    assert (await run(state)).final_output == "sorry"
    assert named() == before


async def test_code_stays_when_the_call_that_gave_it_is_cancelled_before_it_knows(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_run, sent = AgentRunner.change_run, asyncio.Event()

    async def late(*args: Any, **options: Any) -> Any:
        await change_run(*args, **options)
        sent.set()
        await asyncio.Event().wait()

    before = named()
    state = await paused(run)
    with monkeypatch.context() as patch:
        patch.setattr(AgentRunner, "change_run", late)
        config = RunConfig(tool_error_formatter=says("new"))
        going = asyncio.create_task(run(state, run_config=config))
        await sent.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
    run.model.reply("sorry")
    assert outputs(await run(state)) == ["new: approval_rejected pay"]
    assert named() == before


async def test_code_is_released_when_a_run_does_not_get_to_use_it(run: Runs) -> None:
    def fails(_: Any) -> Any:
        raise ValueError("no context")

    before = named()
    state = await paused(run, context={"a": 1})
    began = named()
    assert run.agent is not None
    text = state.to_string()
    again = await RunState.from_string(run.agent, text, context_deserializer=fails)
    with pytest.raises(ValueError, match="no context"):
        await run(again, run_config=RunConfig(tool_error_formatter=says("new")))
    assert named() == began
    run.model.reply("sorry")

    def no(_: Any) -> bool:
        return False

    retry: Any = {"max_retries": 1, "policy": no}
    await run(state, run_config=RunConfig(model_settings=ModelSettings(retry=retry)))
    assert named() == before


# ---- runs of agents that were assigned to, and of parts of agents that were made by hand


async def test_a_run_uses_what_was_assigned_before_it(run: Runs) -> None:
    agent = await run.serve()
    run.model.reply("one")
    await run("q")
    agent.instructions = "Be brief."
    agent.tools = [look]
    run.model.add(call("look", {"where": "there"}), "two")
    assert outputs(await run("q")) == ["seen there"]
    first, second = (request.body for request in run.model.requests[:2])
    assert "Be brief." not in json.dumps(first)
    assert "Be brief." in json.dumps(second)
    assert [each["name"] for each in second["tools"]] == ["look"]


async def test_a_state_made_by_hand_is_begun_once(run: Runs) -> None:
    agent = await run.serve()
    desk = {"name": "Ann"}
    state = RunState(RunContextWrapper(desk), "q", agent, max_turns=3)
    kept = state.to_string()
    run.model.reply("done")
    result = await run(state)
    assert (result.final_output, result.context_wrapper.context) == ("done", desk)
    again = await run(await RunState.from_string(agent, kept))
    assert (again.final_output, again.task_id) == ("done", result.task_id)
    assert len(run.model.requests) == 1
