"""StructuredPlannerAgent, step by step, as programs of LlamaIndex 0.10 and of 0.11 drive it."""

import json

import pytest

from holdfast.llama_index import FunctionCallingAgentWorker, StructuredPlannerAgent
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from tests.support.llama_index_runs import engine, run

__all__ = ["engine", "run"]


def sub_task(name: str, *dependencies: str) -> dict[str, object]:
    return {
        "name": name,
        "input": f"Do {name}.",
        "expected_output": "one word",
        "dependencies": [*dependencies],
    }


class Planner:
    """A model that plans two sub-tasks, and then one."""

    def __init__(self) -> None:
        self.refined = ""

    def __call__(self, request: ModelRequest) -> str:
        said = request.messages[-1].text
        if request.output is None:
            return f"{said} Done."
        if "Remaining sub-tasks" in said:
            self.refined = said
            return json.dumps({"sub_tasks": [sub_task("sum", "left")]})
        return json.dumps({"sub_tasks": [sub_task("left"), sub_task("sum", "left")]})


def planner(model: Planner) -> StructuredPlannerAgent:
    llm = ScriptedModel(model)
    return StructuredPlannerAgent(FunctionCallingAgentWorker.from_tools([], llm=llm))


def test_sub_tasks_are_done_and_marked_by_their_names_and_a_plan_is_refined_by_it() -> None:
    model = Planner()
    agent = planner(model)
    plan_id = agent.create_plan("Add.")
    said: list[str] = []
    while names := agent.get_next_tasks(plan_id):
        said += [str(agent.run_task(name)) for name in names]
        for name in names:
            agent.mark_task_complete(plan_id, name)
            agent.refine_plan(*((plan_id, "Add.") if name == "left" else ("Add.", plan_id)))
        assert "left:\nDo left. Done." in model.refined
    assert said == ["Do left. Done.", "Do sum. Done."]
    assert [each.name for each in agent.state.plan_dict[plan_id].sub_tasks] == ["left", "sum"]
    with pytest.raises(KeyError, match="right"):
        agent.mark_task_complete(plan_id, "right")
    with pytest.raises(ValueError, match="There is no plan 'p1'"):
        agent.refine_plan("Add.", "p1")


def test_a_sub_task_that_is_marked_and_was_not_run_gave_nothing_also_beside_another_plan() -> None:
    model = Planner()
    agent = planner(model)
    plan_id, _ = agent.create_plan("Add."), agent.create_plan("Add again.")
    agent.mark_task_complete(plan_id, "left")
    agent.refine_plan("Add.", plan_id)
    assert "Done:\nleft:\n\n" in model.refined
    assert agent.list_tasks() == []
    assert agent.get_next_tasks(plan_id) == ["sum"]
