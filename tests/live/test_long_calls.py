"""Tasks that continue as new while a tool runs: it goes on, and its outcome arrives once."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from holdfast import Agent, AgentRunner, Task, ToolContext, tool
from holdfast.activities import heartbeat, long_calls
from holdfast.agents.tools.decorator import Tool
from holdfast.cli.following.history import TaskHistory
from holdfast.task.data.agent_snapshot import ToolEffect
from holdfast.task.data.calls import LONG_CALL, LongCall
from holdfast.testing import FakeOpenAI, call
from tests.support.rig import (
    MakeRunner,
    Rig,
    activities_of,
    event_types,
    histories,
    until,
    until_status,
)

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

    async def begun() -> bool:
        return bool(digging.begun)

    await until(begun)
    return task


async def send(runner: AgentRunner, task: Task) -> None:
    """Send some commands."""
    handle = runner.client.get_workflow_handle(task.task_id)
    for _ in range(10):
        await handle.signal("drop_step", {"id": uuid.uuid4().hex, "step": "none"})


async def rolls(runner: AgentRunner, task: Task, count: int = 2) -> None:
    """Send commands until a task has so many runs."""

    async def rolled() -> bool:
        await send(runner, task)
        return len(await histories(runner.client, task.task_id)) >= count

    await until(rolled)


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


async def test_a_task_continues_as_new_while_a_tool_runs_and_gets_its_outcome_once(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    digging = Digging()

    runner = await make_runner(digging.tool("irreversible"), roll_events=ROLL)
    model.add(call("dig", {"place": "a"}), "done")
    task = await begin(runner, digging)
    await rolls(runner, task)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert digging.begun == {"a": 1}
    assert model.requests[-1].holds("found a")
    [found] = [e for e in await runner.audit(task) if e.kind == "tool_call"]
    assert (found.status, found.attempts, found.result) == ("done", 1, "found a")
    started = (await histories(runner.client, task.task_id))[0].events[0].event_time
    assert 0 < found.started < started.ToDatetime(UTC).timestamp() < found.ended
    happened = [each async for each in TaskHistory(runner.client, task.task_id).read(wait=False)]
    assert [(e.kind, e.text) for e in happened if e.name == "tool"] == [("returned", "found a")]
    assert {e.name for e in happened if e.kind == "command"} <= {"drop_step"}


@pytest.mark.usefixtures("api")
async def test_a_call_goes_on_over_several_rollovers_in_a_loop_of_its_own(
    rig: Rig, model: FakeOpenAI
) -> None:
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
    model.add(call("dig", {"place": "a"}), "done")
    task = await begin(runner, digging)
    for count in (2, 3):
        await rolls(runner, task, count)
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
    make_runner: MakeRunner, model: FakeOpenAI, cut: Cut, *, is_rejoined: bool
) -> None:
    digging = Digging()

    runner = await make_runner(digging.tool("irreversible"), roll_events=ROLL)
    model.call("dig", {"place": "a"})
    task = await begin(runner, digging)
    await rolls(runner, task)
    if is_rejoined:
        await until_rejoined(runner, task)
    await cut(runner, task)

    async def is_cut() -> bool:
        return digging.cut == {"a": 1}

    await until(is_cut)
    assert digging.begun == {"a": 1}


async def test_a_message_that_no_activity_of_the_task_has_sent_is_refused(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging = Digging()

    monkeypatch.setattr(long_calls, "LONG_SECONDS", 600.0)
    runner = await make_runner(digging.tool("irreversible"))
    model.add(call("dig", {"place": "a"}), "done")
    task = await begin(runner, digging)
    handle = runner.client.get_workflow_handle(task.task_id)
    await handle.signal(LONG_CALL, LongCall(id="mine", branch=0, n=1, i=0, secret="guessed"))
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    refused = [e for e in await runner.audit(task) if e.kind == "refused"]
    assert [e.reason for e in refused] == ["It did not come from an activity of this task."]
    assert (await event_types(runner.client, task.task_id)).count("WORKFLOW_EXECUTION_SIGNALED")
