"""Verification: what somebody changes who can write to the archive is found, wherever it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentRunner, Budget, Task, tool
from holdfast.agents.tools.decorator import Tool
from holdfast.archive.archive import Archive, record_name
from holdfast.archive.bytestore import blob_path
from holdfast.archive.segments import read_segment
from holdfast.errors import MaxTurnsExceeded
from holdfast.reading.audit.verification import (
    CONSISTENT,
    ENDED_OUTSIDE,
    IN_RUN,
    SEEN,
    TURNS,
    UNSIGNED,
)
from holdfast.task.data.records import SegmentRef, record_digest
from holdfast.task.data.state import SessionState
from holdfast.task.data.wire import EntriesPage, EntriesRequest
from holdfast.testing import FakeOpenAI
from holdfast.values.base import extend_json
from tests.live.test_audit import long_task, rewrite
from tests.support.rig import Rig, histories, read_record, until_status


@pytest.fixture
def pay() -> Tool:
    @tool(effect="read")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return pay


def file_of(archive: Archive, sha256: str) -> Path:
    """Return the file of a value, made writable."""
    file = Path(archive.url) / blob_path(sha256)
    file.chmod(0o644)
    return file


# ---- how a run ended


async def ended(runner: AgentRunner, model: FakeOpenAI, how: str) -> Task:
    """Bring a task that has paid to one of its ends."""
    model.call("pay", {"amount": 5})
    if how != "failed":
        model.reply("done")
        task = await runner.create_task("q")
        await runner.run_task(task)
        if how == "finished":
            await runner.finalize_response(task)
        elif how == "abandoned":
            await runner.abandon(task, "enough", by="ann")
        else:
            await runner.client.get_workflow_handle(task.task_id).cancel()
    else:
        task = await runner.create_task("q", budget=Budget(max_turns=1, on_exceeded="fail"))
        with pytest.raises(MaxTurnsExceeded):
            await runner.run_task(task)
    await until_status(runner, task, "abandoned" if how == "cancelled" else how)
    return task


def pay_more(_: dict[str, Any], entries: list[Any]) -> None:
    """Let another amount have been paid, with messages that fit it."""
    text = json.dumps(entries).replace("paid 5", "paid 9")
    entries[:] = json.loads(text)


def no_opens(record: dict[str, Any], _: list[Any]) -> None:
    record["opens"] = "none"


def no_event(_: dict[str, Any], entries: list[Any]) -> None:
    entries[0] = {"event": {"kind": 7}}


@pytest.mark.parametrize("how", ["finished", "failed", "abandoned", "cancelled"])
async def test_the_history_of_a_run_seals_its_record_and_one_that_was_changed_is_found(
    rig: Rig, pay: Tool, how: str
) -> None:
    runner = await rig.make(pay)
    task = await ended(runner, rig.model, how)
    archive, name = rig.engine.archive, record_name("tasks", task.task_id)
    record: Any = archive.get_record(name)
    [history] = await histories(runner.client, task.task_id)
    before, end = history.events[-2:]
    memo = before.workflow_properties_modified_event_attributes.upserted_memo.fields
    if how == "finished":
        [kept] = end.workflow_execution_completed_event_attributes.result.payloads
        sealed = json.loads(kept.data)["seal"]
    elif how == "cancelled":
        sealed = json.loads(memo["seal"].data)
    else:
        failure = end.workflow_execution_failed_event_attributes.failure
        [kept] = failure.application_failure_info.details.payloads
        sealed = json.loads(kept.data)["seal"]
    assert bool(memo) == (how == "cancelled")
    assert sealed["record"] == record_digest(record)
    assert (await runner.verify(task)).proved == [CONSISTENT, IN_RUN]
    rewrite(archive, task.task_id, pay_more)
    found = await runner.verify(task)
    assert "it was rewritten" in found[-1].text
    assert found.unproved == [UNSIGNED, found.unproved[-1]]
    archive.put_record(name, record)
    for change in (no_opens, no_event):
        rewrite(archive, task.task_id, change)
        assert any("cannot be read" in each.text for each in await runner.verify(task))
        archive.put_record(name, record)
    archive.delete_record(name)
    found = await runner.verify(task)
    assert "the archive has no" in found[0].text
    assert ENDED_OUTSIDE not in found.unproved


# ---- segments


def removed(file: Path, _: Path) -> None:
    file.unlink()


def truncated(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def emptied(file: Path, _: Path) -> None:
    file.write_bytes(b"")


def older(file: Path, before: Path) -> None:
    file.write_bytes(before.read_bytes())


async def test_a_last_segment_that_is_lost_or_older_or_left_out_is_found(rig: Rig) -> None:
    runner, task = await long_task(rig)
    archive = rig.engine.archive
    before: SegmentRef | None = None
    for is_open in (True, False):
        if is_open:
            handle = runner.client.get_workflow_handle(task.task_id)
            page = await handle.query("entries", EntriesRequest(), result_type=EntriesPage)
            newest = page.segment
        else:
            await runner.abandon(task, "enough", by="ann")
            await until_status(runner, task, "abandoned")
            record = await read_record(archive, task.task_id)
            assert record is not None
            newest = record.segment
        assert newest is not None
        before = (await read_segment(archive, newest)).before
        assert before is not None
        file, second = file_of(archive, newest.sha256), file_of(archive, before.sha256)
        whole = file.read_bytes()
        for damage in (removed, truncated, emptied, older):
            damage(file, second)
            damaged, lost = await runner.verify(task)
            assert "are damaged" in damaged.text
            assert newest.sha256 in damaged.text
            assert "cannot be found" in lost.text
            file.write_bytes(whole)
    assert await runner.verify(task) == []
    assert before is not None
    entries: list[Any] = []
    segment: SegmentRef | None = before
    while segment is not None:
        part = await read_segment(archive, segment)
        entries[:0] = part.entries
        segment = part.before
    name = record_name("tasks", task.task_id)
    data: Any = archive.get_record(name)
    ledger = [len(entries), extend_json("", entries)]
    archive.put_record(name, {**data, "segment": before.wire(), "ledger": ledger})
    [found] = await runner.verify(task)
    assert "it was rewritten" in found.text


# ---- sessions


async def talk(runner: AgentRunner, model: FakeOpenAI, count: int) -> list[str]:
    """Have a conversation in session s; return the ids of its tasks."""
    ids: list[str] = []
    for k in range(count):
        model.reply(f"answer {k}")
        ids.append((await runner.chat(f"question {k}", session="s")).task_id)
    return ids


async def state_of(runner: AgentRunner) -> SessionState:
    handle = runner.client.get_workflow_handle(runner.session("s").id)
    state: SessionState = await handle.query("state", result_type=SessionState)
    return state


async def test_a_turn_of_a_session_that_was_changed_is_found_by_all_that_know_of_it(
    rig: Rig,
) -> None:
    runner = await rig.make()
    first, second, third = await talk(runner, rig.model, 3)
    session = runner.session("s")
    intact = await session.verify()
    assert (intact, intact.proved, intact.unproved) == ([], [TURNS], [])
    for task in (first, second, third):
        known = await runner.verify(task)
        assert (known, known.proved) == ([], [CONSISTENT, SEEN, IN_RUN])
    turn = (await state_of(runner)).commits[1]
    file = file_of(rig.engine.archive, turn.sha256)
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"answer 1", b"answer 9"))
    [found] = await session.verify()
    assert f"turn 2 of the session, of task {second!r}, is damaged" in found.text
    assert await runner.verify(first) == []
    for task in (second, third):
        damaged = await runner.verify(task)
        assert all(turn.sha256 in each.text for each in damaged)
        assert len(damaged) == 1
        assert SEEN not in damaged.proved
    file.write_bytes(whole)  # equal turns of other tests are the same file
    assert await session.verify() == []
