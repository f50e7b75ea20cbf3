"""What workers of a user's own code have in common: one question, one answer, JSON in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgumentError
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json
from holdfast.values.messages import Message, assistant
from holdfast.values.steps import Task, TaskStep
from holdfast.values.tool_result import render_result

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext

# No provider reads `call_id` of user and assistant messages: `one_turn` tells by it what is what.
TURN = "turn"
STEERED = "input"
ANSWER = "answer"


def as_json(value: Any, what: str) -> Json:
    """Return what a user's code made as JSON data, models and dataclasses written out.

    Args:
        value: What it made.
        what: What to call it in the error, as in "Function 'ask' returned".

    Raises:
        InvalidArgumentError: JSON cannot say it exactly.
    """
    try:
        return merge_patch.written(value)
    except InvalidArgumentError as cause:
        reason = str(cause).rstrip(".")
        msg = (
            f"{what} a {type(value).__name__} that cannot be stored as JSON: {reason}. Use text,"
            " finite numbers, lists, dicts or pydantic models."
        )
        raise InvalidArgumentError(msg) from cause


def add_question(ctx: StepContext, step: TaskStep) -> TaskStep:
    """Append the input of a step to the transcript, if it has one.

    Returns:
        The step with the input that its code is to see: its own or, in the first step of a task
        that was given a conversation, the newest user message of that.
    """
    told = step.message()
    if told is None:
        before = ctx.messages[: len(ctx.messages) - len(ctx.adds)]
        asked = next((message for message in reversed(before) if message.role == "user"), None)
        if asked is None or ctx.n > 1:
            return step
        return step.model_copy(update={"input": asked.text, "images": asked.images})
    if ctx.n == 1:  # unmarked, so that history holds it once; before feedback, so that it is found
        ctx.adds.insert(0, told)
    else:
        mark = STEERED if step.step_state else TURN
        ctx.add(told.model_copy(update={"call_id": mark}))
    return step


def add_answer(ctx: StepContext, answer: Json) -> None:
    """Append the answer to the transcript, unless the step has put it there as its last word."""
    said = assistant(render_result(answer))
    newest = ctx.adds[-1] if ctx.adds else said
    if newest is not said and newest.role == "assistant" and newest.text == said.text:
        said = said if newest.calls else ctx.adds.pop()
    ctx.add(said.model_copy(update={"call_id": ANSWER}))


def one_turn(task: Task, transcript: Sequence[Message]) -> list[Message]:
    """Keep of each turn the question and the answer, and nothing of what led to it.

    There is more than one turn when follow-ups were queued. A turn that was left without an answer,
    as by a fork with an input of its own, keeps its question.

    Args:
        task: The finished task.
        transcript: Its messages, oldest first, as `add_question` and `add_answer` left them.
    """
    kept: list[Message] = []
    answer: Message | None = None
    is_over = False  # the turn has its answer
    begins = bool(task.input or task.images or task.stored)  # the next user message is its input
    for message in transcript:
        if message.role == "user" and (begins or message.call_id == TURN):
            kept += [answer] if is_over and answer is not None else []
            kept.append(message.model_copy(update={"call_id": ""}))
            answer, is_over, begins = None, False, False
        elif message.role == "assistant":
            answer = assistant(message.text)
            is_over = is_over or message.call_id == ANSWER
    # An answer that the task has put there, as after its budget's last call, bears no mark.
    return kept if answer is None else [*kept, answer]
