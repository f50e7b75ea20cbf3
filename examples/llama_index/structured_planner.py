"""A plan of sub-tasks, at once and step by step; the model is offline.

python examples/llama_index/structured_planner.py
"""

from __future__ import annotations

import asyncio
import json

from holdfast import ToolCall
from holdfast.llama_index import (
    AgentChatResponse,
    FunctionCallingAgentWorker,
    QueryEngineTool,
    StructuredPlannerAgent,
    SubTask,
)
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

REPORTS = {"trams": "Trams fear strikes.", "ferries": "Ferries fear storms."}
REQUEST = "Sum up the risks of trams and ferries."
BOTH = "Put both together."


class Report:
    """One small report."""

    def __init__(self, text: str) -> None:
        self.text = text

    def query(self, question: str) -> str:
        del question
        return self.text


def sub_task(name: str, text: str, *dependencies: str) -> dict[str, object]:
    """Write a sub-task of a plan."""
    return {
        "name": name,
        "input": text,
        "expected_output": "one sentence",
        "dependencies": [*dependencies],
    }


def model(request: ModelRequest) -> str | ToolCall:
    """Stand in for a model that plans, looks things up, and puts them together."""
    print("(the model is asked)", flush=True)
    last = request.messages[-1]
    if request.output is not None:
        parts = [sub_task(name, f"Read the report on {name}.") for name in REPORTS]
        whole = sub_task("both", BOTH, *REPORTS)
        is_refined = "Remaining sub-tasks" in last.text
        return json.dumps({"sub_tasks": [whole] if is_refined else [*parts, whole]})
    if last.text == BOTH:
        known = [each.text for each in request.messages if each.role == "assistant" and each.text]
        return " ".join(sorted(known))
    if last.role == "user":
        name = last.text.removesuffix(".").rpartition(" ")[2]
        return ToolCall(id="", name=name, arguments='{"input": "risks"}')
    return last.text


tools = [
    QueryEngineTool.from_defaults(Report(text), name=name, description=f"The report on {name}.")
    for name, text in REPORTS.items()
]


async def one_by_one(agent: StructuredPlannerAgent) -> None:
    """Do the same by hand."""
    plan_id = agent.create_plan(REQUEST)
    for each in agent.state.plan_dict[plan_id].sub_tasks:
        print(f"{each.name} needs {list(each.dependencies)}", flush=True)
    done: list[tuple[SubTask, AgentChatResponse]] = []
    while following := agent.state.get_next_sub_tasks(plan_id):
        responses = await asyncio.gather(*(agent.arun_task(each.name) for each in following))
        for each, response in zip(following, responses, strict=True):
            print(f"{each.name}: {response}", flush=True)
            done.append((each, response))
            agent.state.add_completed_sub_task(plan_id, each)
        if agent.state.get_next_sub_tasks(plan_id):
            await agent.arefine_plan(plan_id, REQUEST, done)


def main() -> None:
    """Plan and do."""
    llm = ScriptedModel(model, name="planner")
    worker = FunctionCallingAgentWorker.from_tools(tools, llm=llm)
    agent = StructuredPlannerAgent(worker, tools=tools, verbose=True)
    print(f"At once: {agent.chat(REQUEST)}", flush=True)
    agent.reset()
    asyncio.run(one_by_one(agent))


if __name__ == "__main__":
    main()
