"""The end of a task: once accepted it stays, also when closing fails, and no step runs after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import (
    WorkflowFailureError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import CancelledError
from temporalio.service import RPCError

from holdfast import AgentRunner, Runner, StepFailedError, Task, tool
from holdfast.activities import task_end as closing
from holdfast.activities.data import source as sources
from holdfast.activities.data.source import Source
from holdfast.agents.tools.decorator import Tool
from holdfast.archive import segments
from holdfast.client.agent_runner.task_client.updates import TaskUpdates
from holdfast.errors import (
    ArchiveError,
    CommandRefusedError,
    TaskAbandonedError,
    TaskClosedError,
    UndoRefusedError,
)
from holdfast.task.data.state import TaskRecord
from holdfast.task.queries import last_page
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Message, user
from holdfast.workflows import activity_calls
from tests.support.people import World, ask, kinds
from tests.support.rig import (
    MakeAgent,
    MakeRunner,
    Rig,
    event_types,
    until,
    until_rolled,
    until_status,
)
from tests.support.workers import Counting

Verb = Callable[[AgentRunner, Task], Awaitable[Any]]

RUNS: dict[str, Verb] = {
    "run_step": lambda runner, task: runner.run_step(task),
    "run_task": lambda runner, task: runner.run_task(task),
    "run_steps_in_queue": lambda runner, task: runner.run_steps_in_queue(task),
    "finalize": lambda runner, task: runner.finalize_response(task),
}
CHANGES: dict[str, Verb] = {
    "undo_step": lambda runner, task: runner.undo_step(task),
    "rewind": lambda runner, task: runner.rewind(task, to="s1"),
    "pause": lambda runner, task: runner.pause(task),
    "give_feedback": lambda runner, task: runner.give_feedback(task, "more", when="queued"),
    "edit_step": lambda runner, task: runner.edit_step(task, "s2", "other"),
    "drop_step": lambda runner, task: runner.drop_step(task, "s2"),
}


class Record:
    """Stands in for the function that writes the record of a closed task.

    Attributes:
        broken: Whether it fails, as a full disk does.
        tried: How often it was called.
    """

    def __init__(self) -> None:
        self.broken = True
        self.tried = 0

    async def __call__(self, *given: Any) -> Any:
        self.tried += 1
        if self.broken:
            msg = "the disk is full"
            raise ValueError(msg)
        return await segments.write_record(*given)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    made = Record()
    monkeypatch.setattr(closing, "write_record", made)
    return made


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def book(world: World) -> Tool:
    @tool(undo=lambda effect: world.done.append("cancel"), undo_needs_approval=True)
    async def book() -> str:
        """Book."""
        world.done.append("book")
        return "booked"

    return book


async def abandoned(runner: AgentRunner) -> Task:
    """Make a task of which one step is done and whose abandon was accepted, but has failed."""
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.abandon(task, "enough", by="ann")
    found = await until_status(runner, task, "needs_attention")
    assert "is to be abandoned (ann: enough)" in found.error
    assert "the disk is full" in found.error
    return task


async def test_after_an_accepted_abandon_no_step_runs_nothing_is_changed_and_requests_try_to_close(
    make_runner: MakeRunner, record: Record
) -> None:
    runner = await make_runner(worker=Counting(3), roll_events=50)
    task = await abandoned(runner)
    upcoming = await runner.get_upcoming_steps(task)
    for change in CHANGES.values():
        with pytest.raises(CommandRefusedError, match=r"abandoned \(ann: enough\).*disk is full"):
            await change(runner, task)
    # Twice: the first attempt goes on by an activity. What changes a task tries no end again.
    assert record.tried == 2
    for number, run in enumerate(RUNS.values()):
        with pytest.raises(StepFailedError, match=r"could not be closed.*the disk is full"):
            await run(runner, task)
        assert record.tried == 3 + number
    for _ in range(15):
        with pytest.raises(CommandRefusedError):
            await runner.pause(task)
    await until_rolled(runner.client, task.task_id)
    found = await runner.get_task(task)
    assert (found.status, found.steps) == ("needs_attention", 1)
    assert await runner.get_upcoming_steps(task) == upcoming
    record.broken = False
    with pytest.raises(TaskAbandonedError, match="ann: enough"):
        await runner.run_step(task)
    found = await runner.get_task(task)
    assert (found.status, found.steps) == ("abandoned", 1)
    assert (await kinds(runner, task)).count("closed") == 1
    for run in RUNS.values():
        with pytest.raises(TaskClosedError):
            await run(runner, task)
    assert await runner.verify(task) == []


async def test_a_decision_after_an_accepted_abandon_is_refused_without_the_one_before(
    make_runner: MakeRunner, model: FakeOpenAI, record: Record
) -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model.call("pay")
    runner = await make_runner(pay)
    task = await runner.create_task("q")
    await runner.run_step(task)
    approval = await ask(runner, task)
    await runner.approve(approval, by="ann")
    await runner.run_step(task)
    await runner.abandon(task, "enough", by="ann")
    await until_status(runner, task, "needs_attention")
    with pytest.raises(CommandRefusedError, match="is to be abandoned") as caught:
        await runner.approve(approval, by="ben")
    assert not caught.value.is_decided
    record.broken = False
    await runner.resume(task)
    await until_status(runner, task, "abandoned")


async def test_a_run_that_goes_on_while_its_task_closes_raises_what_ended_it(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing_begun, may_close = asyncio.Event(), asyncio.Event()
    look = TaskUpdates.ended

    async def held(*given: Any) -> Any:
        closing_begun.set()
        await may_close.wait()
        return await segments.write_record(*given)

    async def looked(updates: TaskUpdates, task_id: str) -> TaskRecord | None:
        found = await look(updates, task_id)
        may_close.set()
        return found

    monkeypatch.setattr(closing, "write_record", held)
    monkeypatch.setattr(TaskUpdates, "ended", looked)
    runner = await make_runner(worker=Counting(3))
    task = await runner.create_task("q")
    await runner.run_step(task)
    await runner.abandon(task, "enough", by="ann")
    await closing_begun.wait()
    with pytest.raises(TaskAbandonedError, match="ann: enough"):
        await runner.run_on(task)


async def test_an_end_is_tried_again_by_itself(make_runner: MakeRunner, record: Record) -> None:
    runner = await make_runner(worker=Counting(3), heartbeat=1)
    task = await abandoned(runner)

    async def tried_again() -> bool:
        return record.tried > 2

    await until(tried_again)
    record.broken = False
    await until_status(runner, task, "abandoned")


async def test_children_are_told_once_of_an_end_that_is_tried_again(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, record: Record
) -> None:
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.reply("helped")
    task = await runner.create_task("q")
    await runner.run_step(task)
    child = f"{task.task_id}~0.1.0.0"
    await runner.abandon(task, "enough", by="ann")
    for each in (task, child):
        await until_status(runner, each, "needs_attention")
    with pytest.raises(StepFailedError, match="could not be closed"):
        await runner.run_step(task)
    types = await event_types(runner.client, child)
    assert types.count("WORKFLOW_EXECUTION_SIGNALED") == 1
    record.broken = False
    for each in (child, task):
        await runner.resume(each)
        await until_status(runner, each, "abandoned")


async def test_a_child_that_cannot_close_stands_in_the_way_of_an_undo_and_is_not_forgotten(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, record: Record
) -> None:
    helper = make_agent(name="helper")
    await rig.serve(make_agent(helper.as_tool(), name="agent"))
    runner = rig.runner()
    model.call("helper", {"input": "a"})
    model.reply("helped")
    task = await runner.create_task("q")
    await runner.run_step(task)
    child = f"{task.task_id}~0.1.0.0"
    await runner.abandon(child, "enough", by="ann")
    await until_status(runner, child, "needs_attention")
    with pytest.raises(UndoRefusedError, match=r"is to be abandoned \(ann: enough\)"):
        await runner.undo_step(task)
    record.broken = False
    with pytest.raises(UndoRefusedError):  # it has the child closed
        await runner.undo_step(task)
    await until_status(runner, child, "abandoned")
    await runner.undo_step(task, "keep")
    await runner.abandon(task, "enough")


async def reasons(runner: AgentRunner, task: Task) -> list[str]:
    """List why a task was closed."""
    return [event.reason for event in await runner.audit(task) if event.kind == "closed"]


async def answered(runner: AgentRunner) -> Task:
    """Make a task that has its answer and could not be finalized."""
    task = await runner.create_task("q", session=f"of {runner.app}")
    await runner.run_task(task)
    with pytest.raises(StepFailedError, match=r"could not be closed.*the disk is full"):
        await runner.finalize_response(task)
    return task


async def test_a_finalize_that_failed_stays_and_its_turn_is_in_the_session_once(
    make_runner: MakeRunner, record: Record
) -> None:
    runner = await make_runner(worker=Counting(2))
    task = await answered(runner)
    session = runner.session(f"of {runner.app}")
    with pytest.raises(CommandRefusedError, match="is to be finished"):
        await runner.undo_step(task)
    with pytest.raises(CommandRefusedError, match="is to be finished"):
        await runner.give_feedback(task, "more", when="queued")
    for _ in range(2):
        with pytest.raises(StepFailedError, match="could not be closed"):
            await runner.finalize_response(task)
    assert await session.chat_history() == []
    record.broken = False
    assert (await runner.run_task(task)).output["count"] == 2
    assert (await runner.get_task(task)).status == "finished"
    assert [m.text for m in await session.chat_history()] == ["q", "counted to 2"]
    with pytest.raises(TaskClosedError):
        await runner.run_step(task)


async def test_an_abandon_in_the_place_of_a_finalize_leaves_nothing_in_the_session(
    make_runner: MakeRunner, record: Record
) -> None:
    runner = await make_runner(worker=Counting(2))
    task = await answered(runner)
    session = runner.session(f"of {runner.app}")
    following = await runner.create_task("next", session=session.name)
    record.broken = False
    await runner.abandon(task, "give it up", by="ann")
    await until_status(runner, task, "abandoned")
    assert await reasons(runner, task) == ["", "ann: give it up"]
    await runner.run_task(following)
    await runner.finalize_response(following)
    assert [m.text for m in await session.chat_history()] == ["next", "counted to 2"]
    assert await runner.verify(task) == []


async def test_a_cancellation_in_the_place_of_a_verdict_ends_the_task_as_abandoned(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI, record: Record
) -> None:
    agent, runner = make_agent(), rig.runner()
    await rig.serve(agent)
    session = runner.session("s")
    model.call("nope")
    with pytest.raises(StepFailedError, match="could not be closed") as caught:
        await Runner.run(agent, "q", runner=runner, session=session)
    record.broken = False
    handle = runner.client.get_workflow_handle(caught.value.task_id)
    await handle.cancel()
    await until_status(runner, caught.value.task_id, "abandoned")
    assert await session.chat_history() == []
    with pytest.raises(WorkflowFailureError) as ended:
        await handle.result()
    assert isinstance(ended.value.cause, CancelledError)


async def test_what_would_be_lost_with_the_steps_is_refused_in_the_middle_of_an_undo(
    make_runner: MakeRunner, model: FakeOpenAI, book: Tool, world: World
) -> None:
    runner = await make_runner(book)
    model.call("book")
    model.reply("booked it")
    task = await runner.create_task("q", session=f"of {runner.app}")
    await runner.run_task(task)
    undoing = await runner.client.get_workflow_handle(task.task_id).start_update(  # pyright: ignore[reportUnknownMemberType]  temporalio's types
        "undo", {"to": 0}, wait_for_stage=WorkflowUpdateStage.COMPLETED
    )
    assert (await undoing.result())["status"] == "waiting"
    approval = await ask(runner, task)
    for verb in ("give_feedback", "edit_step", "drop_step"):
        with pytest.raises(CommandRefusedError, match="undo of the task is in progress"):
            await CHANGES[verb](runner, task)
    with pytest.raises(CommandRefusedError, match="undo of the task is in progress"):
        await runner.finalize_response(task)
    await runner.pause(task, by="ann")
    await runner.resume(task, by="ann")
    await runner.approve(approval, "ann")
    await until_status(runner, task, "running")
    assert world.done == ["book", "cancel"]
    assert await runner.session(f"of {runner.app}").chat_history() == []
    await runner.abandon(task, "enough")


async def test_a_session_that_ends_just_before_the_commit_gets_nothing_and_the_task_goes_on_to_wait(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await make_runner(worker=Counting(1))
    session = runner.session(f"of {runner.app}")
    await session.append([user("before")])

    async def write_and_end(*given: Any) -> Any:
        written = await segments.write_record(*given)
        with suppress(RPCError):
            await runner.client.get_workflow_handle(session.id).terminate("by an operator")
        return written

    monkeypatch.setattr(closing, "write_record", write_and_end)
    task = await runner.create_task("q", session=session.name)
    await runner.run_task(task)
    with pytest.raises(StepFailedError, match=r"did not get the task's turn.*not found"):
        await runner.finalize_response(task)
    with pytest.raises(StepFailedError, match="workflow reset"):
        await runner.finalize_response(task)
    await runner.abandon(task, "give it up", by="ann")
    await until_status(runner, task, "abandoned")
    assert (await runner.get_task(task)).error.endswith("abandoned by ann: give it up")
    assert [m.text for m in await session.chat_history()] == ["before"]


async def test_a_task_that_closes_is_asked_only_at_a_further_attempt(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    entries = Source.entries

    async def asked(source: Source, **more: Any) -> Any:
        tried.append("asked")
        return await entries(source, **more)

    async def written(*given: Any) -> Any:
        tried.append("written")
        if tried == ["written"]:
            msg = "the disk is away"
            raise ArchiveError(msg)
        return await segments.write_record(*given)

    monkeypatch.setattr(Source, "entries", asked)
    monkeypatch.setattr(closing, "write_record", written)
    runner = await make_runner(worker=Counting(2))
    first = await runner.create_task("q")
    await runner.run_task(first)
    await runner.finalize_response(first)
    assert tried == ["written", "asked", "written"]
    second = await runner.create_task("q")
    await runner.run_task(second)
    await runner.finalize_response(second)
    assert tried[3:] == ["written"]
    assert await runner.verify(first) == await runner.verify(second) == []


class Changing(Counting):
    """Changes the state that it is shown when its task ends, and fails at first."""

    def __init__(self) -> None:
        super().__init__(1)
        self.found: list[Any] = []

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Note what is in the state, and change it."""
        kept: Any = task.extra_state["kept"]
        self.found.append(list(kept))
        kept.append("changed")
        if len(self.found) == 1:
            msg = "not yet"
            raise ValueError(msg)
        return super().finalize_task(task, transcript)


