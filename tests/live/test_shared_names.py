"""Runs in which several agents have one name: each has an identity of its own in the task."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Agent,
    AgentRunner,
    GuardrailFunctionOutput,
    OutputGuardrail,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    ToolContext,
    UserError,
    handoff,
    tool,
)
from holdfast.agents.agent_base import names_apart
from holdfast.agents.items.run_items import HandoffOutputItem
from holdfast.testing import ScriptedModel
from holdfast.values.code.code_refs import forget
from holdfast.values.messages import ToolCall
from tests.support.runs import pay

HAND_OVER = ToolCall(id="", name="transfer_to_test", arguments="{}")
HOME = Agent(name="at home", model="offline")
PAY = ToolCall(id="", name="pay", arguments="{}")


@pytest.fixture(scope="module")
async def runner() -> AsyncGenerator[AgentRunner]:
    async with AgentRunner.local(HOME, data_dir=None) as made:
        yield made


def named_test(*script: ToolCall | str, **options: Any) -> Agent[Any]:
    return Agent(name="test", model=ScriptedModel(script), **options)


def circle() -> list[Agent]:
    """Three agents of one name, each of which hands over to the next one, the last to the first."""
    team = [
        named_test(HAND_OVER, "It is done.", instructions="I am the first."),
        named_test(HAND_OVER, instructions="I am the second."),
        named_test(HAND_OVER, instructions="I am the third."),
    ]
    for agent, other in zip(team, [*team[1:], team[0]], strict=True):
        agent.handoffs.append(other)
    return team


async def agents_of(runner: AgentRunner, task_id: str) -> list[str]:
    """Names of the agents of a task's steps, as its record has them."""
    entries, _ = await runner.reader.ledger(task_id)
    return [entry.step.step.agent for entry in entries if entry.step is not None]


def who(result: RunResult) -> list[tuple[str, Any, Any]]:
    """The handoffs of a run, with the users' agents."""
    return [
        (item.raw_item["output"], item.source_agent, item.target_agent)
        for item in result.new_items
        if isinstance(item, HandoffOutputItem)
    ]


def check_circle(team: Sequence[Agent], result: RunResult) -> None:
    first, second, third = team
    assert result.final_output == "It is done."
    assert result.last_agent is first
    said = '{"assistant": "test"}'
    assert who(result) == [(said, first, second), (said, second, third), (said, third, first)]
    for (_, *found), wanted in zip(
        who(result), [(first, second), (second, third), (third, first)], strict=True
    ):
        assert all(one is other for one, other in zip(found, wanted, strict=True))
    asked = [item.agent for item in result.new_items if item.type == "handoff_call_item"]
    assert [id(agent) for agent in asked] == [id(agent) for agent in team]
    assert all(agent.name == "test" for agent in team)


async def test_agents_of_one_name_hand_over_in_a_circle(runner: AgentRunner) -> None:
    team = circle()
    result = await Runner.run(team[0], "q", runner=runner)
    check_circle(team, result)
    told = [agent.model.requests[0].instructions for agent in team]  # type: ignore[union-attr]
    assert told == ["I am the first.", "I am the second.", "I am the third."]


async def test_so_do_instructions_tools_predicates_guardrails_and_filters_of_the_model(
    runner: AgentRunner,
) -> None:
    seen: dict[str, Any] = {}

    def instructions(_ctx: Any, agent: Agent) -> str:
        seen["instructions"] = agent
        return ""

    def is_enabled(_ctx: Any, agent: Agent) -> bool:
        seen["predicate"] = agent
        return True

    def check(_ctx: Any, agent: Agent, _output: Any) -> GuardrailFunctionOutput:
        seen["guardrail"] = agent
        return GuardrailFunctionOutput(None, tripwire_triggered=False)

    @tool(is_enabled=is_enabled, effect="read")
    def look(ctx: ToolContext[Any]) -> str:
        seen["tool"], seen["its name"] = ctx.agent, ctx.agent_name
        return "seen"

    def before_model(data: Any) -> Any:
        seen["filter"] = data.agent
        return data.model_data

    second = named_test(
        ToolCall(id="", name="look", arguments="{}"),
        "done",
        instructions=instructions,
        tools=[look],
        output_guardrails=[OutputGuardrail(check)],
    )
    first = named_test(HAND_OVER, handoffs=[second])
    config = RunConfig(call_model_input_filter=before_model)
    result = await Runner.run(first, "q", runner=runner, run_config=config)
    wanted = {"instructions", "predicate", "guardrail", "filter", "tool"}
    assert seen["its name"] == "test"
    assert {name for name in wanted if seen[name] is second} == wanted
    assert result.output_guardrail_results[0].agent is second


