"""The state of a run with its answer, run on: the result is that of all these runs."""

from typing import Any

import pytest

from holdfast import (
    Agent,
    GuardrailFunctionOutput,
    Runner,
    RunResult,
    RunState,
    handoff,
    input_guardrail,
)
from holdfast.agents.handoffs.filters import remove_all_tools
from holdfast.models import from_response_items
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall
from tests.support.rig import Rig
from tests.support.runs import Runs, look


def texts(result: Any, mode: Any = "preserve_all") -> list[str]:
    return [said.text for said in from_response_items(result.to_input_list(mode=mode))]


def kinds(result: RunResult) -> list[str]:
    return [item.type for item in result.new_items]


async def test_the_result_of_a_state_with_its_answer_has_the_runs_before_it(rig: Rig) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one", "two", "three"]))
    runner = await rig.serving(agent)
    first = await Runner.run(agent, "Q", runner=runner)
    state = first.to_state()
    state.add_input("And then?")
    second = await Runner.run(agent, state, runner=runner)
    kept = await RunState.from_string(agent, second.to_state().to_string())
    third = await Runner.run(agent, kept, runner=runner)
    read = await Runner.run(agent, RunState.of(third.task_id), runner=runner)
    task = await runner.get_task(third.task_id)
    for result in (third, read):
        assert result.input == "Q"
        assert texts(result) == ["Q", "one", "And then?", "two", "three"]
        message = "message_output_item"
        assert kinds(result) == [message, "input_item", message, message]
        assert (len(result.raw_responses), result.usage.requests) == (3, 3)
        assert all(item.agent is agent for item in result.new_items)
    assert (len(first.raw_responses), first.usage.requests) == (1, 1)
    assert (len(second.raw_responses), second.usage.requests) == (2, 2)
    assert task.usage.requests == 1


async def test_an_agent_before_a_handoff_is_known_in_the_result_of_the_run_after_it(
    rig: Rig,
) -> None:
    @input_guardrail
    def fine(_ctx: Any, _agent: Any, _given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info="fine", tripwire_triggered=False)

    to_low = ToolCall(id="c2", name="transfer_to_low", arguments="{}")
    low = Agent(name="low", model=ScriptedModel(["of low", "more"]))
    lead = Agent(
        name="lead",
        model=ScriptedModel([ToolCall(id="c1", name="look", arguments="{}"), to_low]),
        tools=[look],
        handoffs=[handoff(low, input_filter=remove_all_tools)],
        input_guardrails=[fine],
    )
    runner = await rig.serving(lead)
    first = await Runner.run(lead, "Q", runner=runner)
    second = await Runner.run(lead, first.to_state(), runner=runner)
    assert second.last_agent is low
    assert [item.agent for item in second.new_items] == [lead] * 4 + [low] * 2
    assert [each.guardrail for each in second.input_guardrail_results] == [fine]
    assert texts(second, "normalized") == ["Q", "of low", "more"]
    assert texts(second)[-2:] == ["of low", "more"]
    assert len(texts(second)) == len(texts(first)) + 1


async def test_turns_are_counted_once_however_many_runs_follow(rig: Rig) -> None:
    agent = Agent(name="a", model=ScriptedModel(list("abcd")))
    left: list[Any] = []
    runner = await rig.serving(agent)
    result = await Runner.run(agent, "Q", runner=runner, max_turns=4)
    for _ in range(3):
        left.append(result.to_state().max_turns)
        result = await Runner.run(agent, result.to_state(), runner=runner)
    state = result.to_state()
    read = await Runner.run(agent, RunState.of(result.task_id), runner=runner)
    assert (left, state.max_turns, read.to_state().max_turns) == ([3, 2, 1], 0, 0)


async def test_a_run_before_it_that_was_deleted_is_left_out(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one", "two"]))
    runner = await rig.serving(agent)
    first = await Runner.run(agent, "Q", runner=runner)
    await runner.delete_task(first.task_id)
    result = await Runner.run(agent, first.to_state(), runner=runner)
    assert (texts(result), result.usage.requests) == (["Q", "one", "two"], 1)
    assert f"lacks that of run {first.task_id!r}" in caplog.text


async def test_a_conversation_that_the_provider_keeps_is_sent_once_and_read_whole(
    run: Runs,
) -> None:
    run.model.add("one", "two", "three")
    kept: dict[str, Any] = {"conversation_id": "conv_1", "previous_response_id": "resp_0"}
    first = await run("Q", **kept)
    state = first.to_state()
    state.add_input("And then?")
    second = await run(state, **kept)
    third = await run(second.to_state(), **kept)
    assert texts(third) == ["Q", "one", "And then?", "two", "three"]
    assert [asked.body["conversation"] for asked in run.model.requests] == ["conv_1"] * 3
    assert not any("previous_response_id" in asked.body for asked in run.model.requests)
    assert [len(asked.body["input"]) for asked in run.model.requests] == [1, 1, 0]


async def test_a_run_in_a_session_has_what_was_before_in_its_input(rig: Rig) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one", "two"]))
    runner = await rig.serving(agent)
    state = (await Runner.run(agent, "Q", runner=runner, session="s")).to_state()
    state.add_input("And then?")
    result = await Runner.run(agent, state, runner=runner, session="s")
    assert texts(result) == ["Q", "one", "And then?", "two"]
    assert (len(result.new_items), result.usage.requests) == (1, 1)
