"""Agent: what it is made of is checked when it is made."""

from __future__ import annotations

import copy
from typing import Any, get_origin

import pytest

from holdfast import Agent, RunContextWrapper, TaskStep, TaskStepOutput, UserError
from holdfast.agents import agent_base
from holdfast.agents.guardrails import InputGuardrail, OutputGuardrail
from holdfast.agents.handoffs.handoff import Handoff
from holdfast.agents.hooks import AgentHooks, RunHooks
from holdfast.agents.runs.teams import members
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


class Many(Duck):
    def __init__(self, most: Any) -> None:
        self.steps_per_activity = most


class Own(AgentWorker):
    steps_per_activity = 0

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
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
        ({"worker": Many("8")}, r"Many.steps_per_activity counts .*1 or more; it was '8'"),
        ({"worker": Many(True)}, r"Many.steps_per_activity counts .*; it was True"),
        ({"worker": Many(None)}, r"Many.steps_per_activity counts .*; it was None"),
        ({"worker": Own()}, r"Own.steps_per_activity counts .*; it was 0"),
        ({"model": 5}, r"model=5 \(int\) is no model. Pass a name"),
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


def test_of_two_tools_of_one_name_the_last_is_offered() -> None:
    given = [look]
    agent: Any = Agent(name="a", tools=given)
    newer = copy.copy(agent.tools[0])
    agent.tools.append(newer)
    assert len(given) == 1
    assert agent.made_tools == (newer,)
    assert agent.tool("look") is newer
    assert agent.name_clashes == ["look"]


def test_an_agent_may_be_a_key() -> None:
    agent = Agent(name="a", tools=[look], handoffs=[Agent(name="b")])
    assert {agent: 1}[agent] == 1


def test_an_object_with_run_step_is_completed_and_keeps_its_name() -> None:
    duck = Duck()
    agent = Agent(name="a", worker=duck)
    assert agent.worker is duck
    assert isinstance(agent.made_worker, AgentWorker)
    assert agent.made_worker.max_parallel == 1
    assert agent.made_worker.steps_per_activity == 1
    assert Agent(name="a", worker=Many(3)).made_worker.steps_per_activity == 3
    assert type(agent.made_worker).initialize_step is AgentWorker.initialize_step
    assert type(agent.made_worker).__qualname__ == "Duck"
    assert agent.snapshot("m").worker == f"{__name__}.Duck"
    assert agent.clone(instructions="x").worker is duck


def test_types_name_the_context_as_in_the_agents_sdk() -> None:
    assert isinstance(Agent[dict[str, int]](name="typed"), Agent)
    typed = {
        AgentHooks[int]: AgentHooks,
        RunHooks[int]: RunHooks,
        InputGuardrail[int]: InputGuardrail,
        OutputGuardrail[int]: OutputGuardrail,
        RunContextWrapper[int]: RunContextWrapper,
        Handoff[int, Agent[int]]: Handoff,
    }
    for kind, origin in typed.items():
        assert get_origin(kind) is origin


def test_an_agent_that_makes_new_ones_without_end_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Endless(Agent):
        def nested(self) -> tuple[Agent, ...]:
            return (Endless(name="again"),)

    monkeypatch.setattr(agent_base, "MOST_AGENTS", 10)
    with pytest.raises(UserError, match="More than 10 agents can be reached, as 'again'"):
        members(Endless(name="first"))
