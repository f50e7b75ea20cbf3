"""An agent of Pydantic AI, whose output is an object, as a tool of a durable agent.

python examples/adapters/pydantic_ai_agent.py

Its run is one call: what was answered is not asked again. The models are scripts, so no network is
needed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel

from holdfast import Agent, AgentRunner, ToolCall, pydantic_ai_tool
from holdfast.testing import ScriptedModel


class Forecast(BaseModel):
    """A forecast."""

    city: str
    degrees: int


forecaster: Any = PydanticAgent(
    TestModel(custom_output_args={"city": "Rome", "degrees": 21}),
    name="forecaster",
    output_type=Forecast,
)


async def main() -> None:
    call = ToolCall(id="", name="forecaster", arguments='{"input": "How warm will Rome be?"}')
    agent = Agent(
        name="travel",
        model=ScriptedModel([call, "Take a coat."]),
        tools=[pydantic_ai_tool(forecaster, effect="read", description="Forecast the weather.")],
    )
    async with AgentRunner.local(agent, data_dir=None) as runner:
        task = await runner.create_task("Do I need a coat in Rome?")
        output = await runner.run_task(task)
        [event] = [each for each in await runner.audit(task) if each.kind == "tool_call"]
        print(f"{event.tool}: {event.result}")
        print(output)


if __name__ == "__main__":
    asyncio.run(main())
