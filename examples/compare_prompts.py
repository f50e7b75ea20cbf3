"""Two prompts compared on the same half-done task: each goes on in a fork of its own.

python examples/compare_prompts.py

The expensive first step is run once. A fork has it in its ledger, and does not run it again.
"""

from __future__ import annotations

import asyncio

from holdfast import Agent, AgentRunner, ToolCall, tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

lookups: list[str] = []


@tool(effect="read")
async def find_order(number: int) -> str:
    """Look up an order."""
    lookups.append(f"order {number}")
    return f"order {number} is two days late"


def support_model(request: ModelRequest) -> str | ToolCall:
    """Stand in for a model, offline: look the order up, then answer in the style of the prompt."""
    found = [m.text for m in request.messages if m.role == "tool"]
    if not found:
        return ToolCall(id="", name="find_order", arguments='{"number": 7}')
    if "apologise" in request.instructions:
        return f"I am very sorry: {found[-1]}. We will refund the shipping."
    return f"Status: {found[-1]}."


def variant(name: str, instructions: str) -> Agent:
    model = ScriptedModel(support_model, name="offline-support")
    return Agent(name=name, instructions=instructions, model=model, tools=[find_order])


terse = variant("terse", "Answer in one short sentence.")
kind = variant("kind", "Be kind: apologise, and offer something.")
agents = [terse, kind]


async def main() -> None:
    """Run the first step once, then let both agents go on from there."""
    async with AgentRunner.local(*agents, data_dir=None) as runner:
        task = await runner.create_task("Where is my order 7?")
        first = await runner.run_step(task)
        print("Shared step:", first.sources[0].content)
        for agent in agents:
            fork = await runner.fork(task, at=first, agent=agent.name, by="ann")
            await runner.run_task(fork)
            print(f"{agent.name:>6}: {await runner.finalize_response(fork)}")
        print("Looked up once:", lookups)


if __name__ == "__main__":
    asyncio.run(main())
