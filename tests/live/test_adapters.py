"""Tools and agents of other frameworks as tools."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent as SdkAgent
from agents import function_tool as sdk_function_tool
from langchain_core.tools import StructuredTool
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.models.test import TestModel

from holdfast import Agent, Runner
from holdfast.adapters import agents_sdk_tool, langchain_tool, pydantic_ai_tool
from holdfast.errors import InvalidArgumentError
from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import outputs


def double(number: int) -> int:
    """Double a number."""
    return number * 2


async def late_double(number: int) -> int:
    """Double a number, without blocking."""
    return number * 2


LANGCHAIN = {
    "langchain": StructuredTool.from_function(double),
    "langchain-async": StructuredTool.from_function(coroutine=late_double, name="double"),
    "pydantic-ai": PydanticTool(double),
    "agents-sdk": sdk_function_tool(double),
}


@pytest.mark.parametrize("kind", LANGCHAIN)
async def test_a_tool_of_another_framework_is_a_tool(
    kind: str, rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    agent = make_agent(LANGCHAIN[kind])
    [made] = agent.made_tools
    assert made.name == "double"
    assert made.description.startswith("Double a number")
    assert made.params_json_schema["required"] == ["number"]
    assert made.effect == "irreversible"  # nobody said otherwise
    await rig.serve(agent)
    model.call("double", {"number": 21})
    model.call("double", {"number": "many"})  # which the model reads as an error
    model.reply("done")
    result = await Runner.run(agent, "q", runner=rig.runner())
    first, second = outputs(result)
    assert first == "42"
    assert ("An error occurred" if kind == "agents-sdk" else "number") in second


async def test_an_agent_of_pydantic_ai_is_a_tool(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    writer: Any = PydanticAgent(TestModel(custom_output_text="a letter"), name="writer")
    agent = make_agent(writer)
    await rig.serve(agent)
    model.call("writer", {"input": "please"})
    model.reply("done")
    assert outputs(await Runner.run(agent, "q", runner=rig.runner())) == ["a letter"]


def test_options_are_those_of_our_tools() -> None:
    made = langchain_tool(LANGCHAIN["langchain"], effect="read", name="twice", needs_approval=True)
    assert (made.name, made.effect, made.needs_approval) == ("twice", "read", True)
    asks = sdk_function_tool(double, needs_approval=True)
    assert agents_sdk_tool(asks).needs_approval is True
    named: Any = PydanticAgent(TestModel())
    assert pydantic_ai_tool(named, name="helper").name == "helper"


def test_what_cannot_be_taken_is_refused() -> None:
    for make in (langchain_tool, pydantic_ai_tool, agents_sdk_tool):
        with pytest.raises(InvalidArgumentError, match="it was given 3"):
            make(3)
    with pytest.raises(InvalidArgumentError, match="has no name"):
        pydantic_ai_tool(PydanticAgent(TestModel()))

    def needs(ctx: RunContext[None], number: int) -> int:
        return number

    with pytest.raises(InvalidArgumentError, match="RunContext"):
        pydantic_ai_tool(PydanticTool(needs))
    assert agents_sdk_tool(SdkAgent(name="sdk agent")).name == "sdk_agent"
    assert Agent(name="a", tools=[SdkAgent(name="x")]).made_tools[0].name == "x"  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
