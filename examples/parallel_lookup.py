"""A question that needs several lookups: planned at once, run side by side, answered together.

python examples/parallel_lookup.py

Every line of the plan is a step of the task, which starts the moment the results that it refers to
are there. The model here is a function, so that this runs offline.
"""

from __future__ import annotations

import asyncio

from holdfast import Agent, AgentRunner, tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.workers import LLMCompilerAgentWorker

PEOPLE = {"Rome": 2.8, "Oslo": 0.7, "Bonn": 0.3}
"""Millions of people."""

PLAN = """\
Thought: three cities, then two of them together
1. population("Rome")
2. population("Oslo")
3. population("Bonn")
4. add($2, $3)
5. compare(left="Rome: $1", right="Oslo and Bonn: $4")
6. join()
<END_OF_PLAN>"""

running = 0
most = 0


@tool(effect="read")
async def population(city: str) -> float:
    """Look up how many million people live in a city."""
    global running, most  # noqa: PLW0603  the example counts what runs at the same time
    running += 1
    most = max(most, running)
    await asyncio.sleep(1)  # a slow service
    running -= 1
    return PEOPLE[city]


@tool(effect="read")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def compare(left: str, right: str) -> str:
    """Set two texts side by side."""
    return f"{left} | {right}"


def agent_model(request: ModelRequest) -> str:
    """Stand in for a model: plan first, then answer with the last result."""
    if "join()" in request.instructions:
        return PLAN
    result = request.messages[-1].text.rsplit("result: ", 1)[-1]
    return f"Thought: all is known\nAction: finish(In millions: {result})"


lookup = Agent(
    name="lookup",
    instructions="Answer questions about cities.",
    model=ScriptedModel(agent_model, name="offline-lookup"),
    tools=[population, add, compare],
    worker=LLMCompilerAgentWorker(),
)
agents = [lookup]


async def main() -> None:
    """Ask, and show the steps."""
    async with AgentRunner.local(lookup, data_dir=None) as runner:
        task = await runner.create_task("Has Rome more people than Oslo and Bonn together?")
        planned = await runner.run_step(task)
        print("The plan:")
        for line in planned.output["nodes"]:
            print(" ", line)
        print("Steps, and what each waits for:")
        for step in await runner.get_upcoming_steps(task):
            print(f"  {step.step_id}: {', '.join(step.prev_steps) or 'nothing'}")
        await runner.run_task(task)
        print("Lookups at the same time:", most)
        print("Answer:", await runner.finalize_response(task))


if __name__ == "__main__":
    asyncio.run(main())
