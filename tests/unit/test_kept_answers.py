"""Answers in the archive that their tasks have not recorded yet."""

from pathlib import Path

import pytest

from holdfast.archive.archive import Archive
from holdfast.archive.kept_answers import drop_answers, drop_lanes, find_answer, keep_answer
from holdfast.task.data.wire import NOTHING_KEPT, KeptAnswer
from tests.support.master_keys import keys, logs_are_told_again

__all__ = ["logs_are_told_again"]

MINE = KeptAnswer(activity="run:7", runs={0: "digest"})


async def test_an_answer_is_found_by_its_activity_alone(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    await keep_answer(archive, "t", 0, MINE)
    assert await find_answer(archive, "t", 0, ("run:9", "run:7")) == MINE
    for task, lane, activity in (("t", 0, "run:8"), ("t", 1, "run:7"), ("t.0", 0, "run:7")):
        assert await find_answer(archive, task, lane, (activity, "")) == NOTHING_KEPT


async def test_an_answer_that_a_power_cut_has_damaged_counts_as_none(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    await keep_answer(archive, "t", 0, MINE)
    [file] = (tmp_path / "answers").iterdir()
    file.write_bytes(b"")
    assert await find_answer(archive, "t", 0, ("run:7",)) == NOTHING_KEPT


@pytest.mark.usefixtures("logs_told")
async def test_an_encrypted_answer_that_was_cut_anywhere_counts_as_none(tmp_path: Path) -> None:
    archive = Archive(tmp_path, keys=keys())
    await keep_answer(archive, "t", 0, MINE)
    [file] = (tmp_path / "answers").iterdir()
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert await find_answer(archive, "t", 0, ("run:7",)) == NOTHING_KEPT, length
    file.write_bytes(whole)
    assert await find_answer(archive, "t", 0, ("run:7",)) == MINE


async def test_the_answers_of_all_lanes_of_a_task_are_dropped(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    long = "long, " * 100
    for task in ("t", "t.0", "other", long):
        await keep_answer(archive, task, 2, MINE)
        await keep_answer(archive, task, 100, MINE)  # a task's first lanes may have nothing
    await drop_answers(archive, ["t", long])
    others = ["t.0.100", "t.0.2"]
    left = [f"answers/{each}.json" for each in ("other.100", "other.2", *others)]
    assert await archive.alist_records("answers") == left
    await drop_lanes(archive, "other", 101)
    assert await archive.alist_records("answers") == left[2:]
