"""Tools and agents of other frameworks as tools."""

import json
from collections.abc import Callable
from typing import Any

import agents as sdk
import pytest
from agents import Agent as SdkAgent
from agents import function_tool as sdk_function_tool

from holdfast import Agent, Runner, agents_sdk_tool, langchain_tool, pydantic_ai_tool
from holdfast.errors import InvalidArgumentError, ToolOutputGuardrailTripwireTriggered
from holdfast.testing import call
from tests.support.rig import Rig
from tests.support.runs import outputs


def double(number: int) -> int:
    """Double a number."""
    return number * 2


async def late_double(number: int) -> int:
    """Double a number, without blocking."""
    return number * 2


def of_langchain() -> Any:
    from langchain_core.tools import StructuredTool

    return StructuredTool.from_function(double)


def late_of_langchain() -> Any:
    from langchain_core.tools import StructuredTool

    return StructuredTool.from_function(coroutine=late_double, name="double")


def of_pydantic_ai(*, with_context: bool = False) -> Any:
    from pydantic_ai import RunContext, Tool

    def needs(ctx: Any, number: int) -> int:
        return number

    needs.__annotations__["ctx"] = RunContext[None]
    return Tool(needs if with_context else double)


def writer(name: str | None = "writer") -> Any:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.test import TestModel

    return PydanticAgent(TestModel(custom_output_text="a letter"), name=name)


MADE: dict[str, Callable[[], Any]] = {
    "langchain": of_langchain,
    "langchain-async": late_of_langchain,
    "pydantic-ai": of_pydantic_ai,
    "agents-sdk": lambda: sdk_function_tool(double),
}
"""Make tools of frameworks that are loaded only then."""


@pytest.mark.parametrize("kind", MADE)
async def test_a_tool_of_another_framework_is_a_tool(kind: str, rig: Rig) -> None:
    agent = rig.agent(MADE[kind]())
    [made] = agent.made_tools
    assert made.name == "double"
    assert made.description.startswith("Double a number")
    assert made.params_json_schema["required"] == ["number"]
    assert made.effect == "irreversible"  # nobody said otherwise
    await rig.serve(agent)
    rig.model.call("double", {"number": 21})
    rig.model.call("double", {"number": "many"})  # which the model reads as an error
    rig.model.reply("done")
    first, second = outputs(await Runner.run(agent, "q", runner=rig.runner()))
    assert first == "42"
    assert ("An error occurred" if kind == "agents-sdk" else "number") in second


async def test_an_agent_of_pydantic_ai_is_a_tool(rig: Rig) -> None:
    agent = rig.agent(writer())
    await rig.serve(agent)
    rig.model.add(call("writer", {"input": "please"}), "done")
    assert outputs(await Runner.run(agent, "q", runner=rig.runner())) == ["a letter"]


def test_options_are_those_of_our_tools() -> None:
    made = langchain_tool(of_langchain(), effect="read", name="twice", needs_approval=True)
    assert (made.name, made.effect, made.needs_approval) == ("twice", "read", True)
    asks = sdk_function_tool(double, needs_approval=True)
    assert agents_sdk_tool(asks).needs_approval is True

    async def large(_ctx: Any, arguments: dict[str, Any], _call_id: str) -> bool:
        return bool(arguments["number"] > 9)

    def is_on(_ctx: Any, _agent: Any) -> bool:
        return False

    judged: Any = agents_sdk_tool(sdk_function_tool(double, needs_approval=large, is_enabled=is_on))
    assert (judged.needs_approval, judged.is_enabled) == (large, is_on)
    assert pydantic_ai_tool(writer(None), name="helper").name == "helper"
    from pydantic_ai import Tool

    asks = Tool(double, requires_approval=True, timeout=7)
    assert (pydantic_ai_tool(asks).needs_approval, pydantic_ai_tool(asks).timeout_seconds) == (
        True,
        7,
    )
    slow = sdk_function_tool(late_double, timeout=5, timeout_behavior="raise_exception")
    of_sdk = agents_sdk_tool(slow)
    assert (of_sdk.timeout_seconds, of_sdk.timeout_behavior) == (5, "raise_exception")
    assert agents_sdk_tool(slow, timeout_seconds=None).timeout_seconds is None


@pytest.mark.parametrize("number", [1, 10, 100])
async def test_guardrails_of_a_tool_of_the_agents_sdk_are_kept(number: int, rig: Rig) -> None:
    """Its own classes, contexts and findings."""
    seen: list[Any] = []

    @sdk.tool_input_guardrail
    def small(data: sdk.ToolInputGuardrailData) -> sdk.ToolGuardrailFunctionOutput:
        seen.append((type(data.context).__module__, data.context.tool_arguments, data.agent.name))
        if json.loads(data.context.tool_arguments)["number"] > 9:
            return sdk.ToolGuardrailFunctionOutput.reject_content("too large")
        return sdk.ToolGuardrailFunctionOutput.allow()

    @sdk.tool_output_guardrail
    async def even(data: sdk.ToolOutputGuardrailData) -> sdk.ToolGuardrailFunctionOutput:
        seen.append(str(data.output))
        return sdk.ToolGuardrailFunctionOutput.raise_exception({"said": data.output})

    guards: Any = {"tool_output_guardrails": [even]} if number == 100 else {}
    checks = [] if number == 100 else [small]
    made: Any = sdk_function_tool(double, tool_input_guardrails=checks, **guards)
    agent = rig.agent(agents_sdk_tool(made))
    await rig.serve(agent)
    rig.model.call("double", {"number": number})
    if number == 100:
        with pytest.raises(ToolOutputGuardrailTripwireTriggered) as raised:
            await Runner.run(agent, "q", runner=rig.runner())
        assert (seen, raised.value.output.output_info) == (["200"], {"said": 200})
        return
    rig.model.reply("done")
    assert outputs(await Runner.run(agent, "q", runner=rig.runner())) == [
        "2" if number == 1 else "too large"
    ]
    assert seen == [("agents.tool_context", f'{{"number": {number}}}', agent.name)]


def test_what_cannot_be_taken_is_refused() -> None:
    for make in (langchain_tool, pydantic_ai_tool, agents_sdk_tool):
        with pytest.raises(InvalidArgumentError, match="it was given 3"):
            make(3)
    with pytest.raises(InvalidArgumentError, match="has no name"):
        pydantic_ai_tool(writer(None))
    with pytest.raises(InvalidArgumentError, match="RunContext"):
        pydantic_ai_tool(of_pydantic_ai(with_context=True))
    hidden = of_pydantic_ai()
    hidden.prepare = double
    with pytest.raises(InvalidArgumentError, match="RunContext"):
        pydantic_ai_tool(hidden)
    assert agents_sdk_tool(SdkAgent(name="sdk agent")).name == "sdk_agent"
    assert Agent(name="a", tools=[SdkAgent(name="x")]).made_tools[0].name == "x"  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
