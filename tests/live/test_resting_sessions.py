"""Sessions that are unused for long rest in the archive, and lose nothing by it."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from holdfast.archive.archive import record_name
from holdfast.archive.session_commits import DAYS
from holdfast.errors import ArchiveError, InvalidArgumentError, SessionClosedError
from holdfast.values.messages import user
from tests.support.rig import Rig, finish_a_task, forget, until
from tests.support.workers import said

SOON = str(0.3 / 86_400)


async def until_resting(client: Client, *ids: str) -> None:
    """Wait until these sessions have no open workflow."""
    done = WorkflowExecutionStatus.COMPLETED
    for id in ids:
        await until(client.get_workflow_handle(id).describe, lambda found: found.status is done)


async def test_a_run_reads_the_memory_of_a_session_that_rests_and_adds_to_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DAYS, SOON)
    runner = await rig.make()
    session = runner.session("kim")
    for k, is_forgotten in enumerate((False, True, False)):
        rig.model.reply(f"answer {k}")
        await finish_a_task(runner, f"question {k}", session="kim")
        await until_resting(runner.client, session.id)
        if is_forgotten:
            await forget(runner.client, session.id)
        found = await session.verify()
        assert list(found) == []
        assert any("its workflow has" in each for each in found.proved) is not is_forgotten
        assert len(await session.get_items()) == 2 * (k + 1)
        assert (await session.usage()).requests == k + 1
        assert await session.standing_rules(ended=True) == []
    assert len(rig.model.requests[-1].messages) == 5
    assert await session.pop_item() is not None
    assert len(await session.get_items()) == 5


async def test_a_session_is_not_begun_anew_without_its_record_or_once_it_was_ended_from_outside(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DAYS, SOON)
    runner = await rig.make()
    lost, ended = runner.session("lost"), runner.session("ended")
    for session in (lost, ended):
        await session.append([user("hello")])
        await until_resting(runner.client, session.id)
    runner.archive.delete_record(record_name("sessions", lost.id))
    for use in (lost.chat_history, lambda: lost.append([user("more")])):
        with pytest.raises(ArchiveError, match="rests, and the archive"):
            await use()
    monkeypatch.setenv(DAYS, "0")
    await ended.append([user("more")])
    assert len(await ended.chat_history()) == 2  # its run has begun
    await runner.client.get_workflow_handle(ended.id).terminate()
    assert said(await ended.chat_history()) == [("user", "hello"), ("user", "more")]
    with pytest.raises(SessionClosedError):
        await ended.append([user("lost")])


@pytest.mark.parametrize("days", ["a day", "-1", "nan", "inf", "1e9"])
async def test_a_wrong_number_of_days_is_refused(
    days: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DAYS, days)
    runner: Any = await rig.make()
    with pytest.raises(InvalidArgumentError, match="Set a number of days"):
        await runner.session("s").append([user("hello")])
