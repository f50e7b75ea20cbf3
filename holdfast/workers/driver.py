"""Run an AgentWorker's step against its journal, up to the first call that the task must make."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast import merge_patch
from holdfast.errors import InvalidArgumentError
from holdfast.messages import Message, ToolCall, clean
from holdfast.redact import redact
from holdfast.steps import TaskStep, TaskStepOutput
from holdfast.values import Json
from holdfast.wire import Advanced, Failure, OpenStep, StepResult
from holdfast.workers.base import AgentWorker
from holdfast.workers.context import StepContext

LONGEST_TEXT = 2000

log = logging.getLogger("holdfast")


async def advance(worker: AgentWorker, ctx: StepContext, opened: OpenStep) -> Advanced:
    """Run the step from its top until it is over or needs the task.

    At most one model call is made. The AgentWorker is not told that it is interrupted: its
    coroutine waits at the call and is then cancelled, so `finally` blocks run and `except
    Exception` does not.

    Args:
        worker: The step logic.
        ctx: The step's context, fresh.
        opened: The step and the state that it began with.

    Raises:
        InvalidArgumentError: The worker returned something that cannot be recorded.
        StepCodeChangedError: The journal does not fit the code.
    """
    step = opened.step.model_copy(update={"task_id": ctx.task_id})
    run = asyncio.create_task(worker.run_step(step, ctx))
    try:
        await asyncio.wait(
            (run, cast("asyncio.Future[Any]", ctx.interrupted)),
            return_when=asyncio.FIRST_COMPLETED,
        )
        if run.done():
            return _paid(ctx, _ended(run, worker, ctx, opened))
    finally:
        if not run.done():
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
    why = ctx.interrupted.result()
    patch = merge_patch.diff(opened.state, ctx.state)
    return _paid(
        ctx,
        Advanced(calls=why.calls, asked=why.request, patch=patch, limit=why.kind == "limit"),
    )


def _ended(
    run: asyncio.Task[TaskStepOutput], worker: AgentWorker, ctx: StepContext, opened: OpenStep
) -> Advanced:
    """Read what the step gave. An error after a paid answer does not lose that answer."""
    try:
        return Advanced(result=_result(worker, ctx, opened, run.result()))
    except Exception as error:
        if ctx.answered is None or ctx.answered.answer is None:
            raise
        log.warning("A step of task %s failed after its model call", ctx.task_id, exc_info=True)
        text = clean(redact(str(error)))[:LONGEST_TEXT]
        return Advanced(failure=Failure(type=type(error).__name__, message=text))


def _paid(ctx: StepContext, advanced: Advanced) -> Advanced:
    """Add the answer that this run has paid for."""
    if ctx.answered is None or ctx.answered.answer is None:
        return advanced
    request = "" if advanced.result is not None else ctx.answered.request
    return advanced.model_copy(update={"answer": ctx.answered.answer, "request": request})


def _result(worker: AgentWorker, ctx: StepContext, opened: OpenStep, output: object) -> StepResult:
    if not isinstance(output, TaskStepOutput):
        msg = (
            f"{type(worker).__name__}.run_step returned {type(output).__name__}; it must return a"
            " TaskStepOutput."
        )
        raise InvalidArgumentError(msg)
    newest = next((e.answer for e in reversed(ctx.journal) if e.answer is not None), None)
    echo = newest is not None and output.output == newest.text
    return StepResult(
        output=None if echo else _jsonable(worker, output.output),
        echo=echo,
        adds=tuple(_reference(message, ctx, opened) for message in ctx.adds),
        calls=_call_reference(output.calls, ctx),
        next=tuple(_bare(step) for step in output.next_steps),
        last=output.is_last,
        patch=merge_patch.diff(opened.state, ctx.state),
    )


def _reference(message: Message, ctx: StepContext, opened: OpenStep) -> Message | str:
    """Name a message that history holds already, so that it is not stored twice."""
    if message == Message(role="user", content=opened.step.input or ""):
        return "input"
    if message in opened.notes:
        return f"n{opened.notes.index(message)}"
    for k, entry in enumerate(ctx.journal):
        if entry.answer is not None and entry.answer.message == message:
            return f"j{k}"
        for i, outcome in enumerate(entry.outcomes):
            if outcome.message(entry.calls[i]) == message:
                return f"j{k}.{i}"
    return message


def _call_reference(calls: tuple[ToolCall, ...], ctx: StepContext) -> tuple[ToolCall, ...] | str:
    for k, entry in enumerate(ctx.journal):
        if calls and entry.answer is not None and entry.answer.message.calls == calls:
            return f"j{k}"
    return calls


def _bare(step: TaskStep) -> TaskStep:
    return step.model_copy(update={"task_id": ""})


def _jsonable(worker: AgentWorker, output: Any) -> Json:
    try:
        return to_jsonable_python(output)
    except (PydanticSerializationError, ValueError, RecursionError) as cause:
        msg = (
            f"{type(worker).__name__}.run_step gave an output of type {type(output).__name__} that"
            f" cannot be stored as JSON: {cause}. Return text, numbers, lists, dicts or pydantic"
            " models."
        )
        raise InvalidArgumentError(msg) from cause
