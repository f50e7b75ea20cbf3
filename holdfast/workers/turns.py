"""What workers of a user's own code have in common: one question, one answer, JSON in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast import merge_patch
from holdfast.errors import InvalidArgumentError
from holdfast.messages import Message, assistant, user
from holdfast.steps import Task, TaskStep
from holdfast.tool_result import render_result
from holdfast.values import Json

if TYPE_CHECKING:
    from holdfast.workers.context import StepContext


def as_json(value: Any, what: str) -> Json:
    """Return what a user's code made as JSON data, models and dataclasses written out.

    Args:
        value: What it made.
        what: What to call it in the error, as in "Function 'ask' returned".

    Raises:
        InvalidArgumentError: JSON cannot say it exactly.
    """
    try:
        return merge_patch.plain(to_jsonable_python(value), "value")
    except (PydanticSerializationError, ValueError) as cause:
        msg = (
            f"{what} a {type(value).__name__} that cannot be stored as JSON: {cause} Use text,"
            " finite numbers, lists, dicts or pydantic models."
        )
        raise InvalidArgumentError(msg) from cause


def add_question(ctx: StepContext, step: TaskStep) -> None:
    """Append the input of a step to the transcript, if it has one."""
    told = step.message()
    if told is not None:
        ctx.add(told)


def add_answer(ctx: StepContext, answer: Json) -> None:
    """Append the answer to the transcript, unless the step has put it there as its last word."""
    text = render_result(answer)
    newest = ctx.messages[-1] if ctx.messages else None
    if newest is None or newest.role != "assistant" or newest.text != text or newest.calls:
        ctx.add(assistant(text))


def one_turn(task: Task, transcript: Sequence[Message]) -> tuple[Message, ...]:
    """Keep the task's input and its answer, and nothing of what led from one to the other.

    Args:
        task: The finished task.
        transcript: Its messages, oldest first; the last assistant message is the answer.
    """
    said = [message for message in transcript if message.role == "assistant"]
    return (user(task.input, task.images), *(assistant(message.text) for message in said[-1:]))
