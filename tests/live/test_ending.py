"""The end of a task: once accepted it stays, also when closing fails, and no step runs after it."""

from contextlib import suppress
from typing import Any

import pytest
from temporalio.service import RPCError

from holdfast import AgentRunner, StepFailedError, Task
from holdfast.activities import task_end as closing
from holdfast.archive import segments
from holdfast.errors import CommandRefusedError, TaskClosedError
from holdfast.values.messages import user
from tests.support.rig import Rig, run_a_task, step_a_task, until_status
from tests.support.workers import Counting


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


async def abandoned(runner: AgentRunner) -> Task:
    """Make a task of which one step is done and whose abandon was accepted, but has failed."""
    task = await step_a_task(runner)
    await runner.abandon(task, "enough", by="ann")
    found = await until_status(runner, task, "needs_attention")
    assert "will be abandoned (ann: enough)" in found.error
    assert "the disk is full" in found.error
    return task


async def answered(runner: AgentRunner) -> Task:
    """Make a task that has its answer and could not be finalized."""
    task = await run_a_task(runner, session=f"of {runner.app}")
    with pytest.raises(StepFailedError, match=r"could not be closed.*the disk is full"):
        await runner.finalize_response(task)
    return task


async def test_a_finalize_that_failed_stays_and_its_turn_is_in_the_session_once(
    rig: Rig, record: Record
) -> None:
    runner = await rig.make(worker=Counting(2))
    task = await answered(runner)
    session = runner.session(f"of {runner.app}")
    with pytest.raises(CommandRefusedError, match="will be finished"):
        await runner.undo_step(task)
    with pytest.raises(CommandRefusedError, match="will be finished"):
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


async def test_a_session_that_ends_just_before_the_commit_gets_nothing_and_the_task_goes_on_to_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await rig.make(worker=Counting(1))
    session = runner.session(f"of {runner.app}")
    await session.append([user("before")])

    async def write_and_end(*given: Any) -> Any:
        written = await segments.write_record(*given)
        with suppress(RPCError):
            await runner.client.get_workflow_handle(session.id).terminate("by an operator")
        return written

    monkeypatch.setattr(closing, "write_record", write_and_end)
    task = await run_a_task(runner, session=session.name)
    with pytest.raises(
        StepFailedError, match="ended with Temporal's own tools; its memory is still there"
    ):
        await runner.finalize_response(task)
    with pytest.raises(StepFailedError, match="workflow reset"):
        await runner.finalize_response(task)
    await runner.abandon(task, "give it up", by="ann")
    await until_status(runner, task, "abandoned")
    assert (await runner.get_task(task)).error.endswith("abandoned by ann: give it up")
    assert [m.text for m in await session.chat_history()] == ["before"]
