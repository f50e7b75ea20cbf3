"""Programs that make many agents, each of a name of its own."""

import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from holdfast import Agent, Runner
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.runner.engines import Engines
from holdfast.serving import embedded as local
from holdfast.testing import ScriptedModel
from holdfast.values.checks.ids import DEFAULT_APP
from holdfast.values.messages import ToolCall
from tests.support.runs import pay


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncGenerator[Engines]:
    made = Engines()
    made.configure(data_dir=str(tmp_path))
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_LENT", 2)
    monkeypatch.setattr(local, "IDLE_SECONDS", 0.0)


def agent_named(name: str) -> Agent:
    return Agent(name=name, model=ScriptedModel(["done"]))


def served(runner: AgentRunner) -> list[str]:
    """Name the apps that have a worker."""
    engine = runner._engine  # pyright: ignore[reportPrivateUsage]
    assert engine is not None
    return [f"a{k}" for k in range(20) if engine.serves(DEFAULT_APP, f"a{k}")]


async def test_agents_of_many_names_keep_a_few_workers_and_no_thread_each(engines: Engines) -> None:
    threads: list[int] = []
    runner = await engines.runner(agent_named("a0"))
    for k in range(8):
        agent = agent_named(f"a{k}")
        runner = await engines.runner(agent)
        assert (await Runner.run(agent, "q", runner=runner)).final_output == "done"
        threads.append(threading.active_count())
    # A task that has just ended may still be listed: its agent has a worker until the next run.
    assert served(runner)[-2:] == ["a6", "a7"]
    assert len(served(runner)) < 5
    assert threads[-1] <= threads[2] + 2
    again = agent_named("a0")
    runner = await engines.runner(again)
    assert (await Runner.run(again, "q", runner=runner)).final_output == "done"


async def test_an_agent_with_an_open_task_keeps_its_worker(engines: Engines) -> None:
    asks = ToolCall(id="", name="pay", arguments="{}")
    first = Agent(name="a0", model=ScriptedModel([asks, "done"]), tools=[pay])
    runner = await engines.runner(first)
    stopped = await Runner.run(first, "q", runner=runner)
    for k in range(1, 6):
        agent = agent_named(f"a{k}")
        await Runner.run(agent, "q", runner=await engines.runner(agent))
    assert "a0" in served(runner)
    state = stopped.to_state()
    state.approve(stopped.interruptions[0])
    assert (await Runner.run(first, state, runner=runner)).final_output == "done"
