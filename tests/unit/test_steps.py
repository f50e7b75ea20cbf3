"""TaskStep and TaskStepOutput: strict where a person makes them, lenient where they are read."""

from typing import Any

import pytest

from holdfast import TaskStep, TaskStepOutput
from holdfast.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("kind", "field", "text"),
    [
        (TaskStep, "state", "TaskStep has no field 'state'. Did you mean 'step_state'"),
        (TaskStepOutput, "next_step", "TaskStepOutput has no field 'next_step'. Did you mean"),
        (TaskStep, "zzz", "no field 'zzz'. Its fields: task_id, "),
    ],
)
def test_a_misspelt_field_is_refused(kind: Any, field: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        kind(**{field: ()})


def test_a_field_of_a_newer_version_is_passed_over_when_history_is_read() -> None:
    newer = {"step_id": "s1", "newer": 1}
    assert TaskStep.model_validate(newer) == TaskStep(step_id="s1")
    read = TaskStepOutput.model_validate({"task_step": newer, "next_steps": [newer], "newer": 1})
    assert read == TaskStepOutput(
        task_step=TaskStep(step_id="s1"), next_steps=(TaskStep(step_id="s1"),)
    )
    assert TaskStepOutput.model_validate_json(read.model_dump_json()) == read
