"""`Runner.run_sync`: the run lives on the shared loop, the caller's functions on the caller's."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Agent, RunHooks, Runner, sync
from holdfast.engine.loop import shared_loop
from holdfast.testing import ScriptedModel


@pytest.fixture(scope="module")
def clerk() -> Agent:
    return Agent(name="clerk", model=ScriptedModel(lambda _: "done"))


@pytest.fixture(scope="module")
def runner(clerk: Agent) -> Iterator[sync.AgentRunner]:
    with sync.AgentRunner.local(clerk, data_dir=None) as runner:
        yield runner


def test_a_blocking_run_uses_a_blocking_handle(clerk: Agent, runner: sync.AgentRunner) -> None:
    result = Runner.run_sync(clerk, "q", runner=runner, session=runner.session("s"))
    assert result.final_output == "done"
    assert [m.text for m in runner.session("s").chat_history()] == ["q", "done"]


def test_the_caller_s_functions_run_in_the_caller_s_thread(
    clerk: Agent, runner: sync.AgentRunner
) -> None:
    """One that blocks there does not stop the loop that the engine lives on."""
    threads: list[threading.Thread] = []

    async def nothing() -> str:
        return "alive"

    class Hooks(RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            threads.append(threading.current_thread())
            assert shared_loop().run(nothing()) == "alive"

    async def merged(history: list[Any], new: list[Any]) -> list[Any]:
        threads.append(threading.current_thread())
        return history + new

    config = {"session_input_callback": merged}
    for _ in range(2):
        result = Runner.run_sync(
            clerk, "q", runner=runner, session="t", hooks=Hooks(), run_config=config
        )
        assert result.final_output == "done"
    assert threads == [threading.current_thread()] * 4


def test_repeated_runs_leave_no_loop_and_the_thread_as_it_was(
    clerk: Agent, runner: sync.AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    Runner.run_sync(clerk, "q", runner=runner)  # makes the shared loop, which stays
    made: list[asyncio.AbstractEventLoop] = []
    new = asyncio.new_event_loop

    def noted() -> asyncio.AbstractEventLoop:
        made.append(new())
        return made[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", noted)
    own = new()
    asyncio.set_event_loop(own)
    try:
        for _ in range(3):
            Runner.run_sync(clerk, "q", runner=runner)
        assert asyncio.get_event_loop() is own
    finally:
        asyncio.set_event_loop(None)
        own.close()
    assert [loop.is_closed() for loop in made] == [True] * 3


async def test_a_blocking_run_is_refused_inside_a_loop(clerk: Agent) -> None:
    with pytest.raises(RuntimeError, match=r"await Runner\.run"):
        Runner.run_sync(clerk, "q")
