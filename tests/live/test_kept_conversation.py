"""Runs whose conversation the provider keeps: what is sent, undone, forgotten, refused."""

from typing import Any

import pytest

from holdfast import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    OutputGuardrail,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    StepFailedError,
    UserError,
    handoff,
    input_guardrail,
)
from holdfast.agents.handoffs.filters import remove_all_tools
from holdfast.agents_sdk import ModelRetrySettings
from holdfast.errors import UnfitAnswerError
from holdfast.models import ChatCompletionsModel, from_response_items
from holdfast.testing import FakeOpenAI, ScriptedModel, call, fail, raw
from holdfast.values.messages import ToolCall
from tests.support.rig import Rig
from tests.support.runs import Runs, look


def sent(model: FakeOpenAI) -> list[tuple[Any, Any, list[Any]]]:
    """List what each call goes on from, its conversation, and the kinds of what is new."""
    return [
        (
            asked.body.get("previous_response_id"),
            asked.body.get("conversation"),
            [item.get("type") or item["role"] for item in asked.body["input"]],
        )
        for asked in model.requests
    ]


async def test_a_conversation_goes_before_a_response_that_is_given_too(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    low = rig.agent(name="low")
    asks = low.as_tool("ask", "Ask.", conversation_id="conv_1", previous_response_id="resp_1")
    agent = rig.agent(asks, name="ann")
    await rig.serve(agent, low)
    rig.model.add(call("ask", {"input": "well?"}), "low", "done")
    own: dict[str, Any] = {"conversation_id": "conv_0", "previous_response_id": "resp_0"}
    await Runner.run(agent, "q", runner=rig.runner(), **own)
    assert [(each[0], each[1]) for each in sent(rig.model)] == [
        (None, "conv_0"),
        (None, "conv_1"),
        (None, "conv_0"),
    ]
    assert "previous_response_id is not used" in caplog.text


def always(_context: object) -> bool:
    """Make a failed model call again, whatever it was."""
    return True


async def test_what_is_forgotten_is_sent_again_before_a_retry_policy_is_asked(run: Runs) -> None:
    run.model.add(call("look"), fail(400, code="previous_response_not_found"), "done")
    retry = ModelRetrySettings(max_retries=3, policy=always)
    config = RunConfig(model_settings=ModelSettings(retry=retry))
    result = await run("q", look, auto_previous_response_id=True, run_config=config)
    assert result.final_output == "done"
    assert sent(run.model)[2] == (None, None, ["user", "function_call", "function_call_output"])


@pytest.mark.parametrize("own", [{"conversation_id": "c"}, {"previous_response_id": "p"}])
async def test_an_empty_answer_is_asked_for_again_with_all_that_the_provider_lacks(
    run: Runs, own: dict[str, Any]
) -> None:
    run.model.add("", call("look"), "", "", "done")
    result = await run("q", look, **own)
    assert result.final_output == "done"
    assert result.context_wrapper.usage.requests == 5
    first, again, called, empty, last = sent(run.model)
    if "conversation_id" in own:
        kinds = [["user"], ["user"], ["function_call_output"], ["user"], ["user"]]
        assert [each[2] for each in sent(run.model)] == kinds
        assert {each[1] for each in sent(run.model)} == {"c"}
    else:
        assert first == ("p", None, ["user"])
        assert again == ("p", None, ["user", "user"])
        assert called[2] == ["function_call_output"]
        assert called[0] not in (None, "p")
        assert empty == (called[0], None, ["function_call_output", "user"])
        assert last == (called[0], None, ["function_call_output", "user", "user"])


async def test_calls_of_an_answer_that_cannot_be_read_are_answered_too(run: Runs) -> None:
    """The provider keeps that answer, and refuses a request while a call lacks its result."""
    shell = {"type": "shell_call", "action": {"commands": ["ls"]}}
    asked = {"server_label": "crm", "name": "pay", "arguments": "{}"}
    called: list[dict[str, Any]] = [
        {"type": "function_call", "call_id": "call_7", "name": "look", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "call_8", "name": "own", "input": "x"},
        {**shell, "call_id": "call_9"},
        {**shell, "call_id": "has run"},
        {"type": "shell_call_output", "call_id": "has run", "output": []},
        {"type": "mcp_approval_request", "id": "mcpr_1", **asked},
    ]
    odd = raw({"id": "r", "output": [*called, {"type": "message", "content": 5}, {"type": 1}]})
    own: dict[str, Any] = {"conversation_id": "c"}
    run.model.add(odd, odd, odd)
    with pytest.raises(UnfitAnswerError, match="cannot be read"):
        await run("q", look, task_id=f"{run.rig.app}-open", **own)
    run.model.reply("done")
    state = RunState.of(f"{run.rig.app}-open")
    assert run.agent is not None
    assert (await Runner.run(run.agent, state, runner=run.runner)).final_output == "done"
    again = [each[2] for each in sent(run.model)][1:]
    answers = ["function_call", "custom_tool_call", "shell_call"]
    kinds = [*(f"{kind}_output" for kind in answers), "mcp_approval_response", "user"]
    assert again == [kinds] * 3
    for request in run.model.requests[1:]:
        *results, refused = request.body["input"][:4]
        assert [each["call_id"] for each in results] == ["call_7", "call_8", "call_9"]
        assert (refused["approval_request_id"], refused["approve"]) == ("mcpr_1", False)


async def test_a_run_goes_on_after_an_undo_from_the_answer_before_it(run: Runs) -> None:
    run.model.add(call("look"), call("look"), fail(401, message="a wrong key"))
    with pytest.raises(StepFailedError, match="a wrong key") as caught:
        await run("q", look, auto_previous_response_id=True)
    task_id = caught.value.task_id
    await run.runner.rewind(task_id, "s1", reason="the second look was for nothing")
    run.model.reply("done")
    agent = run.agent
    assert agent is not None
    result = await Runner.run(agent, RunState.of(task_id), runner=run.runner)
    assert result.final_output == "done"
    first = result.raw_responses[0].response_id
    assert sent(run.model)[1] == (first, None, ["function_call_output"])
    assert sent(run.model)[2][0] not in (None, first)
    assert sent(run.model)[3] == (first, None, ["function_call_output", "system"])


async def test_the_next_agent_of_a_handoff_gets_what_is_new(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    bob = rig.agent(name="bob")
    agent = rig.agent(name="ann", handoffs=[handoff(bob, nest_handoff_history=True)])
    await rig.serve(agent, bob)
    rig.model.add(call("transfer_to_bob"), "I am Bob.")
    result = await Runner.run(agent, "q", runner=rig.runner(), auto_previous_response_id=True)
    assert result.last_agent.name == "bob"
    first = result.raw_responses[0].response_id
    assert sent(rig.model)[1] == (first, None, ["function_call_output"])
    assert "nest_handoff_history" in caplog.text


async def test_an_api_that_keeps_nothing_is_named(run: Runs) -> None:
    chat = ChatCompletionsModel("gpt-5-mini", base_url=run.model.base_url, api_key="sk-test")
    with pytest.raises(StepFailedError, match="keeps no conversation"):
        await run("q", of={"model": chat}, conversation_id="conv_1")


def filters(data: Any) -> Any:
    """Leave everything as it is."""
    return data


def passes(_ctx: Any, _agent: Any, _output: Any) -> GuardrailFunctionOutput:
    """Let every output pass."""
    return GuardrailFunctionOutput(None, tripwire_triggered=False)


CHECKS = [OutputGuardrail(passes)]
PLAIN = Agent(name="agent", model="offline")
GUARDED = Agent(name="guarded", model="offline", output_guardrails=CHECKS)
FILTERED = Agent(name="a", model="offline", handoffs=[handoff(PLAIN, input_filter=filters)])
TOOL = GUARDED.as_tool("ask", "Ask.", conversation_id="conv_1")
AUTO = {"auto_previous_response_id": True}
KEPT = {"conversation_id": "conv_1"}
NO_FILTERS = "do not support handoff input filters"
NOT_GUARDED = r"conversation history(?s:.*)Leave them out"


@pytest.mark.parametrize(
    ("agent", "options", "text"),
    [
        (PLAIN, {**AUTO, "session": "s"}, "Session persistence"),
        (PLAIN, {"conversation_id": 3}, "conversation_id must be a text"),
        (PLAIN, {**KEPT, "run_config": RunConfig(handoff_input_filter=filters)}, NO_FILTERS),
        (FILTERED, AUTO, NO_FILTERS),
        (GUARDED, KEPT, NOT_GUARDED),
        (GUARDED, {"previous_response_id": "resp_1"}, NOT_GUARDED),
        (PLAIN, {**KEPT, "run_config": RunConfig(output_guardrails=CHECKS)}, NOT_GUARDED),
        (Agent(name="a", model="offline", handoffs=[GUARDED]), AUTO, NOT_GUARDED),
        (Agent(name="a", model="offline", tools=[TOOL]), {}, NOT_GUARDED),
    ],
)
async def test_what_does_not_go_together_is_refused(
    agent: Agent, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(UserError, match=text):
        await Runner.run(agent, "q", **options)


# ---- the state of a run with its answer, run on: the result is that of all these runs


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
    state = (await run("Q", **kept)).to_state()
    state.add_input("And then?")
    second = await run(state, **kept)
    assert texts(await run(second.to_state(), **kept)) == ["Q", "one", "And then?", "two", "three"]
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
