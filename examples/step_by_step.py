"""Run a task one step at a time, and show that any process can go on with it.

The first run creates the task and does one step; the next ones go on where it stopped.

python examples/step_by_step.py
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast import Agent, AgentRunner, tool
from holdfast.errors import TaskNotFoundError

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
        try:
            task = await runner.get_task(TASK_ID)
        except TaskNotFoundError:
            task = await runner.create_task("What is (121 * 3) + 42?", task_id=TASK_ID)
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
