"""The records of steps of the program's own step logic, as LlamaIndex's programs see steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from holdfast.archive.contents import read_json
from holdfast.errors import TaskClosedError, TaskNotFoundError
from holdfast.llama_index.step_code.beside import own_output, own_record, own_step
from holdfast.llama_index.step_code.worker import MEMO, StepCode
from holdfast.llama_index.values import OwnRecord, Task
from holdfast.reading.reader import Reader
from holdfast.task.data.records import StepRecord
from holdfast.task.queries.pages import StepView
from holdfast.task.undo import active_steps
from holdfast.values import steps


async def own_outputs(
    outputs: Sequence[steps.TaskStepOutput],
    logic: StepCode,
    reader: Reader,
    task: Task,
    newest: int = 0,
) -> list[tuple[steps.TaskStepOutput, OwnRecord | None]]:
    """Return outputs with the states of their steps, and what is recorded next to each.

    Args:
        outputs: Outputs of steps of the task.
        logic: The step logic.
        reader: Reads the task's record.
        task: The task, for states that hold it.
        newest: Ordinal of the newest step, if it is known.
    """
    memos = await _memos(reader, task.task_id, outputs, newest)
    shown: list[tuple[steps.TaskStepOutput, OwnRecord | None]] = []
    for each in outputs:
        memo = memos.get(each.task_step.step_id, {})
        codec = logic.codec(task)  # of its own: an object was another one in an earlier step
        shown.append((own_output(each, memo, codec), own_record(memo, codec, ends=each.is_last)))
    return shown


def own_steps(
    queued: Sequence[steps.TaskStep], logic: StepCode, task: Task
) -> list[steps.TaskStep]:
    """Return queued steps with the states that the step logic gave them."""
    codec = logic.codec(task)
    newest_first = [own_step(each, codec) for each in reversed(queued)]
    return newest_first[::-1]


async def own_answer(logic: StepCode, reader: Reader, task: Task) -> OwnRecord:
    """Read what the last step of a task recorded next to its text."""
    done = active_steps(await reader.entries(task.task_id))
    memo = await _memo(reader, done[-1]) if done else None
    return own_record(memo or {}, logic.codec(task))


async def _memos(
    reader: Reader, task_id: str, outputs: Sequence[steps.TaskStepOutput], newest: int
) -> dict[str, dict[str, Any]]:
    """Read what completed steps gave, by their ids: the newest alone is not looked for in all."""
    wanted = {each.task_step.step_id for each in outputs}
    done: list[StepRecord] = []
    if len(wanted) == 1 and newest:
        with suppress(TaskClosedError, TaskNotFoundError):
            view = await reader.query(task_id, "step", StepView, newest)
            done = [view.record] if view.record is not None else []
    if not any(record.step.step_id in wanted for record in done):
        done = active_steps(await reader.entries(task_id))
    found = {
        record.step.step_id: await _memo(reader, record)
        for record in done
        if record.step.step_id in wanted
    }
    return {name: memo for name, memo in found.items() if memo is not None}


async def _memo(reader: Reader, record: StepRecord) -> dict[str, Any] | None:
    """Read what a completed step gave; None for a step that no such step logic has run."""
    for entry in record.journal:
        if entry.name == MEMO and entry.memo is not None:
            made = await read_json(entry.memo.output, entry.memo.stored, reader.text)
            return cast("dict[str, Any]", made)
    return None
