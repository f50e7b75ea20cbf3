"""What spans and logs tell of a run's contents: with the switch off, nothing at all."""

import json
import logging
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from holdfast import ModelBehaviorError, RunConfig, Runner, StepFailedError, tool
from holdfast.agents.guardrails import GuardrailFunctionOutput, InputGuardrail
from holdfast.agents.handoffs.handoff import handoff
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.guardrails import ToolGuardrailFunctionOutput, ToolInputGuardrail
from holdfast.testing import call
from holdfast.tracing import trace
from holdfast.tracing.spans import SENSITIVE
from tests.support.people import ask
from tests.support.rig import Rig, until_status
from tests.support.spans import Seen, Spans

MARK = "qzmark"
"""Is in everything that users, models, tools, guardrails and people say."""


class Reason(BaseModel):
    """Why a handoff is made."""

    why: str


@tool(needs_approval=True)
def pay(amount: str) -> str:
    """Pay."""
    return f"paid {amount}"


def marked(spans: list[Seen]) -> set[str]:
    """List the spans that hold the mark, and where."""
    return {
        f"{span.name.replace(MARK, '...')}: {place}"
        for span in spans
        for place, told in {
            "name": span.name,
            "status": span.text,
            "events": json.dumps(span.events),
            **{key: f"{key} {value}" for key, value in span.attributes.items()},
        }.items()
        if MARK in told
    }


class Switch(NamedTuple):
    """Whether contents are told, and the settings of the run by which they are not."""

    tells: bool
    config: RunConfig


@pytest.fixture(params=["told", "run", "environment"])
def switch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Switch:
    """Who says that contents are not to be told, if somebody does."""
    if request.param == "environment":
        monkeypatch.setenv(SENSITIVE, "false")
    wanted = False if request.param == "run" else None
    config = RunConfig(trace_include_sensitive_data=wanted, tool_not_found_behavior="raise_error")
    return Switch(request.param == "told", config)


@pytest.mark.parametrize("switch", ["told", "environment"], indirect=True)
async def test_a_run_with_everything_in_it(
    rig: Rig, spans: Spans, switch: Switch, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(effect="read")
    def stumble(where: str) -> str:
        """Fail."""
        raise LookupError(f"nothing {where}")

    def passes(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(MARK, tripwire_triggered=False)

    def rejects(_data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content(MARK, MARK)

    async def on_handoff(_ctx: Any, reason: Reason) -> None:
        assert reason.why == MARK

    caplog.set_level(logging.INFO)
    helper = rig.agent(stumble, name="helper").as_tool()
    refusing = replace(
        rig.agent(name="refusing").as_tool(), tool_input_guardrails=[ToolInputGuardrail(rejects)]
    )
    agent = rig.agent(
        stumble,
        pay,
        helper,
        refusing,
        name="agent",
        handoffs=[handoff(rig.agent(name="bob"), on_handoff=on_handoff, input_type=Reason)],
        input_guardrails=[InputGuardrail(passes)],
        instructions=MARK,
    )
    runner = await rig.serving(agent)
    rig.model.call("stumble", {"where": MARK})
    rig.model.call("helper", {"input": MARK})
    rig.model.call("stumble", {"where": MARK})
    rig.model.fail(503, message=MARK)
    rig.model.reply(MARK)
    rig.model.call("helper", {"question": MARK})
    rig.model.call("refusing", {"input": MARK})
    rig.model.call("pay", {"amount": MARK})
    with trace("block"):
        result = await Runner.run(agent, MARK, runner=runner, run_config=switch.config)
    state = result.to_state()
    state.reject(result.interruptions[0], rejection_message=MARK)
    await runner.give_feedback(result.task_id, MARK, by="ann")
    rig.model.add(call("transfer_to_bob", {"why": MARK}), call(MARK))
    with pytest.raises(ModelBehaviorError, match=MARK), trace("last"):
        await Runner.run(agent, state, runner=runner)
    await spans.until("invoke_agent agent")
    await spans.until("invoke_agent helper")
    found = marked(spans.all)
    assert spans.one("invoke_workflow last")["error.type"] == "ModelBehaviorError"
    assert spans.one("invoke_agent agent")["error.type"] == "ModelBehaviorError"
    assert not [each for each in caplog.records if MARK in each.getMessage()]
    assert not [each for each in found if "invoke_workflow" in each]
    if not switch.tells:
        assert found == set()
        return
    assert found >= {
        "invoke_agent agent: gen_ai.input.messages",
        "invoke_agent agent: status",
        "invoke_agent agent: events",
        "invoke_agent helper: gen_ai.input.messages",
        "step s1: holdfast.step.input",
        "chat gpt-5-mini: gen_ai.system_instructions",
        "chat gpt-5-mini: gen_ai.output.messages",
        "chat gpt-5-mini: status",
        "execute_tool stumble: gen_ai.tool.call.arguments",
        "execute_tool stumble: status",
        "execute_tool stumble: events",
        "execute_tool helper: gen_ai.tool.call.arguments",
        "execute_tool helper: gen_ai.tool.call.result",
        "handoff agent to bob: gen_ai.tool.call.arguments",
    }


@pytest.mark.parametrize("switch", ["run"], indirect=True)
async def test_what_people_say_to_end_or_undo_a_task(
    rig: Rig, spans: Spans, switch: Switch, book: Tool
) -> None:
    agent = rig.agent(book, pay)
    runner = await rig.serving(agent)
    rig.model.add(call("book", {"city": MARK}), call("pay", {"amount": MARK}))
    result = await Runner.run(agent, MARK, runner=runner, run_config=switch.config)
    approval = await ask(runner, result.task_id)
    rig.model.fail(401, message=MARK)
    await runner.reject(approval, by="ann", reason=MARK)
    await until_status(runner, result.task_id, "needs_attention")
    rig.model.fail(401, message=MARK)  # the failed step is run again
    with pytest.raises(StepFailedError, match=MARK):
        await runner.run_task(result.task_id)
    for _ in range(3):
        await runner.undo_step(result.task_id, by="ann", reason=MARK)
    await runner.abandon(result.task_id, MARK, by="ann")
    await until_status(runner, result.task_id, "abandoned")
    await spans.until("invoke_agent agent")
    assert {"undo book"} < {span.name for span in spans.all}
    assert marked(spans.all) == set()