def test_each_agent_gets_a_name_that_no_other_has() -> None:
    agents = [Agent(name=name) for name in ("a", "b", "a", "a#2", "b", "a", "a#2")]
    assert names_apart(agents) == ["a", "b", "a#3", "a#2", "b#2", "a#4", "a#2#2"]


def paying(*, swapped: bool = False, renamed: str = "") -> Agent:
    """An agent that hands over to another of its name, which pays; a third may be there, too."""
    payer = named_test(PAY, "It is paid.", instructions="You pay.", tools=[pay])
    other = named_test("Nothing.", instructions=f"You do something else.{renamed}")
    to_payer = handoff(payer, tool_name_override="to_payer")
    to_other = handoff(other, tool_name_override="to_other")
    call = ToolCall(id="", name="to_payer", arguments="{}")
    handoffs = [to_other, to_payer] if swapped else [to_payer, to_other]
    return named_test(call, handoffs=handoffs)


def rest_of(agent: Agent) -> Agent:
    """Let the agent that pays answer only: it has called its tool in an earlier process."""
    [payer] = [each.agent for each in agent.made_handoffs if each.tool_name == "to_payer"]
    payer.model = ScriptedModel(["It is paid."])
    return agent


async def end_process(runner: AgentRunner, task_id: str) -> None:
    """Let go of a run's own agents, as the end of its process does."""
    forget((await runner.reader.head(task_id)).run.code)


async def test_a_run_goes_on_with_the_same_program_in_another_process(tmp_path: Path) -> None:
    async with AgentRunner.local(HOME, data_dir=tmp_path) as one:
        stopped = await Runner.run(paying(), "q", runner=one)
        await end_process(one, stopped.task_id)
        text = stopped.to_state().to_string()
    again = rest_of(paying())
    async with AgentRunner.local(HOME, data_dir=tmp_path) as other:
        state = await RunState.from_string(again, text)
        [item] = state.get_interruptions()
        payer = again.handoffs[0].agent
        assert item.agent is payer
        state.approve(item)
        result = await Runner.run(again, state, runner=other)
        assert (result.final_output, result.last_agent is payer) == ("It is paid.", True)
        assert await agents_of(other, result.task_id) == ["", "test#2", "test#2"]


async def test_a_run_does_not_go_on_with_agents_that_have_changed_places(tmp_path: Path) -> None:
    async with AgentRunner.local(HOME, data_dir=tmp_path) as one:
        stopped = await Runner.run(paying(), "q", runner=one)
        await end_process(one, stopped.task_id)
    swapped = rest_of(paying(swapped=True))
    async with AgentRunner.local(HOME, data_dir=tmp_path) as other:
        state = RunState.of(stopped.task_id, stopped.interruptions)
        state.approve(stopped.interruptions[0])
        with pytest.raises(UserError, match=r"it may be another of them\. Nothing was changed"):
            await Runner.run(swapped, state, runner=other)
        result = await Runner.run(rest_of(paying()), state, runner=other)
        assert result.final_output == "It is paid."


async def test_the_state_of_a_streamed_run_in_progress_knows_its_agent(runner: AgentRunner) -> None:
    team = circle()
    streamed = Runner.run_streamed(team[0], "q", runner=runner)
    events = streamed.stream_events()
    told = [
        streamed.to_state().to_json()["runs"]
        async for event in events
        if event.type == "agent_updated_stream_event"
    ]
    assert told == ["test", "test#2", "test#3", "test"]
