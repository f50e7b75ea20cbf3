"""Fields of agents and handoffs: assigned, checked, and read as a run would read them."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import (
    Agent,
    AgentOutputSchema,
    HoldfastError,
    ModelBehaviorError,
    ModelSettings,
    RunContextWrapper,
    TaskStep,
    TaskStepOutput,
    ToolContext,
    UserError,
    handoff,
    tool,
)
from holdfast.activities.data.registry import live
from holdfast.agents.handoffs.handoff import Handoff
from holdfast.agents_sdk import AgentBase, AgentOutputSchemaBase
from holdfast.workers import AgentWorker, ReActAgentWorker, StepContext

CTX: RunContextWrapper[Any] = RunContextWrapper("Ann")


def look(where: str) -> str:
    """Look."""
    return where


def pay() -> str:
    """Pay."""
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


class Count(BaseModel):
    """Input of a handoff."""

    a: int


class Marked(AgentOutputSchemaBase):
    """Takes JSON lists alone, and gives them marked."""

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return "Marked"

    def json_schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "integer"}, "title": "Marked"}

    def is_strict_json_schema(self) -> bool:
        return False

    def validate_json(self, json_str: str) -> Any:
        data = json.loads(json_str)
        if not isinstance(data, list):
            msg = "no list"
            raise ModelBehaviorError(msg)
        return ("marked", data)


# ---- assignment


def test_an_agent_is_changed_by_assignment_and_told_so() -> None:
    agent: Agent[str] = Agent("clerk", "Does accounts.")
    assert isinstance(agent, AgentBase)
    before = live(agent)
    agent.instructions = "Be brief."
    agent.tools = [look]
    agent.model_settings = ModelSettings(temperature=0.5)
    agent.handoffs.append(Agent("boss"))
    agent.output_type = list[int]
    agent.worker = ReActAgentWorker()
    now = live(agent)
    assert (before.instructions, now.instructions) == ("", "Be brief.")
    assert [spec.name for spec in now.tools] == ["look"]
    assert [member.name for member in now.team] == ["boss"]
    assert now.output is not None
    assert before.tools == ()
    assert agent.made_worker is agent.worker


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", 5, ""),
        ("name", "", ""),
        ("instructions", 5, ""),
        ("handoff_description", 5, ""),
        ("tools", look, "tools must be a list of tools or functions, .*got function"),
        ("tools", "look", "tools must be a list .*got str: 'look'"),
        ("tools", [5], ""),
        ("handoffs", 5, ""),
        ("model", 5, r"model=5 \(int\) is not a model. Pass a name"),
        ("model_settings", 5, ""),
        ("input_guardrails", [look], ""),
        ("output_guardrails", look, ""),
        ("hooks", 5, ""),
        ("tool_use_behavior", 5, ""),
        ("reset_tool_choice", "no", ""),
        ("worker", ReActAgentWorker, r"is a class. Pass an object of it: ReActAgentWorker\(\)"),
        ("worker", None, r"worker=None \(NoneType\) has no method run_step"),
        ("worker", "react", r"worker='react' \(str\) has no method run_step"),
        ("worker", Blocking(), r"Blocking.run_step\(step, ctx\) must be `async def`"),
        ("worker", Foreign(), r"Foreign.finalize_task is called with \(task, transcript\)"),
        ("tool_retriever", 5, r"tool_retriever=5 \(int\) cannot choose tools"),
        ("output_type", "text", ""),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_the_old_one_stays(
    field: str, value: Any, said: str
) -> None:
    agent = Agent("clerk")
    old = getattr(agent, field)
    given: dict[str, Any] = {"name": "clerk", field: value}
    with pytest.raises(HoldfastError, match=said or None):
        setattr(agent, field, value)
    assert getattr(agent, field) is old
    with pytest.raises(HoldfastError, match=said or None):
        Agent(**given)


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


def test_a_clone_has_the_same_lists_and_a_list_of_its_own_when_given() -> None:
    agent = Agent("clerk", tools=[look])
    same, other = agent.clone(name="same"), agent.clone(tools=[look, pay])
    assert same.tools is agent.tools
    same.tools.append(pay)
    assert [each.name for each in agent.made_tools] == ["look", "pay"]
    other.tools.clear()
    assert len(agent.tools) == 2


# ---- what a run would read


async def test_instructions_are_made_for_a_context() -> None:
    async def greet(ctx: RunContextWrapper[str], agent: Agent[str]) -> str:
        return f"Greet {ctx.context} as {agent.name}."

    def brief(ctx: RunContextWrapper[str], _agent: Any) -> str:
        return f"For {ctx.context}."

    agent: Agent[str] = Agent("clerk")
    assert await agent.get_system_prompt(CTX) is None
    agent.instructions = "Be brief."
    assert await agent.get_system_prompt(CTX) == "Be brief."
    agent.instructions = brief
    assert await agent.get_system_prompt(CTX) == "For Ann."
    agent.instructions = greet
    assert await agent.get_system_prompt(CTX) == "Greet Ann as clerk."
    agent.instructions = lambda: ""
    with pytest.raises(TypeError, match="exactly 2 arguments"):
        await agent.get_system_prompt(CTX)


async def test_the_tools_are_those_that_are_offered_in_a_context() -> None:
    @tool(is_enabled=lambda ctx, _agent: ctx.context == "Bob")
    def hidden() -> str:
        return ""

    agent: Agent[str] = Agent("clerk", tools=[look, hidden])
    assert [each.name for each in await agent.get_all_tools(CTX)] == ["look"]
    offered = await agent.get_all_tools(RunContextWrapper("Bob"))
    assert [each.name for each in offered] == ["look", "hidden"]


# ---- handoffs


def by_hand(**more: Any) -> Handoff[Any, Agent]:
    async def invoke(_ctx: Any, arguments: str) -> Agent:
        return Agent(arguments)

    return Handoff("ask_boss", "Ask.", {"type": "object"}, invoke, "boss", **more)


async def test_a_handoff_is_made_by_hand_and_called() -> None:
    made = by_hand()
    assert made.spec().name == "ask_boss"
    to = await made.on_invoke_handoff(CTX, "boss")
    assert made.get_transfer_message(to) == '{"assistant": "boss"}'
    assert Handoff.default_tool_name(to) == "transfer_to_boss"


async def test_a_handoff_made_by_hand_must_lead_to_its_target() -> None:
    other = by_hand(target=Agent("boss")).tool()
    ctx = ToolContext(tool_name="ask_boss")
    assert await other.run(ctx, "boss") == '{"assistant": "boss"}'
    with pytest.raises(Exception, match="must return agent 'boss'"):
        await other.run(ctx, "clerk")


async def test_a_handoff_reads_its_input_when_it_is_invoked() -> None:
    said: list[Any] = []
    boss = Agent("boss")

    def note(_ctx: Any, given: Count) -> None:
        said.append(given)

    made = handoff(boss, on_handoff=note, input_type=Count)
    assert await made.on_invoke_handoff(CTX, '{"a": 1}') is boss
    assert said == [Count(a=1)]
    with pytest.raises(ModelBehaviorError, match="do not fit"):
        await made.on_invoke_handoff(CTX, '{"a": "1"}')


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tool_name", "no name"),
        ("tool_description", 5),
        ("input_json_schema", "text"),
        ("on_invoke_handoff", 5),
        ("input_filter", 5),
        ("is_enabled", "yes"),
        ("target", "boss"),
    ],
)
def test_a_field_of_a_handoff_is_checked(field: str, value: Any) -> None:
    with pytest.raises(UserError):
        setattr(handoff(Agent("boss")), field, value)


# ---- output schemas


def test_a_schema_says_what_it_is() -> None:
    schema = AgentOutputSchema(list[int])
    assert schema.name() == "list[int]"
    assert not schema.is_plain_text()
    assert schema.is_strict_json_schema()
    assert schema.json_schema()["required"] == ["response"]
    assert schema.validate_json('{"response": [1]}') == [1]
    with pytest.raises(ModelBehaviorError):
        schema.validate_json('{"response": ["1"]}')
    with pytest.raises(UserError, match="plain text"):
        AgentOutputSchema(str).json_schema()


def test_a_schema_of_the_user_is_used_as_it_is() -> None:
    made = Agent("clerk", output_type=Marked()).made_output
    assert made is not None
    assert made.spec().json_schema == {"type": "array", "items": {"type": "integer"}}
    assert made.spec().strict is False
    assert made.read("[1, 2]") == [1, 2]
    assert made.load([1, 2]) == ("marked", [1, 2])
    assert made.dump([3]) == ([3], "[3]")
    for text in ("5", "no JSON"):
        with pytest.raises(ModelBehaviorError):
            made.read(text)
    with pytest.raises(UserError, match="does not fit output_type Marked"):
        made.dump(5)
