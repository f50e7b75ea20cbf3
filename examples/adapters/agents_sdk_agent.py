"""A function tool and an agent of the OpenAI Agents SDK as tools of a durable agent.

python examples/adapters/agents_sdk_agent.py

The SDK's own Runner runs its agent, as one call. Both speak with an API that this program serves,
so no network is needed.
"""

from __future__ import annotations

import asyncio

from agents import Agent as SdkAgent
from agents import OpenAIResponsesModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from holdfast import Agent, AgentRunner, agents_sdk_tool
from holdfast.models.openai.responses import ResponsesModel
from holdfast.testing import FakeOpenAI

set_tracing_disabled(disabled=True)  # the Agents SDK's, which would go to OpenAI


@function_tool
def population(city: str) -> str:
    """Return how many people live in a city."""
    return f"{city}: 2.8 million"


async def main() -> None:
    with FakeOpenAI() as api:
        client = AsyncOpenAI(base_url=api.base_url, api_key="sk-none")
        model = OpenAIResponsesModel("gpt-5-mini", client)
        translator = SdkAgent(name="translator", instructions="Translate.", model=model)
        agent = Agent(
            name="guide",
            model=ResponsesModel("gpt-5-mini", client=client),
            tools=[
                agents_sdk_tool(population, effect="read"),
                agents_sdk_tool(translator, effect="read"),
            ],
        )
        api.call("population", {"city": "Rome"})
        api.call("translator", {"input": "2.8 million"})
        api.reply("due milioni e ottocentomila")  # the SDK's agent
        api.reply("Rome: due milioni e ottocentomila.")
        async with AgentRunner.local(agent, data_dir=None) as runner:
            task = await runner.create_task("How many people live in Rome? In Italian, please.")
            output = await runner.run_task(task)
            for event in await runner.audit(task):
                if event.kind == "tool_call":
                    print(f"{event.tool}: {event.result}")
            print(output)


if __name__ == "__main__":
    asyncio.run(main())
