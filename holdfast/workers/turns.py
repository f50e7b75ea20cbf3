"""Parts shared by the workers that run a user's code: a turn's input and answer, and JSON data."""

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

# Providers do not get the `call_id` of user and assistant messages, so it serves as a mark here:
# `one_turn` distinguishes inputs, steering and answers by it.
TURN = "turn"
STEERED = "input"
ANSWER = "answer"


def as_json(value: Any, what: str) -> Json:
    """Return a value of the user's code as JSON data; models and dataclasses become dicts.

    Args:
        value: The value.
        what: Beginning of the error's text, as in "Function 'ask' returned".

    Raises:
        InvalidArgumentError: JSON cannot represent it exactly.
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
        The step with the input for the user's code: its own or, in the first step of a task that
        was started with a conversation, that conversation's newest user message.
    """
    told = step.message()
    if told is None:
        before = ctx.messages[: len(ctx.messages) - len(ctx.adds)]
        asked = next((message for message in reversed(before) if message.role == "user"), None)
        if asked is None or ctx.n > 1:
            return step
        return step.model_copy(update={"input": asked.text, "images": asked.images})
    # The task's input stays unmarked: it equals the message in history, so it is stored once. It
    # comes before feedback, because `one_turn` takes the first user message for the input.
    if ctx.n == 1:
        ctx.adds.insert(0, told)
    else:
        mark = STEERED if step.step_state else TURN
        ctx.add(told.model_copy(update={"call_id": mark}))
    return step


def add_answer(ctx: StepContext, answer: Json) -> None:
    """Append the answer to the transcript, or mark the step's last message if it is the answer."""
    said = assistant(render_result(answer))
    newest = ctx.adds[-1] if ctx.adds else said
    if newest is not said and newest.role == "assistant" and newest.text == said.text:
        said = said if newest.calls else ctx.adds.pop()
    ctx.add(said.model_copy(update={"call_id": ANSWER}))


def one_turn(task: Task, transcript: Sequence[Message]) -> list[Message]:
    """Keep the question and the answer of each turn, and drop the messages in between.

    There is more than one turn when follow-ups were queued. A turn without an answer, as after a
    fork with an input of its own, keeps its question.

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
    # An answer that the task itself added, as after its budget's last call, has no mark.
    return kept if answer is None else [*kept, answer]
