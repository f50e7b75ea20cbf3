"""The state of a run with its answer, run on: the result is that of all these runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from holdfast import (
    Agent,
    GuardrailFunctionOutput,
    MaxTurnsExceeded,
    Runner,
    RunResult,
    RunState,
    handoff,
    input_guardrail,
)
from holdfast.agents.handoffs.filters import remove_all_tools
from holdfast.archive.segments import read_messages
from holdfast.errors import BlobMissingError
from holdfast.models import from_response_items
from holdfast.reading.records import Records
from holdfast.reading.runs import recorded
from holdfast.task.data.state import TaskRecord
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import Message, ToolCall
from tests.live.test_loop import Run
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import look


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Run:
    return Run(rig, make_agent)


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


async def test_a_handoff_that_makes_its_input_anew_has_what_went_into_it_once(rig: Rig) -> None:
    looks = ToolCall(id="c1", name="look", arguments="{}")
    to_low = ToolCall(id="c2", name="transfer_to_low", arguments="{}")
    low = Agent(name="low", model=ScriptedModel(["of low", "more"]))
    lead = Agent(name="lead", model=ScriptedModel([looks, "one", "two", to_low]), tools=[look])
    lead.handoffs = [handoff(low, input_filter=remove_all_tools)]
    runner = await rig.serving(lead)
    first = await Runner.run(lead, "Q", runner=runner)
    state = (await Runner.run(lead, first.to_state(), runner=runner)).to_state()
    state.add_input("And then?")
    third = await Runner.run(lead, state, runner=runner)
    last = await Runner.run(lead, third.to_state(), runner=runner)
    assert texts(third) == ["Q", "one", "two", "And then?", "of low"]
    assert texts(last) == texts(copy.deepcopy(last)) == [*texts(third), "more"]
    assert kinds(third).count("message_output_item") == 3


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


async def test_of_the_runs_before_it_only_what_they_have_made_is_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    async def read(*args: Any) -> list[Message]:
        found = await read_messages(*args)
        seen.append(len(found))
        return found

    agent = Agent(name="a", model=ScriptedModel([str(k) for k in range(6)]))
    runner = await rig.serving(agent)
    result = await Runner.run(agent, "Q", runner=runner)
    for k in range(5):
        state = result.to_state()
        state.add_input(f"And {k}?")
        result = await Runner.run(agent, state, runner=runner)
    monkeypatch.setattr(recorded, "read_messages", read)
    result = await Runner.run(agent, RunState.of(result.task_id), runner=runner)
    assert texts(result)[:3] == ["Q", "0", "And 0?"]
    assert len(texts(result)) == 12
    assert sorted(seen) == [1, 1, 1, 1, 11, 11]  # its own is read before it goes on, too


async def test_a_later_task_of_the_same_id_is_no_run_before_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one", "two", "three"]))
    runner = await rig.serving(agent)
    name = f"{rig.app}-t"
    first = await Runner.run(agent, "Q", runner=runner, task_id=name)
    state = first.to_state()
    await runner.delete_task(name)
    same = await Runner.run(agent, state, runner=runner, task_id=name)
    after = await Runner.run(agent, same.to_state(), runner=runner)
    assert (texts(same), same.usage.requests) == (["Q", "one", "two"], 1)
    assert (texts(after), after.usage.requests) == (["Q", "one", "two", "three"], 2)
    assert "there is a later task of this id" in caplog.text


async def test_a_run_before_it_whose_record_is_damaged_is_left_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one", "two"]))
    runner = await rig.serving(agent)
    first = await Runner.run(agent, "Q", runner=runner)

    read_sound = Records.read

    async def read(self: Records, task_id: str) -> TaskRecord | None:
        if task_id == first.task_id:
            msg = "blob 1 is missing"
            raise BlobMissingError(msg)
        return await read_sound(self, task_id)

    monkeypatch.setattr(Records, "read", read)
    result = await Runner.run(agent, first.to_state(), runner=runner)
    assert (texts(result), result.usage.requests) == (["Q", "one", "two"], 1)
    assert "blob 1 is missing" in caplog.text


@pytest.mark.parametrize("mode", ["auto", "conversation"])
async def test_what_the_last_agent_has_seen_is_there_once_where_the_provider_keeps_the_rest(
    rig: Rig, mode: str
) -> None:
    given: Any = {"auto_previous_response_id": True}
    if mode == "conversation":
        given = {"conversation_id": "conv_1"}
    to_low = ToolCall(id="c2", name="transfer_to_low", arguments="{}")
    low = Agent(name="low", model=ScriptedModel(["of low", "more", "last"]))
    handing = handoff(low, input_filter=remove_all_tools)
    lead = Agent(name="lead", model=ScriptedModel([to_low]), handoffs=[handing])
    runner = await rig.serving(lead)
    first = await Runner.run(lead, "Q", runner=runner)
    second = await Runner.run(lead, first.to_state(), runner=runner, **given)
    third = await Runner.run(lead, second.to_state(), runner=runner)
    for kept in ("normalized", "preserve_all"):
        assert texts(second, kept) == ["Q", "of low", "more"]
        assert texts(third, kept) == ["Q", "of low", "more", "last"]


async def test_an_error_has_the_runs_before_it_too(rig: Rig) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one"]))
    runner = await rig.serving(agent)
    state = (await Runner.run(agent, "Q", runner=runner, max_turns=1)).to_state()
    with pytest.raises(MaxTurnsExceeded) as caught:
        await Runner.run(agent, state, runner=runner)
    data = caught.value.run_data
    assert data is not None
    assert (texts(data), len(data.raw_responses)) == (["Q", "one"], 1)


async def test_a_streamed_run_has_the_runs_before_it_once_it_is_complete(rig: Rig) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one", "two"]))
    runner = await rig.serving(agent)
    state = (await Runner.run(agent, "Q", runner=runner)).to_state()
    stream = Runner.run_streamed(agent, state, runner=runner)
    told = [event async for event in stream.stream_events()]
    assert [event.item.agent for event in told if event.type == "run_item_stream_event"] == [agent]
    assert (texts(stream), len(stream.raw_responses)) == (["Q", "one", "two"], 2)


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
    run: Run, model: FakeOpenAI
) -> None:
    model.reply("one")
    model.reply("two")
    model.reply("three")
    kept = {"conversation_id": "conv_1", "previous_response_id": "resp_0"}
    first = await run("Q", **kept)
    state = first.to_state()
    state.add_input("And then?")
    second = await run(state, **kept)
    third = await run(second.to_state(), **kept)
    assert texts(third) == ["Q", "one", "And then?", "two", "three"]
    assert [asked.body["conversation"] for asked in model.requests] == ["conv_1"] * 3
    assert not any("previous_response_id" in asked.body for asked in model.requests)
    assert [len(asked.body["input"]) for asked in model.requests] == [1, 1, 0]


async def test_a_run_in_a_session_has_what_was_before_in_its_input(rig: Rig) -> None:
    agent = Agent(name="a", model=ScriptedModel(["one", "two"]))
    runner = await rig.serving(agent)
    state = (await Runner.run(agent, "Q", runner=runner, session="s")).to_state()
    state.add_input("And then?")
    result = await Runner.run(agent, state, runner=runner, session="s")
    assert texts(result) == ["Q", "one", "And then?", "two"]
    assert (len(result.new_items), result.usage.requests) == (1, 1)
