"""Agents that share a name while their run goes on, and what may change until it goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from holdfast import Agent, AgentRunner, Runner, UserError, handoff
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall
from tests.live.test_shared_names import (
    HOME,
    PAY,
    circle,
    named_test,
    pay,
    rest_of,
)


@pytest.fixture(scope="module")
async def runner() -> AsyncGenerator[AgentRunner]:
    async with AgentRunner.local(HOME, data_dir=None) as made:
        yield made


def led(instructions: str, *, swapped: bool = False) -> Agent:
    """An agent with a name of its own, that hands over to one of two that share a name."""
    payer, other = named_test(PAY, "It is paid.", tools=[pay]), named_test("Nothing.", tools=[pay])
    handoffs = [handoff(payer, "to_payer"), handoff(other, "to_other")]
    model = ScriptedModel([ToolCall(id="", name="to_payer", arguments="{}")])
    handoffs = handoffs[::-1] if swapped else handoffs
    return Agent(name="boss", model=model, instructions=instructions, handoffs=handoffs)


async def test_an_agent_with_a_name_of_its_own_may_be_edited_but_not_lead_to_others(
    runner: AgentRunner,
) -> None:
    stopped = await Runner.run(led("One."), "q", runner=runner)
    state = stopped.to_state()
    state.approve(stopped.interruptions[0])
    with pytest.raises(UserError, match="'boss' now is declared otherwise than the one"):
        await Runner.run(rest_of(led("One.", swapped=True)), state, runner=runner)
    result = await Runner.run(rest_of(led("Two.")), state, runner=runner)
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
