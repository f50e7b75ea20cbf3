"""A trip that is planned first, and whose parts are then worked on side by side.

python examples/plan_a_trip.py

The model writes a plan of four sub-tasks, a diamond of dependencies. Each of them is a step of the
task: it can be seen before it runs, starts when the results that it builds on are there, and could
be undone alone.
"""

from __future__ import annotations

import asyncio
import json
import re

from holdfast import Agent, AgentRunner, ToolCall, tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.workers import PlanAndSolveAgentWorker

PLAN = {
    "Choose dates": [],
    "Find a train": ["Choose dates"],
    "Find a hotel": ["Choose dates"],
    "Write the itinerary": ["Find a train", "Find a hotel"],
}


@tool(effect="read")
async def free_days(month: str) -> str:
    """Look up the days without appointments."""
    return f"{month} 12 to {month} 14"


@tool(effect="read")
async def trains(days: str) -> str:
    """Search trains."""
    return f"the 9:20 to Rome ({days})"


@tool(effect="read")
async def hotels(days: str) -> str:
    """Search hotels."""
    return f"Hotel Tiber, two nights ({days})"


def planner_model(request: ModelRequest) -> str | ToolCall:
    """Stand in for a model, offline: plan when a plan is asked for, else do the sub-task."""
    if request.output is not None:
        parts = [
            {"name": name, "input": f"{name} for the trip.", "dependencies": needs}
            for name, needs in PLAN.items()
        ]
        return json.dumps({"sub_tasks": parts})
    prompt = request.messages[0].text
    found = [m.text for m in request.messages if m.role == "tool"]
    results = dict(re.findall(r"Result of '(.+)':\n(.+)", prompt))
    match re.findall(r"Sub-task '(.+)':", prompt), found:
        case ["Choose dates"], []:
            return call("free_days", month="May")
        case ["Find a train"], []:
            return call("trains", days=results["Choose dates"])
        case ["Find a hotel"], []:
            return call("hotels", days=results["Choose dates"])
        case ["Write the itinerary"], _:
            return f"Take {results['Find a train']}; stay at {results['Find a hotel']}."
        case _:
            return found[-1]


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


planner = Agent(
    name="planner",
    instructions="Plan trips.",
    model=ScriptedModel(planner_model, name="offline-planner"),
    tools=[free_days, trains, hotels],
    worker=PlanAndSolveAgentWorker(refine=False),
)
agents = [planner]


async def main() -> None:
    """Have the plan made, look at it, and run it round by round."""
    async with AgentRunner.local(planner, data_dir=None) as runner:
        task = await runner.create_task("Plan three days in Rome in May.")
        planned = await runner.run_step(task)
        print("Plan:", ", ".join(planned.output["sub_tasks"]))
        for step in await runner.get_upcoming_steps(task):
            print(f"  {step.step_id} waits for {', '.join(step.prev_steps) or 'nothing'}")
        while await runner.get_upcoming_steps(task):
            outputs = await runner.run_steps_in_queue(task)
            print("Side by side:" if len(outputs) > 1 else "One step:")
            for output in outputs:
                print(f"  {output.task_step.step_id}: {output}")
        print("Answer:", await runner.finalize_response(task))


if __name__ == "__main__":
    asyncio.run(main())
