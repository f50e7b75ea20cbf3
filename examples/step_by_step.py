"""Run a task one step at a time, and show that any process can go on with it.

The first run creates the task and does one step; the next ones go on where it stopped. A run that
is killed inside a step is given that step's output by the next one.

python examples/step_by_step.py
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast import Agent, AgentRunner, tool

TASK_ID = "step-by-step"


@tool(effect="read")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


arithmetic = Agent(name="arithmetic", model="offline", tools=[add, multiply])


async def main(data_dir: str) -> None:
    """Do the next step of the task."""
    async with AgentRunner.local(arithmetic, data_dir=data_dir) as runner:
        question = "What is (121 * 3) + 42?"
        task = await runner.create_task(question, task_id=TASK_ID, exist_ok=True)
        if task.status == "finished":
            print("Done before:", await runner.response(task))
            return
        output = await runner.run_step(task)
        for source in output.sources:
            print(f"{source.tool_name} {source.raw_input} gave {source.content}")
        if output.is_last:
            print("Answer:", await runner.finalize_response(task))
        else:
            print("One step done. Run me again.")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else str(Path(".holdfast"))))
