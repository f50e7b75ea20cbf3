"""Tasks that continue as new while a tool runs: it goes on, and its outcome arrives once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from holdfast import Agent, AgentRunner, Task, ToolContext, tool
from holdfast.activities import heartbeat, long_calls
from holdfast.agents.tools.decorator import Tool
from holdfast.task.data.head import ToolEffect
from holdfast.testing import call
from tests.support.rig import Rig, activities_of, roll, until, until_status

ROLL = 60


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls count as long at once, and show many signs of life."""
    monkeypatch.setattr(long_calls, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "FASTEST_SECONDS", 0.2)


class Digging:
    """A tool that digs until it is let go, in whatever loop it runs."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.let_go = threading.Event()

    def tool(self, effect: ToolEffect) -> Tool[..., Any]:
        """Make a tool of it."""

        @tool(effect=effect)
        async def dig(place: str) -> str:
            """Dig."""
            return await self(place)

        return dig

    async def __call__(self, place: str) -> str:
        self.begun[place] += 1
        try:
            while not self.let_go.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cut[place] += 1
            raise
        return f"found {place}"


async def begin(runner: AgentRunner, digging: Digging) -> Task:
    """Create a task, and wait until it digs."""
    task = await runner.create_task("q", step_mode="automatic")

    await until(lambda: bool(digging.begun))
    return task


async def until_rejoined(runner: AgentRunner, task: Task) -> None:
    """Wait until the process of the tool has found its place in the task's present run."""

    async def rejoined() -> bool:
        found = await runner.client.get_workflow_handle(task.task_id).describe()
        return any(
            pending.activity_type.name == "rejoin"
            and pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            and pending.HasField("last_heartbeat_time")
            for pending in found.raw_description.pending_activities
        )

    await until(rejoined)


@pytest.mark.usefixtures("api")
async def test_a_call_goes_on_over_several_rollovers_in_a_loop_of_its_own(rig: Rig) -> None:
    digging, beats = Digging(), list[int]()

    @tool(effect="irreversible")
    async def dig(ctx: ToolContext, place: str) -> str:
        """Dig."""
        ctx.heartbeat({"depth": 1})
        ctx.state["hole"] = "x" * 300_000
        found = await digging(place)
        beats.append(ctx.attempt)
        return found

    await rig.serve(Agent(name="agent", model="gpt-5-mini", tools=[dig]), own_loop=True)
    runner = rig.runner(roll_events=ROLL)
    rig.model.add(call("dig", {"place": "a"}), "done")
    task = await begin(runner, digging)
    for _ in range(2):
        await roll(runner, task)
        await until_rejoined(runner, task)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert (digging.begun, beats) == ({"a": 1}, [1])
    assert len((await runner.get_task(task)).extra_state["hole"]) == 300_000
    assert (await activities_of(runner.client, task.task_id)).count("tool") == 1


Cut = Callable[[AgentRunner, Task], Awaitable[object]]


async def abandoned(runner: AgentRunner, task: Task) -> None:
    await runner.abandon(task, by="ann", reason="enough")
    await until_status(runner, task, "abandoned")


async def undone(runner: AgentRunner, task: Task) -> None:
    await runner.undo_step(task, residue="keep")


@pytest.mark.parametrize(("cut", "is_rejoined"), [(abandoned, True), (undone, False)])
async def test_a_tool_is_cut_off_also_after_a_rollover(
    rig: Rig, cut: Cut, *, is_rejoined: bool
) -> None:
    digging = Digging()

    runner = await rig.make(digging.tool("irreversible"), roll_events=ROLL)
    rig.model.call("dig", {"place": "a"})
    task = await begin(runner, digging)
    await roll(runner, task)
    if is_rejoined:
        await until_rejoined(runner, task)
    await cut(runner, task)

    await until(lambda: digging.cut == {"a": 1})
    assert digging.begun == {"a": 1}


async def test_a_call_that_can_show_no_signs_of_life_leaves_no_watch_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()

    async def secret(_: Any) -> str:
        failed.set()
        raise ValueError

    monkeypatch.setattr(long_calls.OwningTask, "secret", secret)
    runner = await rig.make(tool(failed.wait, name="dig", description="Dig."))
    rig.model.add(call("dig"), "done")
    assert (await runner.chat("q")).response == "done"
    assert "_stop_at_shutdown" not in str(asyncio.all_tasks())
