"""Runs of agents that were assigned to, and of parts of agents that were made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Agent, ModelBehaviorError, RunConfig, RunContextWrapper, RunState
from holdfast.agents.handoffs.handoff import Handoff
from holdfast.agents_sdk import AgentOutputSchemaBase
from holdfast.testing import FakeOpenAI, call
from tests.support.rig import MakeAgent
from tests.support.runs import Runs, look, outputs, tools


class Numbers(AgentOutputSchemaBase):
    """Numbers, separated by commas, in an object."""

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return "Numbers"

    def json_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"text": {"type": "string"}}}

    def is_strict_json_schema(self) -> bool:
        return False

    def validate_json(self, json_str: str) -> Any:
        try:
            return [int(each) for each in json.loads(json_str)["text"].split(",")]
        except (ValueError, KeyError) as error:
            raise ModelBehaviorError(str(error)) from error


async def test_a_run_uses_what_was_assigned_before_it(run: Runs, model: FakeOpenAI) -> None:
    agent = await run.serve()
    model.reply("one")
    await run("q")
    agent.instructions = "Be brief."
    agent.tools = [look]
    model.add(call("look", {"where": "there"}), "two")
    assert outputs(await run("q")) == ["seen there"]
    first, second = (request.body for request in model.requests[:2])
    assert "Be brief." not in json.dumps(first)
    assert "Be brief." in json.dumps(second)
    assert [each["name"] for each in second["tools"]] == ["look"]


async def test_a_run_that_waits_keeps_the_instructions_that_it_began_with(
    run: Runs, model: FakeOpenAI
) -> None:
    ran, pay = tools()
    agent = await run.serve(pay, instructions="Be kind.")
    model.call("pay", {"to": "Ann"})
    waiting = await run("q")
    agent.instructions = "Be rude."
    state = waiting.to_state()
    state.approve(waiting.interruptions[0])
    model.reply("done")
    assert (await run(state)).final_output == "done"
    assert ran == ["Ann"]
    assert "Be kind." in json.dumps(model.requests[-1].body)
    assert "Be rude." not in json.dumps(model.requests[-1].body)


async def test_an_output_schema_of_the_user_reads_the_answer(run: Runs, model: FakeOpenAI) -> None:
    await run.serve(output_type=Numbers())
    model.reply('{"text": "1,2"}')
    assert (await run("q")).final_output == [1, 2]
    sent = model.requests[0].body["text"]["format"]
    assert (sent["strict"], sent["schema"]) == (False, Numbers().json_schema())
    model.reply('{"text": "one"}')
    with pytest.raises(ModelBehaviorError, match="one"):
        await run("q", run_config=RunConfig(max_output_attempts=None))


async def test_a_handoff_made_by_hand_hands_the_run_over(
    run: Runs, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    boss = make_agent(name="boss")
    said: list[str] = []

    async def invoke(_ctx: Any, arguments: str) -> Agent:
        said.append(arguments)
        return boss

    schema = {"type": "object", "properties": {"why": {"type": "string"}}}
    made = Handoff(
        "ask_boss", "Ask.", schema, invoke, "boss", strict_json_schema=False, target=boss
    )
    await run.serve(handoffs=[made])
    model.add(call("ask_boss", {"why": "hard"}), "done")
    result = await run("q")
    assert (result.last_agent.name, result.final_output) == ("boss", "done")
    assert [json.loads(each) for each in said] == [{"why": "hard"}]
    told = model.requests[0].body["tools"][0]
    assert (told["name"], told["strict"], told["parameters"]) == ("ask_boss", False, schema)


async def test_a_state_made_by_hand_is_begun_once(run: Runs, model: FakeOpenAI) -> None:
    agent = await run.serve()
    desk = {"name": "Ann"}
    state = RunState(RunContextWrapper(desk), "q", agent, max_turns=3)
    kept = state.to_string()
    model.reply("done")
    result = await run(state)
    assert (result.final_output, result.context_wrapper.context) == ("done", desk)
    again = await run(await RunState.from_string(agent, kept))
    assert (again.final_output, again.task_id) == ("done", result.task_id)
    assert len(model.requests) == 1
