"""Agents as tools in runs of the Agents SDK's kind: context, settings, results, arguments."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

from holdfast import Runner, ToolContext, tool
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.run_config import RunConfig, ToolExecutionConfig
from holdfast.agents.runs.results import RunResult
from holdfast.errors import InvalidArgumentError, UserError
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import ToolCall
from holdfast.values.settings import ModelSettings
from tests.support.people import ask
from tests.support.rig import MakeAgent, Rig


@dataclass
class Caller:
    """A context object."""

    name: str
    seen: list[str]


class Trip(BaseModel):
    """A trip to plan."""

    city: str = Field(description="Where to go.")
    nights: int


async def test_a_function_that_is_assigned_to_the_tool_is_called_in_place_of_the_agent(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    ask_helper = make_agent(name="helper").as_tool()

    async def mine(_ctx: Any, arguments: str) -> str:
        return f"{arguments} was told to nobody"

    ask_helper.on_invoke_tool = mine
    agent = make_agent(ask_helper, name="agent")
    await rig.serve(agent)
    model.call("helper", {"input": "a"})
    model.reply("done")
    runner = rig.runner()
    result = await Runner.run(agent, "q", runner=runner)
    assert model.requests[-1].messages[-1].text == '{"input": "a"} was told to nobody'
    [call] = [e for e in await runner.audit(result.task_id) if e.kind == "tool_call"]
    assert call.effect == "irreversible"  # nothing is known of the function


async def test_such_a_function_may_call_what_it_replaces(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_agent(_tool: Any, _ctx: Any, arguments: str) -> str:
        return f"the helper read {arguments}"

    monkeypatch.setattr(AgentTool, "run_made", run_agent)
    ask_helper = make_agent(name="helper").as_tool()
    before = ask_helper.on_invoke_tool

    async def mine(ctx: Any, arguments: str) -> str:
        return str(await before(ctx, arguments)).upper()

    ask_helper.on_invoke_tool = mine
    assert await ask_helper.run(ToolContext(None), "x") == "THE HELPER READ X"


async def test_such_a_function_cannot_wait_for_a_person(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool(effect="irreversible", needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    asks = ScriptedModel([ToolCall(id="", name="pay", arguments="{}")])
    ask_helper = make_agent(pay, name="helper", model=asks).as_tool(failure_error_function=None)
    before = ask_helper.on_invoke_tool

    async def mine(ctx: Any, arguments: str) -> str:
        return str(await before(ctx, arguments))

    ask_helper.on_invoke_tool = mine
    agent = make_agent(ask_helper, name="agent")
    await rig.serve(agent)
    model.call("helper", {"input": "a"})
    with pytest.raises(UserError, match=r"waits for a person to decide on: pay\. Its run '"):
        await Runner.run(agent, "q", runner=rig.runner())


async def test_the_context_is_shared_and_what_the_nested_run_makes_of_it_comes_back(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        ctx.context.seen.append("inner")
        return f"hello {ctx.context.name}"

    helper = make_agent(look, name="helper")
    agent = make_agent(helper.as_tool(), name="agent")
    await rig.serve(agent)
    model.call("helper", {"input": "a"})
    model.call("look", {})
    model.reply("seen")
    model.reply("done")
    caller = Caller(name="bo", seen=[])
    runner = rig.runner()
    result = await Runner.run(agent, "q", context=caller, runner=runner)
    assert result.final_output == "done"
    assert model.requests[2].messages[-1].text == "hello bo"
    assert (await runner.get_task(result.task_id)).extra_state["context"]["seen"] == ["inner"]
    assert result.usage.requests == 4


async def test_a_run_waits_with_what_a_nested_run_asks_and_goes_on_after_the_decision(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = make_agent(make_agent(pay, name="helper").as_tool(), name="agent")
    await rig.serve(agent)
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.call("pay", {})
    result = await Runner.run(agent, "q", runner=runner)
    assert result.final_output is None
    [text] = result.waiting_for
    assert text.startswith(f"{result.task_id}~0.1.0.0:1 tool pay")
    model.reply("it is paid")
    model.reply("done")
    await runner.approve(await ask(runner, result.task_id), by="ann")
    last = await Runner.run(agent, result.to_state(), runner=runner)
    assert last.final_output == "done"
    assert len(model.requests) == 4


async def test_settings_of_the_run_are_inherited_unless_the_tool_has_its_own(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    one, two = make_agent(name="one"), make_agent(name="two")
    own = RunConfig(model_settings=ModelSettings(temperature=0.7))
    agent = make_agent(one.as_tool(), two.as_tool(run_config=own), name="agent")
    await rig.serve(agent)
    model.call("one", {"input": "a"})
    model.reply("1")
    model.call("two", {"input": "b"})
    model.reply("2")
    model.reply("done")
    config = RunConfig(model_settings=ModelSettings(temperature=0.2, top_p=0.5))
    await Runner.run(agent, "q", run_config=config, runner=rig.runner())
    found = [(r.body.get("temperature"), r.body.get("top_p")) for r in model.requests]
    assert found == [(0.2, 0.5), (0.2, 0.5), (0.2, 0.5), (0.7, None), (0.2, 0.5)]


async def test_calls_of_agents_beyond_the_limit_begin_one_after_another(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(name="helper")
    agent = make_agent(helper.as_tool(), name="agent")
    await rig.serve(agent)
    model.calls([("helper", {"input": "a"}), ("helper", {"input": "b"})])
    for text in ("A", "B", "done"):
        model.reply(text)
    one = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
    async with asyncio.timeout(30):
        result = await Runner.run(agent, "q", run_config=one, runner=rig.runner())
    assert result.final_output == "done"
    assert [r.messages[-1].text for r in model.requests[1:3]] == ["a", "b"]
    assert [m.text for m in model.requests[3].messages[-2:]] == ["A", "B"]


async def test_an_extractor_makes_the_result_of_the_nested_run(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    seen: list[RunResult] = []

    async def extract(result: RunResult) -> dict[str, Any]:
        seen.append(result)
        return {"said": result.final_output}

    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(custom_output_extractor=extract), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.reply("inner")
    model.reply("done")
    task = await runner.create_task("q")
    await runner.run_task(task)
    assert model.requests[2].messages[-1].text == '{"said":"inner"}'
    [result] = seen
    assert (result.input, result.task_id) == ("a", f"{task.task_id}~0.1.0.0")
    assert [item.type for item in result.new_items] == ["message_output_item"]


async def test_structured_arguments_are_checked_and_described_to_the_agent(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(parameters=Trip), name="agent"))
    runner = rig.runner()
    model.call("helper", {"city": "rome"})
    model.call("helper", {"city": "rome", "nights": 2})
    model.reply("planned")
    model.reply("done")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "done"
    [spec] = model.requests[0].tools
    assert spec.parameters["required"] == ["city", "nights"]
    assert "nights: required, but missing" in model.requests[1].messages[-1].text
    told = model.requests[2].last_user
    assert '"city": "rome"' in told
    assert "- city (string, required): Where to go." in told


class Payment(BaseModel):
    """A payment."""

    to: str
    amount: int = 1000


def is_large(arguments: dict[str, Any]) -> bool:
    """Whether a person decides."""
    return bool(arguments.get("amount", 0) > 100)


@pytest.mark.parametrize("written", [{"to": "x"}, {"to": "x", "amount": "50"}])
async def test_a_person_decides_where_the_nested_run_is_told_something_else(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, written: dict[str, Any]
) -> None:
    pay = make_agent(name="pay").as_tool(parameters=Payment, needs_approval=is_large)
    await rig.serve(agent := make_agent(pay, name="agent"))
    model.call("pay", written)
    result = await Runner.run(agent, "q", runner=rig.runner())
    assert [each.tool_name for each in result.interruptions] == ["pay"]
    assert len(model.requests) == 1


async def test_a_predicate_decides_on_what_the_nested_run_is_told(make_agent: MakeAgent) -> None:
    pay = make_agent(name="pay").as_tool(parameters=Payment, needs_approval=is_large)
    small, bare = '{"to": "x", "amount": 50}', '{"to": "x"}'
    assert not await pay.asks_approval(ToolContext(None), small)
    assert await pay.asks_approval(ToolContext(None), small.replace("50", "500"))
    assert await pay.asks_approval(ToolContext(None), bare)

    async def mine(_ctx: Any, arguments: str) -> str:
        return arguments

    pay.on_invoke_tool = mine  # which is given what the model wrote
    assert not await pay.asks_approval(ToolContext(None), bare)
    assert await pay.asks_approval(ToolContext(None), "{}")


async def test_an_input_builder_makes_the_nested_input(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    def build(options: dict[str, Any]) -> Any:
        city = options["params"]["city"]
        if city == "rome":
            return f"Plan {city}"
        if city == "oslo":
            return [{"role": "user", "content": "Oslo?"}, {"role": "user", "content": "Now!"}]
        msg = "no such city"
        raise ValueError(msg)

    helper = make_agent(name="helper")
    nested = helper.as_tool(parameters=Trip, input_builder=build)
    await rig.serve(make_agent(nested, name="agent"))
    runner = rig.runner()
    for city in ("rome", "oslo", "bern"):
        model.call("helper", {"city": city, "nights": 1})
        if city != "bern":
            model.reply("planned")
    model.reply("done")
    task = await runner.create_task("q")
    assert str(await runner.run_task(task)) == "done"
    assert [m.text for m in model.requests[1].messages if m.role == "user"] == ["Plan rome"]
    assert [m.text for m in model.requests[3].messages if m.role == "user"] == ["Oslo?", "Now!"]
    assert "no such city" in model.requests[5].messages[-1].text


def test_what_cannot_be_a_tool_is_refused(make_agent: MakeAgent) -> None:
    agent = make_agent(name="Größe 1")
    assert agent.as_tool().name == "gr__e_1"
    wrong: Any = dict[str, int]
    with pytest.raises(InvalidArgumentError, match="dataclass or a pydantic model"):
        agent.as_tool(parameters=wrong)
    with pytest.raises(InvalidArgumentError, match="cannot be a tool's name"):
        agent.as_tool("not a name")
    with pytest.raises(UserError, match="max_turns"):
        agent.as_tool(max_turns=-1)


async def test_a_run_returns_what_it_waits_for_once_its_nested_runs_wait_as_well(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool(needs_approval=True)
    def send() -> str:
        """Send."""
        return "sent"

    helper = make_agent(send, name="helper").as_tool()
    agent = make_agent(pay, helper)
    await rig.serve(agent)
    model.calls([("pay", {}), ("helper", {"input": "a"})])
    model.call("send", {})
    model.reply("of helper")
    model.reply("done")
    runner = rig.runner()
    stopped = await Runner.run(agent, "q", runner=runner)
    assert sorted(str(each.tool_name) for each in stopped.interruptions) == ["pay", "send"]
    state = stopped.to_state()
    for each in stopped.interruptions:
        state.approve(each)
    assert (await Runner.run(agent, state, runner=runner)).final_output == "done"