async def test_what_finalize_task_changes_in_place_is_not_the_state_of_the_task(
    make_runner: MakeRunner,
) -> None:
    worker = Changing()
    runner = await make_runner(worker=worker)
    task = await runner.create_task("q", session="s", extra_state={"kept": []})
    await runner.run_task(task)
    with pytest.raises(StepFailedError, match="not yet"):
        await runner.finalize_response(task)
    found = await runner.get_task(task)
    assert (found.status, found.extra_state) == ("needs_attention", {"kept": []})
    assert await runner.session("s").chat_history() == []
    await runner.finalize_response(task)
    assert len(await runner.session("s").chat_history()) == 2
    assert worker.found == [[], []]


async def test_a_task_that_another_process_stores_leaves_nothing_behind(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untaken(*_: object) -> None:
        """Take nothing, as in another process."""

    given: list[Any] = []

    def noted(*what: Any) -> None:
        given.extend(what)
        last_page.hand_over(*what)

    monkeypatch.setattr(sources, "take", untaken)
    monkeypatch.setattr(activity_calls, "hand_over", noted)
    runner = await make_runner(worker=Counting(1))
    task = await runner.create_task("q")
    await runner.run_task(task)
    await runner.finalize_response(task)
    ledger, name, run_id = given
    assert name == task.task_id
    assert last_page.take(name, run_id, ledger.chain) is None
