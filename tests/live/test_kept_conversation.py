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
    RunState,
    StepFailedError,
    UserError,
    handoff,
)
from holdfast.agents_sdk import ModelRetrySettings
from holdfast.errors import UnfitAnswerError
from holdfast.models import ChatCompletionsModel
from holdfast.testing import FakeOpenAI, call, fail, raw
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
