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
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import WorkflowHandle

from holdfast import Agent, AgentRunner, Effect, Task, ToolContext, tool
from holdfast.activities import heartbeat, long_calls
from holdfast.activities.data.source import Source
from holdfast.archive.archive import Archive
from holdfast.cli.following.history import TaskHistory
from holdfast.errors import ArchiveError, StepFailedError
from holdfast.task.data.calls import LONG_CALL, LongCall, Outcome
from holdfast.testing import FakeOpenAI
from tests.support.people import ask
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


class Disk:
    """What the archive is kept on; it may be full."""

    def __init__(self) -> None:
        self.is_full = True
        self.has_refused = False

    def fill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the archive refuse to keep anything."""
        put = Archive.aput

        async def put_if_there_is_room(archive: Archive, data: bytes) -> str:
            if self.is_full:
                self.has_refused = True
                raise ArchiveError("the disk is full")
            return await put(archive, data)

        monkeypatch.setattr(Archive, "aput", put_if_there_is_room)


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

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    await rolls(runner, task)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert digging.begun == {"a": 1}
    assert model.requests[-1].holds("found a")
    [call] = [e for e in await runner.audit(task) if e.kind == "tool_call"]
    assert (call.status, call.attempts, call.result) == ("done", 1, "found a")
    started = (await histories(runner.client, task.task_id))[0].events[0].event_time
    assert 0 < call.started < started.ToDatetime(UTC).timestamp() < call.ended
    happened = [each async for each in TaskHistory(runner.client, task.task_id).read(wait=False)]
    assert [(e.kind, e.text) for e in happened if e.name == "tool"] == [("returned", "found a")]
    assert {e.name for e in happened if e.kind == "command"} <= {"drop_step"}


async def test_a_call_goes_on_over_several_rollovers_in_a_loop_of_its_own(
    rig: Rig, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests-1")
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
    model.call("dig", {"place": "a"})
    model.reply("done")
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


async def cancelled(runner: AgentRunner, task: Task) -> None:
    await runner.client.get_workflow_handle(task.task_id).cancel()
    await until_status(runner, task, "abandoned")


@pytest.mark.parametrize("cut", [abandoned, undone, cancelled])
@pytest.mark.parametrize("is_rejoined", [True, False])
async def test_a_tool_is_cut_off_also_after_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI, cut: Cut, *, is_rejoined: bool
) -> None:
    digging = Digging()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    runner = await make_runner(dig, roll_events=ROLL)
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


async def test_an_error_of_a_tool_is_told_after_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    digging = Digging()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        await digging(place)
        raise RuntimeError("hit a pipe")

    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("sorry")
    task = await begin(runner, digging)
    await rolls(runner, task)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "sorry"
    assert model.requests[-1].holds("hit a pipe")


async def test_what_stops_a_step_beside_a_long_call_is_told_after_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    digging, is_broken = Digging(), True

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    def wants_approval(_: dict[str, Any]) -> bool:
        if is_broken:
            raise RuntimeError("cannot say")
        return False

    @tool(effect="read", needs_approval=wants_approval)
    async def look() -> str:
        """Look."""
        return "seen"

    runner = await make_runner(dig, look, roll_events=ROLL)
    model.calls([("look", {}), ("dig", {"place": "a"})])
    model.reply("done")
    task = await begin(runner, digging)
    await rolls(runner, task)
    asked = asyncio.create_task(runner.run_task(task))
    digging.let_go.set()
    with pytest.raises(StepFailedError, match="cannot say"):
        await asked
    is_broken = False
    assert (await runner.run_task(task)).output == "done"
    assert digging.begun == {"a": 1}


async def test_a_paused_task_takes_its_long_call_to_its_end_after_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    digging = Digging()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    runner = await make_runner(dig, roll_events=ROLL)
    model.calls([("dig", {"place": "a"}), ("dig", {"place": "b"})])
    task = await begin(runner, digging)
    await runner.pause(task, by="ann")
    await rolls(runner, task)
    digging.let_go.set()

    async def is_done() -> bool:
        return len(await runner.get_completed_steps(task)) == 1

    await until(is_done)
    assert (await runner.get_task(task)).status == "paused"
    assert digging.begun == {"a": 1, "b": 1}
    model.reply("done")
    await runner.resume(task)
    assert (await runner.run_task(task)).output == "done"


async def test_a_call_beside_one_that_waits_for_a_person_goes_on_over_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    digging = Digging()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    @tool(effect="irreversible", needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    runner = await make_runner(dig, pay, roll_events=ROLL)
    model.calls([("pay", {}), ("dig", {"place": "a"})])
    model.reply("done")
    task = await begin(runner, digging)
    await rolls(runner, task)
    await runner.approve(await ask(runner, task), by="ann")
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert (await activities_of(runner.client, task.task_id)).count("tool") == 2


async def test_a_task_does_not_continue_as_new_while_a_short_call_runs(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging = Digging()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    monkeypatch.setattr(long_calls, "LONG_SECONDS", 600.0)
    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await rolls(runner, task)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert "rejoin" not in await activities_of(runner.client, task.task_id)


async def test_a_message_that_no_activity_of_the_task_has_sent_is_refused(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging = Digging()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    monkeypatch.setattr(long_calls, "LONG_SECONDS", 600.0)
    runner = await make_runner(dig)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    handle = runner.client.get_workflow_handle(task.task_id)
    await handle.signal(LONG_CALL, LongCall(id="mine", branch=0, n=1, i=0, secret="guessed"))
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    refused = [e for e in await runner.audit(task) if e.kind == "refused"]
    assert [e.reason for e in refused] == ["It did not come from an activity of this task."]
    assert (await event_types(runner.client, task.task_id)).count("WORKFLOW_EXECUTION_SIGNALED")


async def test_a_tool_that_repeats_itself_does_so_after_a_rollover(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    digging = Digging()

    @tool(effect="irreversible", max_attempts=2, retry_on=(ConnectionError,))
    async def dig(place: str) -> str:
        """Dig."""
        found = await digging(place)
        if digging.begun[place] == 1:
            raise ConnectionError("the ground is frozen")
        return found

    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    await rolls(runner, task)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert digging.begun == {"a": 2}
    assert model.requests[-1].holds("found a")


async def test_a_repeatable_call_whose_outcome_is_lost_after_a_rollover_is_made_again(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging, lost = Digging(), list[Outcome]()
    written = Source.written

    async def written_once(source: Source, outcome: Outcome) -> None:
        if not lost:
            lost.append(outcome)
            raise ArchiveError("the disk is full")
        await written(source, outcome)

    @tool(effect="read")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    monkeypatch.setattr(Source, "written", written_once)
    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    await rolls(runner, task)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert digging.begun == {"a": 2}


async def test_an_abandon_stops_a_tool_whose_task_cannot_continue_as_new(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging, disk = Digging(), Disk()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    task = await begin(runner, digging)
    disk.fill(monkeypatch)

    async def is_cut() -> bool:
        return digging.cut == {"a": 1}

    async def is_refused() -> bool:
        await send(runner, task)
        return disk.has_refused

    await until(is_refused)
    await runner.abandon(task, by="ann", reason="enough")
    await until(is_cut)
    disk.is_full = False
    await until_status(runner, task, "abandoned")


async def test_the_outcome_of_a_call_that_ends_before_its_task_could_continue_as_new_is_kept(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging, disk = Digging(), Disk()

    @tool(effect="irreversible")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    disk.fill(monkeypatch)

    async def is_refused() -> bool:
        await send(runner, task)
        return disk.has_refused

    async def is_recorded() -> bool:
        history = (await histories(runner.client, task.task_id))[0]
        return "ACTIVITY_TASK_COMPLETED" in {
            EventType.Name(e.event_type).removeprefix("EVENT_TYPE_") for e in history.events[-15:]
        }

    await until(is_refused)
    digging.let_go.set()
    await until(is_recorded)
    disk.is_full = False
    assert (await runner.run_task(task)).output == "done"
    assert digging.begun == {"a": 1}
    assert "rejoin" not in await activities_of(runner.client, task.task_id)


async def test_a_call_that_is_asked_about_keeps_its_task_from_continuing_as_new(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging, disk, probing, known = Digging(), Disk(), asyncio.Event(), asyncio.Event()

    async def probe(ctx: ToolContext, effect: Effect) -> str:
        probing.set()
        await known.wait()
        return "it was dug"

    @tool(effect="irreversible", probe=probe, timeout_seconds=3)
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    disk.fill(monkeypatch)

    async def is_held_up() -> bool:
        await send(runner, task)
        return disk.has_refused

    await until(is_held_up)
    await asyncio.wait_for(probing.wait(), 60)
    disk.is_full = False

    async def archived() -> bool:
        found = await runner.client.get_workflow_handle(task.task_id).describe()
        pending = found.raw_description.pending_activities
        return all(each.activity_type.name != "archive" for each in pending)

    await until(archived)
    assert len(await histories(runner.client, task.task_id)) == 1
    known.set()
    output = await runner.run_task(task)
    assert output.output == "done"
    assert model.requests[1].results == {"call_1": "it was dug"}
    assert digging.begun == {"a": 1}


async def test_a_signal_that_cannot_be_encoded_once_leaves_the_call_alive(
    make_runner: MakeRunner, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    digging, failed, told = Digging(), asyncio.Event(), asyncio.Event()
    signal: Any = WorkflowHandle.signal  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    async def signal_at_second_try(handle: Any, name: str, *given: Any, **options: Any) -> None:
        if name == LONG_CALL and not failed.is_set():
            failed.set()
            raise RuntimeError("the key of the payload codec cannot be read")
        await signal(handle, name, *given, **options)
        if name == LONG_CALL:
            told.set()

    monkeypatch.setattr(WorkflowHandle, "signal", signal_at_second_try)

    @tool(effect="read")
    async def dig(place: str) -> str:
        """Dig."""
        return await digging(place)

    runner = await make_runner(dig, roll_events=ROLL)
    model.call("dig", {"place": "a"})
    model.reply("done")
    task = await begin(runner, digging)
    await asyncio.wait_for(told.wait(), 60)
    digging.let_go.set()
    assert (await runner.run_task(task)).output == "done"
    assert digging.begun == {"a": 1}
