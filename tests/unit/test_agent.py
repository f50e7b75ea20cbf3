"""Agent: what it is made of is checked when it is made."""

from typing import Any

import pytest

from holdfast import Agent, TaskStep, TaskStepOutput, UserError
from holdfast.workers import AgentWorker, ReActAgentWorker, StepContext


def look() -> str:
    """Look."""
    return ""


class Duck:
    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return TaskStepOutput(output="quack", is_last=True)


class Blocking:
    def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return TaskStepOutput(output="quack", is_last=True)


class Foreign(Duck):
    def finalize_task(self, task: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"worker": ReActAgentWorker}, r"is a class. Pass an object of it: ReActAgentWorker\(\)"),
        ({"worker": None}, r"worker=None \(NoneType\) has no method run_step"),
        ({"worker": "react"}, r"worker='react' \(str\) has no method run_step"),
        ({"worker": Blocking()}, r"Blocking.run_step\(step, ctx\) must be `async def`"),
        ({"worker": Foreign()}, r"Foreign.finalize_task is called with \(task, transcript\)"),
        ({"model": 5}, r"model=5 \(int\) is not a model. Pass a name"),
        ({"tools": look}, "tools must be a list of tools or functions, .*got function"),
        ({"tools": "look"}, "tools must be a list .*got str: 'look'"),
        ({"tool_retriever": 5}, r"tool_retriever=5 \(int\) cannot choose tools"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        Agent(name="a", **given)


def test_tools_and_handoffs_may_be_appended() -> None:
    agent = Agent(name="a")
    told: Any = agent
    told.tools.append(look)
    told.handoffs.append(Agent(name="b"))
    assert agent.tool("look") is agent.tool("look") is agent.made_tools[0] is agent.tools[0]
    assert [spec.name for spec in agent.snapshot("m").tools] == ["look"]
    assert [each.name for each in agent.team()] == ["b"]
    assert (Agent(name="c").tools, Agent(name="c").handoffs) == ([], [])


def test_an_object_with_run_step_is_completed_and_keeps_its_name() -> None:
    duck = Duck()
    agent = Agent(name="a", worker=duck)
    assert agent.worker is duck
    assert isinstance(agent.made_worker, AgentWorker)
    assert agent.made_worker.max_parallel == 1
    assert type(agent.made_worker).initialize_step is AgentWorker.initialize_step
    assert type(agent.made_worker).__qualname__ == "Duck"
    assert agent.snapshot("m").worker == f"{__name__}.Duck"
    assert agent.clone(instructions="x").worker is duck
