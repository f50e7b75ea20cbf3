"""Agents that are made anew for each run, all of one name: each run has the very one it was given.

They differ in what no description tells, as in whose data a function closes over.
"""

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from holdfast import Agent, AgentRunner, RunContextWrapper, Runner, RunState, UserError, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.engine.dev_server.leases import serving
from holdfast.engine.dev_server.process import start_time
from holdfast.engine.dev_server.server import prepare, write_json
from holdfast.testing import ScriptedModel
from holdfast.values.messages import ToolCall

WAIT_SECONDS = 60
ASKS = ToolCall(id="", name="whoami", arguments="{}")


@pytest.fixture(scope="module")
async def runner() -> AsyncGenerator[AgentRunner]:
    async with AgentRunner.local(Agent(name="at home"), data_dir=None) as made:
        yield made


def whose(user: str, wait: threading.Event | None = None, *, needs_approval: bool = False) -> Tool:
    @tool(needs_approval=needs_approval, effect="read")
    def whoami() -> str:
        """Say whose data these are."""
        if wait is not None:
            wait.wait(WAIT_SECONDS)
        return f"data of {user}"

    return whoami


def assistant(user: str, *tools: Tool, script: tuple[ToolCall | str, ...] = ()) -> Agent:
    def instructions(_ctx: RunContextWrapper[None], _agent: Agent) -> str:
        return f"You serve {user}."

    return Agent(
        name="assistant",
        instructions=instructions,
        model=ScriptedModel(script or (ASKS, f"done for {user}")),
        tools=list(tools) or [whose(user)],
    )


def seen(agent: Agent) -> list[str]:
    """What the model of an agent was told last: its instructions and the result of its tool."""
    assert isinstance(agent.model, ScriptedModel)
    request = agent.model.requests[-1]
    results = [message.text for message in request.messages if message.role == "tool"]
    return [request.instructions, *results[-1:]]


async def test_runs_at_once_have_their_own_tools_instructions_and_models(
    runner: AgentRunner,
) -> None:
    others_are_done = threading.Event()
    ann = assistant("ann", whose("ann", others_are_done))
    running = asyncio.create_task(Runner.run(ann, "q", runner=runner))
    while not (isinstance(ann.model, ScriptedModel) and ann.model.calls):
        await asyncio.sleep(0.01)
    for user in ("bob", "carl"):
        agent = assistant(user)
        assert (await Runner.run(agent, "q", runner=runner)).final_output == f"done for {user}"
        assert seen(agent) == [f"You serve {user}.", f"data of {user}"]
    others_are_done.set()
    assert (await running).final_output == "done for ann"
    assert seen(ann) == ["You serve ann.", "data of ann"]


async def test_a_run_that_waits_for_a_person_goes_on_with_its_own_agent(
    runner: AgentRunner,
) -> None:
    ann = assistant("ann", whose("ann", needs_approval=True))
    stopped = await Runner.run(ann, "q", runner=runner)
    bob = assistant("bob", whose("bob", needs_approval=True))
    await Runner.run(bob, "q", runner=runner)
    state = stopped.to_state()
    state.approve(stopped.interruptions[0])
    assert (await Runner.run(bob, state, runner=runner)).final_output == "done for ann"
    assert seen(ann) == ["You serve ann.", "data of ann"]


async def test_so_have_agents_that_are_handed_to_or_called(runner: AgentRunner) -> None:
    def team(user: str) -> tuple[Agent, Agent]:
        helper = assistant(user)
        call = ToolCall(id="", name="transfer_to_assistant", arguments="{}")
        boss = Agent(name="boss", model=ScriptedModel([call]), handoffs=[helper])
        return boss, helper

    def nest(user: str) -> tuple[Agent, Agent]:
        helper = assistant(user)
        call = ToolCall(id="", name="assistant", arguments='{"input": "q"}')
        chief = Agent(
            name="chief", model=ScriptedModel([call, "so"]), tools=[helper.as_tool("assistant")]
        )
        return chief, helper

    teams = [team("ann"), nest("bob"), team("carl"), nest("dora")]
    results = await asyncio.gather(*(Runner.run(boss, "q", runner=runner) for boss, _ in teams))
    assert [each.final_output for each in results] == ["done for ann", "so", "done for carl", "so"]
    users = ["ann", "bob", "carl", "dora"]
    for user, (_, helper) in zip(users, teams, strict=True):
        assert seen(helper) == [f"You serve {user}.", f"data of {user}"]


