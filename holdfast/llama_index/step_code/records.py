"""The records of steps of the program's own step logic, as LlamaIndex's programs see steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from holdfast.archive.contents import read_json
from holdfast.llama_index.step_code.beside import own_output, own_record, own_step
from holdfast.llama_index.step_code.worker import MEMO, StepCode
from holdfast.llama_index.values import OwnRecord, Task
from holdfast.reading.reader import Reader
from holdfast.task.undo import active_steps
from holdfast.values import steps


async def own_outputs(
    outputs: Sequence[steps.TaskStepOutput], logic: StepCode, reader: Reader, task: Task
) -> list[tuple[steps.TaskStepOutput, OwnRecord | None]]:
    """Return outputs with the states of their steps, and what is recorded beside each.

    Args:
        outputs: Outputs of steps of the task.
        logic: The step logic.
        reader: Reads the task's record.
        task: The task, for states that hold it.
    """
    memos = await _memos(reader, task.task_id)
    codec = logic.codec(task)
    found = ((each, memos.get(each.task_step.step_id, {})) for each in outputs)
    return [(own_output(each, memo, codec), own_record(memo, codec)) for each, memo in found]


def own_steps(
    queued: Sequence[steps.TaskStep], logic: StepCode, task: Task
) -> list[steps.TaskStep]:
    """Return queued steps with the states that the step logic gave them."""
    codec = logic.codec(task)
    return [own_step(each, codec) for each in queued]


async def own_answer(logic: StepCode, reader: Reader, task: Task) -> OwnRecord:
    """Read what the last step of a task recorded beside its text."""
    memos = await _memos(reader, task.task_id)
    newest = list(memos.values())[-1] if memos else {}
    return own_record(newest, logic.codec(task))


async def _memos(reader: Reader, task_id: str) -> dict[str, dict[str, Any]]:
    """Read what each completed step gave, by its id, oldest first."""
    found: dict[str, dict[str, Any]] = {}
    for record in active_steps(await reader.entries(task_id)):
        for entry in record.journal:
            if entry.name == MEMO and entry.memo is not None:
                made = await read_json(entry.memo.output, entry.memo.stored, reader.text)
                found[record.step.step_id] = cast("dict[str, Any]", made)
    return found
