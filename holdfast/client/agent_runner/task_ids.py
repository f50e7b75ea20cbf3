"""Ids of tasks and steps: as callers give them, and made up."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import cast

from holdfast.errors import InvalidArgumentError, StepNotFoundError
from holdfast.values.checks.ids import LONGEST_KNOWN, LONGEST_NAME, check_known_id, check_name
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import MOST_NAMED, named, shown

TaskLike = Task | str

StepLike = TaskStepOutput | TaskStep | str


def id_of(task: TaskLike) -> str:
    """Return the id of a task given as a Task or as an id.

    Raises:
        InvalidArgumentError: It is neither, or an id that no task can have.
    """
    given = cast("object", task)
    if not isinstance(given, Task | str):
        msg = f"A task is given as a Task or by its id; this is {shown(given)}."
        raise InvalidArgumentError(msg)
    return check_known_id(given if isinstance(given, str) else given.task_id)


def step_id_of(step: StepLike) -> str:
    """Return the id of a step given as its output, as a TaskStep or as an id.

    Raises:
        InvalidArgumentError: It is not one of these, or an id that no step can have.
    """
    match cast("object", step):
        case TaskStepOutput() as output:
            return output.task_step.step_id
        case TaskStep() as known:
            return known.step_id
        case str() as name:
            return check_name("The id of a step", name, LONGEST_KNOWN)
        case other:
            msg = f"A step is given as a TaskStep, its output or its id; this is {shown(other)}."
            raise InvalidArgumentError(msg)


def new_id(agent: str, end: str = "") -> str:
    """Make up a task id, which a shell takes without quotes.

    Args:
        agent: Name of the agent, with which the id begins.
        end: What the id ends with: 12 characters, random by default.
    """
    slug = re.sub(r"[^\w.-]+", "-", agent).strip("-") or "task"
    return f"{slug[: LONGEST_NAME - 13]}-{end or uuid.uuid4().hex[:12]}"


def no_completed_step(step_id: str, completed: Sequence[str]) -> StepNotFoundError:
    """Return the error of a step that is not among the completed ones; it names the newest."""
    known = named(completed[-MOST_NAMED:])
    return StepNotFoundError(
        f"Could not find step_id: {step_id}. The completed steps, the newest last, are: {known}."
    )