async def test_an_agent_that_the_engine_was_made_with_keeps_its_name(runner: AgentRunner) -> None:
    other = Agent(name="at home", instructions="Be somebody else.", model=ScriptedModel(["no"]))
    with pytest.raises(UserError, match="Two different agents are named 'at home'"):
        await Runner.run(other, "q", runner=runner)


async def test_an_agent_is_let_go_when_its_run_is_over(runner: AgentRunner) -> None:
    async def run_one(user: str) -> weakref.ref[Agent]:
        agent = assistant(user, whose(user, needs_approval=True))
        stopped = await Runner.run(agent, "q", runner=runner)
        state = RunState.of(stopped.task_id)
        state.approve(stopped.interruptions[0])
        await Runner.run(agent, state, runner=runner)
        return weakref.ref(agent)

    gone, newest = [await run_one(user) for user in ("ann", "bob")]
    gc.collect()
    assert gone() is None
    assert newest() is not None  # it answers for tasks of its name


@tool(effect="read")
def look_up() -> str:
    """Look something up."""
    return "found"


def twins() -> tuple[Agent, Agent]:
    """Two agents of one name; the second could do what the first cannot."""
    first = Agent(name="helper", model=ScriptedModel(["from the first"]))
    return first, Agent(name="helper", model=ScriptedModel(["from the second"]), tools=[look_up])


def between() -> Agent:
    """Hands over to one of two twins, and beyond another agent to the other."""
    one, other = twins()
    relay = Agent(name="relay", handoffs=[other])
    return Agent(name="boss", model=ScriptedModel([]), handoffs=[one, relay])


def beside() -> Agent:
    """Hands over to one of two twins, and calls the other."""
    one, other = twins()
    tools = [other.as_tool("ask_helper")]
    return Agent(name="boss", model=ScriptedModel([]), handoffs=[one], tools=tools)


def above() -> Agent:
    """Hands over to an agent of its own name."""
    model = ScriptedModel([])
    return Agent(name="boss", model=model, handoffs=[Agent(name="boss", model=model)])


@pytest.mark.parametrize("team", [between, beside, above])
def test_no_runner_is_made_with_such_a_team(team: Callable[[], Agent]) -> None:
    with pytest.raises(UserError, match="Two agents are named"):
        AgentRunner.local(team(), data_dir=None)


def calculator(more: float) -> Agent:
    @tool(effect="read")
    def multiply(a: float, b: float) -> float:
        """Multiply two numbers."""
        return a * b + more

    return Agent(name="calculator", model="offline", tools=[multiply])


async def answers(runner: AgentRunner) -> set[str]:
    return {str(await runner.chat("What is 6 * 7?")) for _ in range(6)}


async def test_an_agent_that_is_made_again_with_other_code_answers_with_that_code_alone(
    tmp_path: Path,
) -> None:
    def local(agent: Agent) -> AgentRunner:
        return AgentRunner.local(agent, data_dir=tmp_path)

    async with local(Agent(name="other")) as lent, local(calculator(0)) as first:
        result = await Runner.run(calculator(5), "What is 6 * 7?", runner=lent)
        assert result.final_output == "The result of 6 * 7 is 47."
        assert await answers(first) == {"The result of 6 * 7 is 42."}
        async with local(calculator(1)) as second:
            assert await answers(second) == {"The result of 6 * 7 is 43."}
            assert await answers(first) == {"The result of 6 * 7 is 43."}


async def test_who_serves_what_another_process_serves_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(prepare(tmp_path), "hf:calculator"):
        [note] = (tmp_path / "serving").iterdir()
        other = os.getppid()
        write_json(note, {"pid": other, "started": start_time(other), "queue": "hf:calculator"})
        async with AgentRunner.local(calculator(0), Agent(name="else"), data_dir=tmp_path):
            [warning] = [each for each in caplog.messages if "Another process" in each]
    assert f"Another process ({other}) serves agent 'calculator'" in warning
