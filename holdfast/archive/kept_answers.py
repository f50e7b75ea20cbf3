"""Answers that are paid for, in the archive, until their tasks have recorded them.

The activity of a step runs calls that only read. If its worker is lost meanwhile, the answer that
asks for these calls must not be paid for once more, and Temporal has no result of the activity yet.
So the activity first writes the answer here: one small record for each lane of a task, which the
next answer replaces and the end of the task deletes.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from holdfast.archive.archive import Archive, record_name
from holdfast.archive.bytestore import OF_TASKS, folder_of
from holdfast.errors import ArchiveError, is_torn
from holdfast.task.data.wire import NOTHING_KEPT, KeptAnswer
from holdfast.values.checks.gate import is_object
from holdfast.values.text.logs import log

ANSWERS = "answers"


async def keep_answer(archive: Archive, task_id: str, lane: int, kept: KeptAnswer) -> None:
    """Write what an activity must not lose, in place of what its lane has kept before.

    It outlasts the worker's process. After a power cut the answer may have to be paid for again: to
    force each to the disk takes longer than many tools.

    Raises:
        ArchiveError: The archive cannot be written.
    """
    await archive.aput_record(_name(task_id, lane), kept.wire(), forced=False)


async def find_answer(
    archive: Archive, task_id: str, lane: int, activities: Collection[str]
) -> KeptAnswer:
    """Return what one of these activities has kept; nothing if it was another one, or none.

    Raises:
        ArchiveError: The archive cannot be read.
    """
    try:
        found = await archive.afind_record(_name(task_id, lane))
    except ArchiveError as error:
        if not is_torn(error):
            raise
        log.warning("An answer is lost that was kept just before a power cut: %s", error)
        return NOTHING_KEPT
    if is_object(found) and found.get("activity") in activities:
        return KeptAnswer.model_validate(found)
    return NOTHING_KEPT


async def drop_lanes(archive: Archive, task_id: str, lanes: int) -> None:
    """Delete what the first lanes of a task have kept: its ledger has it.

    Raises:
        ArchiveError: The archive cannot be written.
    """
    for lane in range(lanes):
        await archive.adelete_record(_name(task_id, lane))


async def drop_answers(archive: Archive, tasks: Collection[str]) -> None:
    """Delete what any lane of deleted or erased tasks has kept.

    Raises:
        ArchiveError: The archive cannot be written.
    """
    lanes = {folder_of(ANSWERS, task_id) for task_id in tasks}
    for name in await archive.alist_records(ANSWERS):
        if name.removesuffix(".json").rpartition(".")[0] in lanes:
            await archive.adelete_record(name)


async def drop_rest(archive: Archive, tasks: Collection[str]) -> None:
    """Delete what is kept of tasks apart from their records: their ids may be used again.

    That is their answers, the marks of their calls, their other ends, and what is known of the
    writing of their turns to sessions of their callers.

    Raises:
        ArchiveError: The archive cannot be written.
    """
    await drop_answers(archive, tasks)
    for task_id in tasks:
        for kind in OF_TASKS:
            for name in await archive.alist_records(folder_of(kind, task_id)):
                await archive.adelete_record(name)
        await archive.adelete_record(turn_name(task_id, "done"))
        for number in itertools.count():
            if not await archive.adelete_record(turn_name(task_id, number)):
                break


def turn_name(task_id: str, part: str | int) -> str:
    """Return the name of a claim to write a turn, or of the note that it is written."""
    return record_name("caller_turns", f"{task_id} {part}")


def _name(task_id: str, lane: int) -> str:
    return f"{folder_of(ANSWERS, task_id)}.{lane}.json"
