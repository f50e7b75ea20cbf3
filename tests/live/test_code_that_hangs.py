"""Tools and other code of the user's that block, hang, or end the worker they run in."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Agent, Task, TaskStep, tool
from holdfast.activities import user_loop
from holdfast.errors import StepFailedError
from holdfast.testing import call
from holdfast.values.code.user_calls import tool_threads
from holdfast.workers import FunctionCallingAgentWorker
from tests.support.rig import Rig, finish_a_task

pytestmark = pytest.mark.usefixtures("api")


@pytest.fixture
def door() -> Iterator[threading.Event]:
    """Hold up code until the test is over."""
    made = threading.Event()
    yield made
    made.set()


def agent_with(*tools: Any, **options: Any) -> Agent:
    return Agent(name="agent", model="gpt-5-mini", tools=tools, **options)


async def test_a_tool_that_blocks_its_loop_is_named_in_the_log_and_then_to_a_person(
    rig: Rig,
    door: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(user_loop, "BLOCKED_SECONDS", 0.3)
    monkeypatch.setattr(user_loop, "GIVEN_UP_SECONDS", 1.0)

    @tool(effect="read")
    async def blocks() -> str:
        """Block the event loop."""
        door.wait()  # a lock of threads, in an async function
        return "done"

    await rig.serve(agent_with(blocks), own_loop=True)
    rig.model.call("blocks")
    runner = rig.runner()
    task = await runner.create_task("q")
    with caplog.at_level(logging.WARNING, "holdfast"):
        await runner.run_task(task)
    [asked] = await runner.pending_approvals(task)
    assert asked.kind == "unknown"
    assert "tool 'blocks'" in asked.text
    assert "blocked the event loop" in asked.text
    told = next(text for text in caplog.messages if "has been blocked" in text)
    assert "tool 'blocks'" in told
    assert "door.wait()" in told
    rig.model.reply("good")
    assert str(await runner.chat("another")) == "good"  # other tasks go on meanwhile


async def test_a_tool_that_cancels_all_tasks_of_its_loop_is_repeated_thrice_and_then_asked_about(
    rig: Rig,
) -> None:
    ran: list[str] = []

    @tool(effect="read")
    async def shut() -> None:
        """Shut everything down."""
        ran.append("shut")
        for each in asyncio.all_tasks():
            each.cancel()

    await rig.serve(agent_with(shut), own_loop=True)
    rig.model.call("shut")
    runner = rig.runner()
    task = await runner.create_task("q")
    async with asyncio.timeout(100):
        await runner.run_task(task)
    [asked] = await runner.pending_approvals(task)
    assert (asked.kind, "cancelled all tasks" in asked.text) == ("unknown", True)
    assert len(ran) == 4  # in the activity of its step, and three times in one of its own


async def test_a_predicate_that_hangs_is_tried_some_times_and_then_named(
    rig: Rig, door: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_loop, "LONGEST_CALL_SECONDS", 0.3)
    asked: list[int] = []

    def must_ask(_arguments: dict[str, Any]) -> bool:
        asked.append(1)
        door.wait()
        return False

    @tool(needs_approval=must_ask)
    async def pay() -> str:
        """Pay."""
        return "paid"

    await rig.serve(agent_with(pay), own_loop=True)
    rig.model.call("pay")
    with pytest.raises(StepFailedError, match="needs_approval of tool 'pay'") as raised:
        await rig.runner().chat("q")
    assert "must_ask" in str(raised.value)
    assert len(asked) == 3
    assert sum("must_ask" in name for name in tool_threads().names) == 3


async def test_code_that_blocks_where_a_text_or_a_session_is_made_runs_in_a_thread(
    rig: Rig,
) -> None:
    threads: dict[str, str] = {}

    def here(what: str) -> None:
        threads[what] = threading.current_thread().name.partition("_")[0]

    class Marking(FunctionCallingAgentWorker):
        def initialize_step(self, task: Task) -> TaskStep:
            here("initialize_step")
            return super().initialize_step(task)

        def finalize_task(self, task: Task, transcript: Any) -> Any:
            here("finalize_task")
            return super().finalize_task(task, transcript)

    def word(_ctx: Any, error: Exception) -> str:
        here("failure_error_function")
        return str(error)

    @tool(failure_error_function=word)
    async def fails() -> str:
        """Fail."""
        raise ValueError("no")

    await rig.serve(agent_with(fails, worker=Marking()), own_loop=True)
    rig.model.add(call("fails"), "done")
    await finish_a_task(rig.runner(), session="s")
    assert threads == dict.fromkeys(
        ("initialize_step", "failure_error_function", "finalize_task"), "holdfast-tool"
    )
